"""Kernels of every kind under schedules drawn at random, as a plan file may hold them.

    python -m autofuse.testing.schedulefuzz --count 4000 --seed 0 [--minutes 3]

What the search could choose is accepted, all else refused by the name of its decision, and whatever code can be
generated for is right and touches no memory but its own. The seed of a case names it: `--count 1 --seed N` tries it
alone. Each case is tried in a child process, which may die of it (`autofuse.testing.ordeal`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import AutofuseError, PlanError
from autofuse.fusion.atoms import AtomGraph
from autofuse.ir.interpreter import interpret
from autofuse.lower.decisions import Decisions
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.plan.codec import decode, encode, to_text
from autofuse.plan.document import PlanDocument
from autofuse.runtime.kernels import LoweredKernel, lower_as_scheduled, lower_plan
from autofuse.targets.cpu.decisions import CPU_DECISIONS, cpu_decisions, cpu_schedule
from autofuse.targets.cpu.executable import CpuExecutable, build_executable
from autofuse.targets.cpu.identity import host_cpu_identity
from autofuse.testing.devices import server
from autofuse.testing.fusions import LIMITS, random_partition
from autofuse.testing.guarded import Apart, guarded_copy, run_guarded
from autofuse.testing.kernelkinds import KINDS, Draw
from autofuse.testing.mutations import DECISIONS, WILD_SCHEDULE
from autofuse.testing.ordeals import GOOD, Ordeals

Array = NDArray[Any]
Drawn = dict[str, Any]
"""A schedule as a file holds it."""

CHOSEN, ODD, WILD = "chosen", "odd", "wild"
SORTS = (CHOSEN, WILD, ODD, WILD)
"""Schedules of values that the search has for the kernel, of values that code can be generated for, and of any, which
mostly are refused."""


@dataclass(frozen=True, slots=True)
class Case:
    """A plan with a schedule for each of its kernels."""

    kind: str
    """Of `KINDS`."""
    sort: str
    """Of `SORTS`."""
    document: PlanDocument
    """Under default schedules."""
    programs: tuple[TileProgram | OpaqueProgram, ...]
    """Its kernels, as the search sees them."""
    schedules: tuple[Drawn, ...]
    inputs: tuple[Array, ...]


def kind_and_sort(seed: int) -> tuple[str, str]:
    """Of a case: they take turns."""
    number = seed % len(KINDS)
    return list(KINDS)[number], SORTS[(number + seed // len(KINDS)) % len(SORTS)]


def case_of(seed: int) -> Case:
    """The case that a seed names."""
    from autofuse.api.programs import traced_program  # imports all there is
    from autofuse.frontend.traced import trace
    from autofuse.search.plans.planning import plan_document

    rng = np.random.default_rng(seed)
    kind, sort = kind_and_sort(seed)
    function, arrays = KINDS[kind](Draw(rng))
    program = traced_program(trace(function, *arrays))
    atoms = AtomGraph(program.graph)
    kernels = random_partition(atoms, rng)
    document = plan_document(program, atoms, kernels, (), host_cpu_identity(server(LIMITS.workers)))
    programs = tuple(chosen.candidate.program for chosen in kernels)
    return Case(kind, sort, document, programs, tuple(drawn(sort, one, rng) for one in programs), tuple(arrays))


def drawn(sort: str, program: TileProgram | OpaqueProgram, rng: np.random.Generator) -> Drawn:
    """A schedule of a sort for a kernel."""
    if sort == WILD and rng.random() < 0.2:
        return dict(WILD_SCHEDULE)
    choices: Mapping[str, Sequence[Any]]
    if sort == CHOSEN:
        choices = tried(cpu_decisions(int(rng.choice((256, 512)))), program)
    else:
        choices = {name: [v for v in values if sort == WILD or in_range(name, v)] for name, values in DECISIONS.items()}
    names = [name for name in choices if rng.random() < 0.5]
    if choices and rng.random() < 0.5:  # one decision alone: a second one must not hide what becomes of it
        names = [list(choices)[int(rng.integers(len(choices)))]]
    return {name: choices[name][int(rng.integers(len(choices[name])))] for name in names}


def in_range(name: str, value: Any) -> bool:
    """Whether a schedule may hold a decision, whatever the kernel."""
    try:
        cpu_schedule(**{name: value})
    except PlanError:
        return False
    return True


def not_choosable(case: Case) -> set[str]:
    """Where decisions lie that the search cannot make: `kernels[0].schedule.split`."""
    return {
        f"kernels[{number}].schedule.{name}"
        for number, (program, schedule) in enumerate(zip(case.programs, case.schedules, strict=True))
        for name, value in schedule.items()
        if not in_range(name, value)
        or (value != CPU_DECISIONS.by_name[name].default and value not in tried(CPU_DECISIONS, program).get(name, ()))
    }


def tried(decisions: Decisions, program: TileProgram | OpaqueProgram) -> dict[str, tuple[Any, ...]]:
    """The values that the search has for a kernel, by name."""
    return {decision.name: values for decision, values in decisions.choices(program).items()}


# ---- what becomes of a case --------------------------------------------------------------------------------------


def try_case(case: Case) -> bool:
    """Read the case as a plan file, and run what can be run. Returns whether anything ran.

    Raises AssertionError for a verdict that is none, WrongAnswerError, TouchedError; and may end the process.
    """
    encoded = encode(case.document)
    data = json.loads(to_text(encoded, None))
    for kernel, schedule in zip(data["kernels"], case.schedules, strict=True):
        kernel["schedule"] = schedule
    foreign = not_choosable(case)
    document, kernels = None, None
    try:
        document = decode(json.dumps(data), encoded.constants)
        kernels = lower_plan(document, LIMITS)
    except PlanError as refusal:
        _require_named(refusal, foreign)
    else:
        if foreign:
            raise AssertionError(f"accepted, though the search could not choose {', '.join(sorted(foreign))}")
    if document is None:
        return False
    _run(document, kernels or lower_as_scheduled(document, LIMITS), case.inputs)
    return True


def run_under(case: Case, schedule: Schedule) -> None:
    """Run the case's kernels under one schedule, whatever a plan may hold. Raises as `try_case`."""
    kernels = tuple(replace(kernel, schedule=schedule) for kernel in case.document.kernels)
    document = replace(case.document, kernels=kernels)
    _run(document, lower_as_scheduled(document, LIMITS), case.inputs)


