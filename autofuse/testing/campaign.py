"""Thousands of plan files changed at random, each tried in a child process that may die of it.

    python -m autofuse.testing.campaign --count 10000 --seed 0 --keep FOLDER [--minutes 4]

The seed of a case names it: `--count 1 --seed N` tries it alone. Files of cases that fail stay in FOLDER.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from autofuse.measurement.database import Database
from autofuse.measurement.records import Measurement
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.device.detect import detect
from autofuse.targets.cpu.identity import host_cpu_identity
from autofuse.testing.devices import server
from autofuse.testing.mutations import KINDS, as_calls, as_text, with_digest
from autofuse.testing.ordeals import CRASHED, DEADLINE_S, GOOD, REFUSED, WRONG, Ordeals

_FILES = ("side file", "cache", "records")
"""Kinds of cases that change another file than the plan."""
_SHARE_OF_FILES = 0.12


@dataclass(slots=True)
class Tally:
    """What became of the cases."""

    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """By kind and verdict."""
    failures: list[tuple[int, str, str, str]] = field(default_factory=list[tuple[int, str, str, str]])
    """Seed, kind, verdict and words of cases that are not good."""

    def lines(self) -> list[str]:
        """A line for each kind, and one for all."""
        kinds = sorted({kind for kind, _ in self.verdicts})
        rows = {kind: {v: n for (k, v), n in self.verdicts.items() if k == kind} for kind in kinds}
        total = Counter[str]()
        for row in rows.values():
            total.update(row)
        return [f"{name:<11}" + _summary(row) for name, row in (*rows.items(), ("all", dict(total)))]


def _summary(row: dict[str, int]) -> str:
    return f"{sum(row.values()):>7} cases: " + ", ".join(f"{row[verdict]} {verdict}" for verdict in sorted(row))


# ---- sound files to begin with -----------------------------------------------------------------------------------


def make_plans(folder: Path) -> list[Path]:
    """Small plans of all kinds of kernels, in a folder."""
    import autofuse as af

    rng, threads = np.random.default_rng(0), min(2, detect().logical)
    for name, (function, shapes) in PROGRAMS.items():
        arguments = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        for policy in ("analytical", "unfused"):
            plan = af.compile(
                function,
                *arguments,
                policy=policy,
                threads=threads,
                on_unsupported="eager",
                check_bounds=name in _CHECKED,
            )
            plan.save(folder / f"{name}-{policy}.json")
    return sorted(folder.glob("*.json"))


def _update(w: Any, x: Any) -> None:
    w[2:5, 1:4] = np.exp(x) + w[2:5, 1:4]


def _swap(x: Any, y: Any) -> Any:
    kept = x.copy()
    x[:] = y * 2
    y[:] = kept + 1
    return (x * y).sum(0), {"kept": kept}


def _solve(a: Any, b: Any) -> Any:
    return np.linalg.solve(a + 9 * np.eye(5, dtype=np.float32), b) * 2, np.linalg.inv(
        a + 9 * np.eye(5, dtype=np.float32)
    )


def _softmax(x: Any) -> Any:
    grown = np.exp(x - x.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


def _table(x: Any) -> Any:
    return x @ np.linspace(-1, 1, 35 * 20, dtype=np.float32).reshape(35, 20) + np.arange(20, dtype=np.float32)


def _attention(q: Any, k: Any, v: Any) -> Any:
    return _softmax(q @ k.T) @ v


def _stencil(u: Any) -> Any:
    u[1:-1] = (u[:-2] + u[2:]) / 2
    return np.concatenate([u, u[::-1]]), np.pad(u, 3)


def _counts(x: Any) -> Any:
    keys = np.abs(x * 3).astype(np.int64) % 5
    total = np.zeros_like(x[:5])
    np.add.at(total, keys, x)
    return total, total[keys[::2]]


def _pair(x: Any, y: Any) -> Any:
    x[1:] += y[:-1]
    return _Pair(np.exp(y), {"sum": x.sum(), 3: [y.T]})


class _Pair(NamedTuple):
    first: Any
    second: Any


PROGRAMS: dict[str, tuple[Callable[..., Any], Sequence[tuple[int, ...]]]] = {
    "update": (_update, [(9, 7), (3, 3)]),
    "swap": (_swap, [(5, 4), (5, 4)]),
    "solve": (_solve, [(5, 5), (5,)]),
    "softmax": (_softmax, [(7, 33)]),
    "table": (_table, [(6, 35)]),
    "attention": (_attention, [(9, 8), (11, 8), (11, 5)]),
    "stencil": (_stencil, [(67,)]),
    "sort": (lambda x: (np.sort(x, 1) * 2, np.argmax(x, 0), np.cumsum(x, 1)), [(6, 19)]),
    "norm": (
        lambda x, g: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g,
        [(13, 31), (31,)],
    ),
    "total": (lambda x: (x * x).sum(), [(300, 150)]),
    "choose": (
        lambda x, y: (np.where(x > 0, x, y)[::2], x.T + 1, np.maximum(x, y).astype(np.int16)),
        [(17, 12), (17, 12)],
    ),
    "counts": (_counts, [(23,)]),
    "pair": (_pair, [(8, 5), (8, 5)]),
}


_CHECKED = frozenset(["counts"])
"""Programs whose plans check indices."""


def make_records(path: Path) -> Path:
    """A small database of measurements."""
    with Database(path, host_cpu_identity(server(2))) as base:
        for number in range(8):
            schedule = cpu_schedule(unroll=1 << number % 4)
            base.add(
                Measurement(
                    kernel=f"{number:016x}",
                    schedule=schedule,
                    signature="(f32[64]) -> f32[64]",
                    policy="warm-fastest/1",
                    code_version="cpu/1",
                    status="ok",
                    samples_us=(1.0 + number, 2.0 + number),
                )
            )
    return path


# ---- cases -------------------------------------------------------------------------------------------------------


class Campaign:
    """Makes cases from seeds and tries them, one after another, in a child that is started again when it dies."""

    def __init__(self, folder: Path, keep: Path | None = None) -> None:
        """`folder` is for all files made on the way; those of failing cases are copied to `keep`."""
        self._folder, self._keep = folder, keep
        self._sound = folder / "sound"
        self._sound.mkdir(parents=True)
        self.plans = make_plans(self._sound)
        self._records = make_records(folder / "records.db").read_bytes()
        self._cache = folder / "cache"
        self._ordeals = Ordeals(self._cache)
        self.tally = Tally()

    def close(self) -> None:
        """End the child."""
        self._ordeals.close()

    def run(self, seeds: range, until: float | None = None) -> Tally:
        """Try the cases of these seeds, or as many as there is time for (`until`, of `time.monotonic`)."""
        for seed in seeds:
            if until is not None and time.monotonic() > until:
                break
            self.case(seed)
        return self.tally

    def case(self, seed: int) -> tuple[str, str]:
        """Try one case: the verdict, and words."""
        rng = np.random.default_rng(seed)
        place = self._folder / "case"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        kind = _FILES[int(rng.integers(len(_FILES)))] if rng.random() < _SHARE_OF_FILES else ""
        if kind:
            case = self._other_file(kind, place, rng)
        else:
            kind = list(KINDS)[int(rng.integers(len(KINDS)))]
            case = self._plan(place, KINDS[kind], rng)
        verdict, words = self._ordeals.ask({**case, "seed": seed})
        if kind == "cache" and verdict == REFUSED:
            verdict = WRONG  # the plan is sound, whatever lies in the cache
        self.tally.verdicts[kind, verdict] += 1
        if verdict not in GOOD:
            self.tally.failures.append((seed, kind, verdict, words))
            if self._keep is not None:
                shutil.copytree(place, self._keep / f"{kind}-{seed}".replace(" ", "-"), dirs_exist_ok=True)
        return verdict, words

    def _plan(
        self, place: Path, mutate: Callable[[bytes, np.random.Generator], bytes], rng: np.random.Generator
    ) -> Any:
        plans = [path for path in self.plans if path.stem.startswith("solve")] if mutate is as_calls else self.plans
        if mutate is as_calls and rng.random() < 0.4:  # functions of one operand fit everywhere, others where calls are
            plans = self.plans
        source = plans[int(rng.integers(len(plans)))]
        for side in self._sound.glob(f"{source.stem}.constants-*"):
            shutil.copy(side, place)
        path = place / source.name
        path.write_bytes(mutate(source.read_bytes(), rng))
        return {"trial": "plan", "path": str(path)}

    def _other_file(self, kind: str, place: Path, rng: np.random.Generator) -> Any:
        if kind == "records":
            path = place / "records.db"
            path.write_bytes(as_text(self._records, rng))
            return {"trial": "records", "path": str(path)}
        if kind == "cache":
            self._change_cache(rng)
            return self._plan(place, lambda text, _: text, rng)
        (source,) = (p for p in self.plans if p.name == "table-analytical.json")
        side = next(self._sound.glob("table-analytical.constants-*"))
        shutil.copy(source, place)
        (place / side.name).write_bytes(as_text(side.read_bytes(), rng))
        return {"trial": "plan", "path": str(place / source.name)}

    def _change_cache(self, rng: np.random.Generator) -> None:
        """An object changed, two that trade places, or something that is no file."""
        objects = sorted(p for p in self._cache.rglob("*.o") if p.is_file() and not p.is_symlink())
        if len(objects) < 2:
            return
        first, second = (objects[int(k)] for k in rng.choice(len(objects), 2, replace=False))
        match int(rng.integers(5)):
            case 0:
                kept = first.read_bytes()
                first.write_bytes(second.read_bytes())
                second.write_bytes(kept)
            case 1:
                first.unlink()
                os.mkfifo(first)
            case 2:
                first.unlink()
                first.symlink_to("/dev/zero")
            case 3:
                first.write_bytes(as_text(first.read_bytes(), rng))
            case _:
                first.chmod(0o666)


def check_text(text: bytes, folder: Path) -> tuple[str, str]:
    """The verdict on one plan's text, of whatever machine, whose graph may have been changed; in a child of its own."""
    path = folder / "case.json"
    path.write_bytes(with_digest(text))
    done = subprocess.run(
        [sys.executable, "-m", "autofuse.testing.ordeal"],
        input=json.dumps({"trial": "plan", "path": str(path), "seed": 0, "on_mismatch": "run"}) + "\n",
        capture_output=True,
        check=False,
        text=True,
        timeout=4 * DEADLINE_S,
        env={**os.environ, "AUTOFUSE_CACHE": "off"},
    )
    if not done.stdout:
        return CRASHED, f"exit status {done.returncode}"
    verdict, words = json.loads(done.stdout.splitlines()[0])
    return verdict, words


def main() -> int:
    """Run a campaign and print its tally; 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--keep", type=Path, default=None, help="folder for the files of cases that fail")
    parser.add_argument("--minutes", type=float, default=None, help="end after so long")
    options = parser.parse_args()
    until = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder), options.keep)
        try:
            tally = campaign.run(range(options.seed, options.seed + options.count), until)
        finally:
            campaign.close()
    tried = sum(tally.verdicts.values())
    print(f"seeds {options.seed} to {options.seed + tried - 1}")
    print("\n".join(tally.lines()))
    for seed, kind, verdict, words in tally.failures:
        print(f"seed {seed} ({kind}) {verdict}: {words.strip()[-600:]}")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
