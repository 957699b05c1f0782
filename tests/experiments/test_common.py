"""What studies have in common: statistics of interleaved samples, answer checks, journal, standings, parameters."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from autofuse.errors import ArgumentError

STUDY = Path(__file__).resolve().parents[2] / "experiments" / "common"
MODULES = ("children", "interleaved", "journal", "settings", "standings")


def rounds(us: float, noise: float, seed: int) -> list[list[list[float]]]:
    """Three rounds of seven blocks of five calls around `us`."""
    rng = np.random.default_rng(seed)
    return (us * np.exp(rng.normal(0.0, noise, (3, 7, 5)))).tolist()


def test_ratio_finds_a_speed_up_and_its_interval(study: dict[str, ModuleType]) -> None:
    found = study["interleaved"].ratio(rounds(200.0, 0.01, 1), rounds(100.0, 0.01, 2))
    assert 1.98 < found.low < 2.0 < found.high < 2.02
    assert found.beyond(0.05)
    assert not found.beyond(1.5)


def test_ratio_is_paired_so_a_drift_of_both_cancels(study: dict[str, ModuleType]) -> None:
    drift = np.linspace(1.0, 3.0, 21).reshape(3, 7, 1)
    slower, faster = (np.broadcast_to(us * drift, (3, 7, 5)).tolist() for us in (150.0, 100.0))
    found = study["interleaved"].ratio(slower, faster)
    assert (found.low, found.value, found.high) == pytest.approx((1.5, 1.5, 1.5))


def test_one_outlying_call_does_not_move_the_ratio(study: dict[str, ModuleType]) -> None:
    spoiled = rounds(100.0, 0.0, 0)
    spoiled[0][0][0] = 1e6
    assert study["interleaved"].ratio(spoiled, rounds(100.0, 0.0, 0)).value == pytest.approx(1.0)


def test_noise_floor_covers_a_bias_in_either_direction(study: dict[str, ModuleType]) -> None:
    floor = study["interleaved"].noise_floor
    assert floor(rounds(103.0, 0.0, 0), rounds(100.0, 0.0, 0)) == pytest.approx(0.03)
    assert floor(rounds(100.0, 0.0, 0), rounds(103.0, 0.0, 0)) == pytest.approx(0.03)


def test_interleave_runs_every_variant_in_every_repetition(study: dict[str, ModuleType]) -> None:
    order: list[str] = []
    variants = {name: lambda name=name: order.append(name) for name in "abc"}
    samples = study["interleaved"].interleave(variants, blocks=4, block_seconds=0.0, seed=5)
    assert {name: [len(block) for block in blocks] for name, blocks in samples.items()} == dict.fromkeys("abc", [3] * 4)
    blocks = order[2 * 3 :: 4]  # two sizing calls each, then blocks of one untimed and three timed calls
    repetitions = [blocks[start : start + 3] for start in range(0, 12, 3)]
    assert all(sorted(names) == ["a", "b", "c"] for names in repetitions)
    assert len({tuple(names) for names in repetitions}) > 1


@pytest.mark.parametrize(("resting", "rests"), [(False, 1), (True, 1 + 4 * 2)])
def test_threads_that_spin_go_to_sleep_before_timing(
    study: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, resting: bool, rests: int
) -> None:
    """Once before the first block; before every block where that is asked for."""
    happened: list[str] = []
    monkeypatch.setattr(study["interleaved"], "rest", lambda: happened.append("rest"))
    variants = {name: lambda name=name: happened.append(name) for name in "ab"}
    study["interleaved"].interleave(variants, blocks=4, block_seconds=0.0, seed=0, resting=resting)
    assert happened.count("rest") == rests
    blocks = happened[4:]  # two sizing calls each
    assert blocks[0] == "rest"
    if resting:
        assert all(before == "rest" for before in blocks[1::5])


@pytest.mark.parametrize(
    ("expected", "got", "fault"),
    [
        (np.array([1, 2], "f4"), np.array([1, 2.0001], "f4"), None),
        (np.array([1, 2], "f4"), np.array([1, 2.01], "f4"), "array 0: relative error"),
        (np.array([1, 2], "f4"), np.array([1, np.nan], "f4"), "array 0: relative error nan"),
        (np.array([1, 2], "f8"), np.array([1, 2.0001], "f8"), "array 0: relative error"),
        (np.array([0, 0], "f4"), np.array([0, 0], "f4"), None),
        (np.array([1], "f4"), np.array([1], "f8"), "array 0 is float64"),
        (np.array([1], "f4"), np.array([[1]], "f4"), "array 0 is float32[1, 1]"),
        (np.array([7, 8] * 1000, "u1"), np.array([7, 8] * 999 + [7, 9], "u1"), None),
        (np.array([7, 8] * 1000, "u1"), np.array([7, 8] * 999 + [7, 10], "u1"), "bytes differ by more than one"),
        (np.array([1, 2], "i8"), np.array([1, 3], "i8"), "50.0% of the values differ"),
    ],
)
def test_mismatch(study: dict[str, ModuleType], expected: object, got: object, fault: str | None) -> None:
    found = study["interleaved"].mismatch([expected], [got])
    assert found is None if fault is None else fault in found


def test_journal_keeps_whole_records_and_drops_a_torn_one(study: dict[str, ModuleType], tmp_path: Path) -> None:
    path = tmp_path / "raw.jsonl"
    journal = study["journal"].Journal(path)
    journal.append({"kind": "plan", "program": "a", "status": "failed"})
    journal.append({"kind": "plan", "program": "a", "status": "ok"})
    with path.open("a") as stream:
        stream.write('{"kind": "plan", "prog')
    again = study["journal"].Journal(path)
    assert again.latest(kind="plan", program="a") == {"kind": "plan", "program": "a", "status": "ok"}
    assert again.latest(program="b") is None
    again.append({"kind": "plan", "program": "b"})
    assert [json.loads(line)["program"] for line in path.read_text().splitlines()] == ["a", "a", "b"]
    assert study["journal"].Journal(path, fresh=True).records == []


def test_geometric_mean(study: dict[str, ModuleType]) -> None:
    assert study["standings"].geometric_mean([1.0, 4.0, 16.0]) == pytest.approx(4.0)
    assert np.isnan(study["standings"].geometric_mean([]))


def test_a_ratio_within_the_noise_says_nothing(study: dict[str, ModuleType]) -> None:
    standing, ratio = study["standings"].Standing, study["interleaved"].Ratio
    assert standing("jax", ratio(1.03, 1.02, 1.04), 0.05).ahead == "neither"
    assert standing("jax", ratio(1.03, 1.02, 1.04), 0.01).ahead == "ours"
    assert standing("jax", ratio(0.9, 0.88, 0.92), 0.05).ahead == "theirs"


# ---- parameters ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Form:
    """Parameters of some study."""

    top: int
    seeds: tuple[int, ...]
    size: str


TOML = """\
top = 5
seeds = [0, 1]
size = "full"