def _require_named(refusal: PlanError, foreign: Collection[str]) -> None:
    named = re.search(r"kernels\[\d+\]\.schedule\.\w+", str(refusal))
    if named is None or named.group() not in foreign:
        raise AssertionError(f"refused what the search could choose, or without its name: {refusal}") from refusal


def _run(document: PlanDocument, kernels: tuple[LoweredKernel, ...], inputs: Sequence[Array]) -> None:
    graph = document.graph
    with np.errstate(all="ignore"):
        expected, bounds = interpret(graph, *inputs), bounds_of(graph, inputs)
    apart = Apart()
    try:
        executable = build_executable(document, LIMITS, kernels=kernels, arrange=apart)
    except AutofuseError as error:
        raise AssertionError(f"accepted, and then: {error}") from error
    ways = {
        "guards behind": lambda: run_guarded(executable, apart, inputs, at_end=True),
        "guards before": lambda: run_guarded(executable, apart, inputs, at_end=False),
        "as called": lambda: _called(executable, inputs),
    }
    for way, outputs in ways.items():
        for value, output, right, bound in zip(graph.outputs, outputs(), expected, bounds, strict=True):
            check(f"%{value.name}, {way}", output, right, bound)


def _called(executable: CpuExecutable, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """On two threads, into fresh arrays, arguments guarded."""
    given = [guarded_copy(array) for array in inputs]
    outputs = executable.run([array for array, _ in given])
    for number, (_, memory) in enumerate(given):
        memory.check(f"argument {number}")
    return outputs


# ---- many cases --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Fuzz:
    """Tries the cases of seeds, one after another, in a child."""

    ordeals: Ordeals
    tally: Counter[tuple[str, str]]
    """By sort and verdict."""
    failures: list[str]
    """A line for each case that is not good."""

    def run(self, seeds: range, until: float | None = None) -> int:
        """Try these seeds, or as many as there is time for (`until`, of `time.monotonic`); how many were tried."""
        for count, seed in enumerate(seeds):
            if until is not None and time.monotonic() > until:
                return count
            verdict, words = self.ordeals.ask({"trial": "schedules", "seed": seed})
            kind, sort = kind_and_sort(seed)
            self.tally[sort, verdict] += 1
            if verdict not in GOOD:
                self.failures.append(f"seed {seed} ({kind}, {sort}) {verdict}: {words.strip()[-800:]}")
        return len(seeds)


@contextlib.contextmanager
def fuzz() -> Generator[Fuzz]:
    """A `Fuzz` whose child ends with the block."""
    ordeals = Ordeals()
    try:
        yield Fuzz(ordeals, Counter(), [])
    finally:
        ordeals.close()


def main() -> int:
    """Try cases and print what became of them; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--minutes", type=float, default=None, help="end after so long")
    options = parser.parse_args()
    until = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    with fuzz() as cases:
        tried = cases.run(range(options.seed, options.seed + options.count), until)
    print(f"seeds {options.seed} to {options.seed + tried - 1}")
    for (sort, verdict), count in sorted(cases.tally.items()):
        print(f"{sort:<8}{count:>7} {verdict}")
    print("\n".join(cases.failures))
    return 1 if cases.failures else 0


if __name__ == "__main__":
    sys.exit(main())
