"""The study of peers: its pure parts, the programs as its frameworks write them, and a run of NumPy and autofuse."""

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from autofuse.measurement.workloads import load

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "experiments" / "peers"
MODULES = ("child", "figures", "floors", "journal", "namespaces", "picture", "prepared", "report", "study", "variants")


# ---- which variants run ------------------------------------------------------------------------------------------


def test_a_program_runs_under_what_is_installed_wanted_and_written_for_it(study: dict[str, ModuleType]) -> None:
    variants = study["variants"]
    catalogue = {"missing": ["jax"], "torch idiomatic": ["softmax"], "numba": ["hdiff"]}
    named = variants.applicable("softmax", catalogue, False, variants.VARIANTS)
    assert named == ["numpy", "torch", "torch idiomatic", "autofuse", "autofuse again"]
    assert variants.applicable("hdiff", catalogue, False, ("numba", "autofuse")) == ["numba", "autofuse"]


def test_autotuning_is_for_programs_with_products(study: dict[str, ModuleType]) -> None:
    variants = study["variants"]
    for dots in (True, False):
        found = variants.applicable("gelu_mlp", {"missing": []}, dots, ("torch", "torch autotune"))
        assert found == (["torch", "torch autotune"] if dots else ["torch"])


def test_every_process_has_equal_threads_and_caches_of_its_own(study: dict[str, ModuleType], tmp_path: Path) -> None:
    found = study["variants"].environment(3, tmp_path)
    assert {found[name] for name in study["variants"].THREAD_COUNTS} == {"3"}
    assert found["TORCHINDUCTOR_CACHE_DIR"].startswith(str(tmp_path))


# ---- figures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own_s", "own_ms", "other_s", "other_ms", "calls"),
    [
        (21.0, 1.0, 1.0, 3.0, 10_000),  # 20 s at 2 ms a call
        (1.0, 1.0, 5.0, 3.0, 0),  # ready earlier and faster
        (1.0, 3.0, 5.0, 1.0, math.inf),  # slower: in the long run never
        (5.0, 1.0, 1.0, 1.0, math.inf),
        (1.0, 1.0, 1.0, 1.0, 0),
    ],
)
def test_break_even(
    study: dict[str, ModuleType], own_s: float, own_ms: float, other_s: float, other_ms: float, calls: float
) -> None:
    assert study["figures"].break_even(own_s, own_ms, other_s, other_ms) == calls


def test_the_floor_takes_the_rate_of_a_copy_that_is_no_larger(study: dict[str, ModuleType]) -> None:
    rates = {str(8 << 20): 50_000.0, str(1 << 30): 20_000.0}
    floor_ms = study["floors"].floor_ms
    assert floor_ms(1_000_000, rates) == pytest.approx(0.02)
    assert floor_ms(100_000_000, rates) == pytest.approx(2.0)
    assert floor_ms(2_000_000_000, rates) == pytest.approx(100.0)


def test_least_bytes_count_arguments_that_are_written(study: dict[str, ModuleType]) -> None:
    least_bytes = study["floors"].least_bytes
    field, out, coeff = load("hdiff").inputs("small", 0)
    assert least_bytes(load("hdiff"), "small", 0) == field.nbytes + 2 * out.nbytes + coeff.nbytes
    (x,) = load("softmax").inputs("small", 0)
    assert least_bytes(load("softmax"), "small", 0) == 2 * x.nbytes


def test_products_are_collected_from_the_graph(study: dict[str, ModuleType]) -> None:
    import autofuse

    program = load("attention")
    found = study["floors"].dots_of(autofuse.trace(program.function, *program.inputs("small", 0)))
    assert found == [((2, 3), 21, 9, 21, "float32"), ((2, 3), 21, 21, 9, "float32")]
    assert study["floors"].dots_alone_ms(found, seed=0, seconds=0.0) > 0.0


def test_widths_that_are_the_frameworks_choice_do_not_count(study: dict[str, ModuleType]) -> None:
    mismatch = importlib.import_module("interleaved").mismatch
    alike = study["child"].alike
    index, mean = np.array([3, 4], np.int64), np.array(0.1, np.float64)
    assert mismatch(*alike([index, mean], [index.astype(np.int32), np.array(0.1, np.float32)])) is None
    assert mismatch(*alike([mean], [np.array(0.2, np.float32)])) is not None
    wide = np.array([0.1, 0.2])
    assert "float32" in mismatch(*alike([wide], [wide.astype(np.float32)]))
    assert "1 arrays" in mismatch(*alike([index, mean], [index]))