[quick]
size = "small"
"""


def read(study: dict[str, ModuleType], folder: Path, text: str, quick: bool = False) -> Form:
    path = folder / "study.toml"
    path.write_text(text)
    return study["settings"].read(path, Form, quick)


def test_a_quick_run_has_parameters_of_its_own(study: dict[str, ModuleType], tmp_path: Path) -> None:
    assert read(study, tmp_path, TOML) == Form(5, (0, 1), "full")
    assert read(study, tmp_path, TOML, quick=True) == Form(5, (0, 1), "small")
    assert study["settings"].comparable(Form(5, (0, 1), "full"), ("size",)) == {"top": 5, "seeds": [0, 1]}


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("top = 5", "top = 5\nbottom = 1", "bottom: is no parameter of this study; it has seeds, size, top"),
        ("top = 5", "", "top: is missing; it must be a whole number"),
        ("top = 5", "top = 2.5", "top: must be a whole number, got 2.5"),
        ("top = 5", "top = true", "top: must be a whole number, got True"),
        ("seeds = [0, ", 'seeds = ["0", ', "seeds: must be a list of whole numbers"),
        ('size = "full"', 'size = ""', "size: must be a text, got ''"),
        ("[quick]", "[quick]\nslow = 1", "slow: is no parameter"),
        ("top = 5", "top = ", "is no TOML"),
    ],
)
def test_what_is_wrong_with_parameters_is_named(
    study: dict[str, ModuleType], tmp_path: Path, before: str, after: str, fault: str
) -> None:
    assert before in TOML
    with pytest.raises(ArgumentError) as caught:
        read(study, tmp_path, TOML.replace(before, after, 1))
    assert str(caught.value).startswith(f"{tmp_path / 'study.toml'}: {fault}")


def test_a_file_that_is_not_there_is_named(study: dict[str, ModuleType], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"nowhere\.toml: cannot be read"):
        study["settings"].read(tmp_path / "nowhere.toml", Form)


FAILING = "def wrong():\n    raise ValueError('no')\nwrong()"
HANGING = """
import faulthandler, signal, sys
def long(ready):
    open(ready, "w").close()
    signal.pause()
faulthandler.register(signal.SIGUSR1)
long(sys.argv[1].replace("task.json", "ready"))
"""


def test_a_child_that_failed_says_where(study: dict[str, ModuleType], tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(FAILING)
    outcome = study["children"].in_child(script, {}, 600.0)
    assert (outcome["status"], outcome["error"]) == ("failed", "exit code 1: ValueError: no")
    assert any("in wrong" in line for line in outcome["traceback"])


def test_a_child_that_is_stopped_says_where_it_was(
    study: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    communicate = subprocess.Popen.communicate

    def once_it_is_there(child: Any, timeout: float) -> Any:
        """The limit begins when the child hangs, however long it took to start."""
        if timeout == 0.0:
            with open(Path(child.args[2]).with_name("ready")):
                pass
        return communicate(child, timeout=timeout)

    def started(*args: Any, **options: Any) -> Any:
        os.mkfifo(Path(args[0][2]).with_name("ready"))
        return popen(*args, **options)

    popen = subprocess.Popen
    monkeypatch.setattr(popen, "communicate", once_it_is_there)
    monkeypatch.setattr(study["children"].subprocess, "Popen", started)
    monkeypatch.setattr(study["children"], "_LAST_WORDS_S", 60.0)
    script = tmp_path / "child.py"
    script.write_text(HANGING)
    outcome = study["children"].in_child(script, {}, 0.0)
    assert (outcome["status"], outcome["error"]) == ("failed", "stopped after 0 s")
    assert any("in long" in line for line in outcome["traceback"])
