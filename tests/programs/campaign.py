"""Runs the programs of a range of seeds in worker processes and tallies what came of them.

    python -m tests.programs.campaign 0:500 --workers 2 --json tally.json --keep failing/

A worker that dies or hangs costs one seed, which is reported as such; another one goes on behind it.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from tests.programs.checking import Verdict, check_program, policies_of
from tests.programs.coverage import functions_in, supported_functions
from tests.programs.shrinking import shrink
from tests.programs.writer import write_program

PATIENCE_S = 120.0
"""How long one seed may take before its worker is stopped."""


@dataclass(slots=True)
class Tally:
    """What came of many programs."""

    programs: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])
    refusals: Counter[str] = field(default_factory=Counter[str])
    """Messages of programs that autofuse refuses and NumPy does not."""
    plans: int = 0
    used: Counter[str] = field(default_factory=Counter[str])
    """Supported functions, by the number of programs that are right and call them."""
    failures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def add(self, seed: int, verdict: Verdict, functions: Sequence[str]) -> None:
        """Count one program."""
        self.programs += 1
        self.kinds[verdict.kind] += 1
        self.plans += verdict.plans
        if verdict.kind == "refused":
            self.refusals[verdict.message] += 1
        if verdict.kind == "right":
            self.used.update(functions)
        if verdict.failed:
            self.failures.append({"seed": seed, **asdict(verdict)})

    @property
    def unused(self) -> list[str]:
        """Supported functions that no program was right with."""
        return sorted(supported_functions() - self.used.keys())

    def json(self) -> dict[str, Any]:
        """All of it, for a file."""
        return {
            "programs": self.programs,
            "kinds": dict(self.kinds),
            "plans": self.plans,
            "supported": len(supported_functions()),
            "unused": self.unused,
            "used": dict(self.used.most_common()),
            "refusals": dict(self.refusals.most_common()),
            "failures": sorted(self.failures, key=lambda failure: failure["seed"]),
        }


def run_seeds(
    seeds: Sequence[int],
    workers: int = 2,
    keep: Path | None = None,
    seconds: float = math.inf,
    report: Callable[[int, Verdict], None] = lambda seed, verdict: None,
    compiled: bool = True,
) -> Tally:
    """Run the programs of some seeds, and count. Failing ones are made small and written to `keep`.

    `compiled`: whether plans are made too; without, the front end and the interpreter are tried, a few times as fast.
    `seconds`: when to stop; the tally then says how many there were time for. `report` is told of each program.
    """
    tally = Tally()
    end = monotonic() + seconds
    shares = [list(seeds[number::workers]) for number in range(workers)]
    running = [_Worker(share, keep, compiled) for share in shares if share]
    while running:
        if monotonic() > end:
            for worker in running:
                worker.stop()
            break
        patience = min(PATIENCE_S, max(end - monotonic(), 0.0))
        ready = multiprocessing.connection.wait([worker.receiver for worker in running], patience)
        if not ready and patience < PATIENCE_S:
            continue
        for worker in running:
            if worker.receiver in ready or not ready:
                for seed, verdict, functions in worker.news(stuck=not ready):
                    tally.add(seed, verdict, functions)
                    report(seed, verdict)
        running = [worker for worker in running if not worker.done]
    return tally


class _Worker:
    """A process that goes through a list of seeds, and its successors where it dies."""

    def __init__(self, seeds: list[int], keep: Path | None, compiled: bool) -> None:
        self._left = seeds
        self._keep = keep
        self._compiled = compiled
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(self._left, sender, self._keep, self._compiled))
        self._process.start()
        sender.close()

    @property
    def done(self) -> bool:
        return not self._left

    def stop(self) -> None:
        self._process.kill()
        self._process.join()

    def news(self, stuck: bool) -> Iterator[tuple[int, Verdict, Sequence[str]]]:
        """What came of the next seed."""
        try:
            if stuck:
                raise EOFError
            news = self.receiver.recv()
            self._left.pop(0)
            if self.done:
                self._process.join()
            yield news
        except EOFError:
            self.stop()
            words = f"took longer than {PATIENCE_S:.0f} s" if stuck else f"exit code {self._process.exitcode}"
            yield self._left.pop(0), Verdict("raw", "process", f"the process ended: {words}"), ()
            if self._left:
                self._start()


def _work(seeds: list[int], sender: Any, keep: Path | None, compiled: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="autofuse-programs-") as folder:
        for seed in seeds:
            sender.send(run_seed(seed, Path(folder), keep, compiled))


def run_seed(
    seed: int, folder: Path, keep: Path | None = None, compiled: bool = True
) -> tuple[int, Verdict, Sequence[str]]:
    """The verdict on the program of a seed, and the supported functions it calls."""
    text = write_program(seed)
    policies = policies_of(seed) if compiled else ()
    verdict = check_program(text, folder, policies)
    if verdict.failed and keep is not None:
        small = shrink(text, folder, verdict, policies)
        now = check_program(small, folder, policies)
        (keep / f"seed_{seed}.py").write_text(f"{small.text}\n# {now.kind}, {now.where}: {now.message!r}\n")
    return seed, verdict, sorted(functions_in(text))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; the exit code says whether a program failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.campaign", description=__doc__.splitlines()[0])
    parser.add_argument("seeds", help="BEGIN:END, the end left out; or one seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, help="folder that gets the failing programs, made small")
    parser.add_argument("--interpreted", action="store_true", help="make no plans: the front end alone")
    parser.add_argument("--seconds", type=float, default=math.inf, help="when to stop, done or not")
    parser.add_argument("--json", type=Path, help="file that gets the tally; by default it is printed")
    given = parser.parse_args(arguments)
    begin, _, end = given.seeds.partition(":")
    seeds = range(int(begin), int(end) if end else int(begin) + 1)
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    tally = run_seeds(seeds, given.workers, given.keep, given.seconds, _print_failure, not given.interpreted)
    text = json.dumps(tally.json(), indent=1)
    if given.json is None:
        print(text)
    else:
        given.json.write_text(text)
        print(f"{tally.programs} programs, {tally.plans} plans: {dict(tally.kinds)}")
    return 1 if tally.failures else 0


def _print_failure(seed: int, verdict: Verdict) -> None:
    if verdict.failed:
        print(f"seed {seed}: {verdict.kind}, {verdict.where}: {verdict.message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