def test_leaves_come_in_the_order_of_sorted_keys(study: dict[str, ModuleType]) -> None:
    one, two, three = (np.full(2, number) for number in (1, 2, 3))
    found = study["prepared"].leaves(({"b": two, "a": [one]}, None, np.float32(3)))
    assert [leaf.flat[0] for leaf in found] == [1, 2, 3]
    assert study["prepared"].leaves([three])[0] is three


def record(study: dict[str, ModuleType], path: Path) -> object:
    """Two programs, a cold round and two timing rounds: torch is ahead in `beaten` and answers wrongly in `ahead`."""
    journal = study["journal"].Journal(path)
    journal.append({"kind": "copies", "status": "ok", "rates": {str(8 << 20): 10_000.0}})
    us = {"numpy": 8000.0, "jax": 4000.0, "torch": 500.0, "autofuse": 1000.0, "autofuse again": 1010.0}
    for program, dots_ms in (("ahead", 0.0), ("beaten", 0.9)):
        facts = {"kind": "facts", "program": program, "status": "ok", "least_bytes": 5_000_000, "dots_ms": dots_ms}
        journal.append(facts)
        journal.append({"kind": "tune", "program": program, "status": "ok", "seconds": 20.0, "kernels": 2})
        for index in range(3):
            for variant, time in us.items():
                what = {"kind": "round", "program": program, "variant": variant, "round": index, "status": "ok"}
                cold = index == 0
                what |= {"ready_s": 9.0 if cold else 2.0 * index + 2.0, "cold": cold, "keeps_cache": variant == "torch"}
                what |= {"peak_mb": 300.0, "before_mb": 200.0, "notes": []}
                if (program, variant) == ("ahead", "torch"):
                    journal.append(what | {"fault": "wrong answer, array 0: relative error 1e+00"})
                    continue
                samples = {"fresh": [[time] * 3] * 4, "reused": [[time / 2] * 3] * 4}
                if variant in ("jax", "torch"):
                    samples["empty"] = [[50.0] * 3] * 4
                if variant == "autofuse":
                    what["kernel_us"] = {"all": 400.0, "dots": 100.0}
                journal.append(what | {"samples": samples})
    return journal


def test_rows_carry_times_ratios_costs_and_faults(study: dict[str, ModuleType], tmp_path: Path) -> None:
    ahead, beaten = study["figures"].build_rows(["ahead", "beaten"], record(study, tmp_path / "raw.jsonl"), 2)
    assert ahead.times["fresh"]["autofuse"].value == pytest.approx(1.0)
    assert ahead.times["reused"]["jax"].value == pytest.approx(2.0)
    assert (ahead.best("fresh").name, beaten.best("fresh").name) == ("jax", "torch")
    assert (ahead.best("fresh").ahead, beaten.best("fresh").ahead) == ("ours", "theirs")
    assert ahead.best("fresh").over.value == pytest.approx(4.0)
    assert ahead.best("fresh").noise == pytest.approx(0.01)
    assert ahead.break_even == math.ceil((20.0 - 5.0) * 1e3 / 3.0)  # jax keeps no cache: median of the timing rounds
    assert beaten.break_even == math.inf
    assert (beaten.ready_s["torch"], beaten.ready_s["jax"]) == (9.0, 5.0)
    assert ahead.kernel_ms == pytest.approx({"jax": 1.95, "autofuse": 0.4})
    assert (ahead.floor_ms, ahead.dot_share, beaten.dot_share) == pytest.approx((0.5, 0.0, 0.9))
    assert beaten.profiled_dots == pytest.approx(0.25)
    assert ahead.faults == ("torch: wrong answer, array 0: relative error 1e+00",)


RUN = {
    "machine": {
        "model": "A CPU", "cores": 2, "l1d_bytes": 1 << 15, "l2_bytes": 1 << 21, "l3_bytes": 1 << 25, "isa": "avx2",
        "memory_bytes": 1 << 34, "system": "Linux", "blas": "a BLAS", "versions": {"jax": "0.5"},
    },
    "settings": {"size": "full", "seed": 0, "budget": 20.0, "blocks": 4, "block_seconds": 0.05, "threads": 2},
    "command": "python run.py", "begun": "today", "commit": "abc",
}  # fmt: skip


def test_the_report_sums_up_by_column_and_names_who_is_ahead(study: dict[str, ModuleType], tmp_path: Path) -> None:
    journal = record(study, tmp_path / "raw.jsonl")
    rows = study["figures"].build_rows(["ahead", "beaten"], journal, 2)
    text = study["report"].render(rows, study["figures"].small_things([], journal, 2), RUN, 2)
    assert "| **the best of them, program by program** | 1.41 | 2 | 1 | 0 | 1 |" in text  # sqrt(4 * 0.5)
    assert "| the best, programs whose products take under 30% | 4.00 | 1 | 1 | 0 | 0 |" in text
    assert "A peer is ahead beyond the noise floor in 1 of 2: `beaten` (torch, 0.50 [0.50, 0.50])." in text
    assert "| `ahead` | 8.00 | 4.00 | - | - | - | - | - | **1.00** | 4.00 [4.00, 4.00] jax | 1.0% |" in text
    assert "- `ahead`, torch: wrong answer" in text


def test_a_report_of_nothing_says_so(study: dict[str, ModuleType], tmp_path: Path) -> None:
    journal = study["journal"].Journal(tmp_path / "raw.jsonl")
    rows = study["figures"].build_rows(["softmax"], journal, 2)
    text = study["report"].render(rows, study["figures"].small_things(["three_small"], journal, 2), RUN, 2)
    assert "Nothing measured." in text
    assert not study["picture"].draw(rows, tmp_path / "none.png")


def test_the_picture_is_drawn(study: dict[str, ModuleType], tmp_path: Path) -> None:
    rows = study["figures"].build_rows(["ahead", "beaten"], record(study, tmp_path / "raw.jsonl"), 2)
    assert study["picture"].draw(rows, tmp_path / "peers.png")
    assert (tmp_path / "peers.png").read_bytes().startswith(b"\x89PNG")


def test_numbers_keep_three_digits(study: dict[str, ModuleType]) -> None:
    number = study["report"].number
    assert [number(value) for value in (123.4, 12.34, 0.01234, 0.0, None)] == ["123", "12.3", "0.0123", "0", "-"]


# ---- programs in other libraries ---------------------------------------------------------------------------------


def test_a_program_is_loaded_over_another_namespace_with_its_helpers(study: dict[str, ModuleType]) -> None:
    seen: list[str] = []

    def tanh(x: object) -> object:
        seen.append("tanh")
        return np.tanh(x)

    function = study["namespaces"].load_over(load("gelu_mlp"), SimpleNamespace(tanh=tanh))
    program = load("gelu_mlp")
    np.testing.assert_array_equal(function(*program.inputs("small", 0)), program.function(*program.inputs("small", 0)))
    assert seen == ["tanh"]  # by `gelu`, a helper of the file; NumPy's own module is as it was


@pytest.mark.parametrize(
    ("library", "module", "table"),
    [
        ("jax", "jax_programs", "IDIOMS"),
        ("jax", "jax_programs", "REWRITES"),
        ("torch", "torch_programs", "PROGRAMS"),
        ("torch", "torch_idioms", "IDIOMS"),
        ("numba", "numba_programs", "KERNELS"),
    ],
)
def test_hand_written_programs_are_those_of_workloads(
    study: dict[str, ModuleType], library: str, module: str, table: str
) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed: `make peers` has it in an environment of its own")
    for name in getattr(importlib.import_module(module), table):
        load(name)


# ---- the command -------------------------------------------------------------------------------------------------


def run_study(folder: Path, *extra: str) -> subprocess.CompletedProcess[str]:
    """The study of one small program under NumPy and autofuse."""
    command = [sys.executable, str(STUDY / "run.py"), "--size", "small", "--rounds", "1", "--blocks", "2"]
    command += ["--block-ms", "0.1", "--budget", "0.5", "--programs", "softmax", "--variants", "numpy,autofuse"]
    command += ["--work", str(folder / "work"), "--out", str(folder / "peers.md"), *extra]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_run_reports_and_the_same_command_again_measures_nothing(tmp_path: Path) -> None:
    done = run_study(tmp_path)
    assert done.returncode == 0, done.stderr
    records = (tmp_path / "peers.jsonl").read_text().splitlines()
    assert {json.loads(line)["kind"] for line in records} == {"run", "copies", "facts", "tune", "round"}
    assert "| `softmax` |" in (tmp_path / "peers.md").read_text()
    run_study(tmp_path)
    assert (tmp_path / "peers.jsonl").read_text().splitlines() == records
    refused = run_study(tmp_path, "--seed", "7")
    assert refused.returncode == 2
    assert "seed was 0, is 7" in refused.stderr


def test_unknown_variants_are_refused(tmp_path: Path) -> None:
    refused = run_study(tmp_path, "--variants", "tensorflow")
    assert refused.returncode == 2
    assert "got tensorflow" in refused.stderr
