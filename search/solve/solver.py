"""The cheapest set of kernels that computes the outputs.

Candidates that two smaller ones replace for no more are left out (`dominance.py`). The rest make a binary program
(`coverprogram.py`). Where it is small, branch and bound solves it (`branching.py`), else HiGHS does. The selection may
be circular: two kernels that need one another. Then a row that forbids this is added, and the program is solved again,
until the kernels can run one after the other.

A large program is narrowed first, to the kernels that a cheapest selection may run.

A graph in segments is a program for each of them: what others need of a segment is an output that it must make, what it
reads of earlier ones is there. Where no kernel crosses a cut that is the same problem, in parts. Equal programs, number
by number, are solved once. Another cover than given ones differs from the cheapest in one kind of segment.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Hashable, Sequence

from autofuse.errors import SearchError
from autofuse.fusion.atoms import AtomGraph
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass
from autofuse.search.prices.priced import Priced
from autofuse.search.solve.coverprogram import (
    LEAST_S,
    CoverProgram,
    MemoryConstraint,
    ranks,
    reads_of,
)
from autofuse.search.solve.dominance import undominated
from autofuse.search.solve.topological_order import Run, in_topological_order
from autofuse.search.space.candidates import Candidate
from autofuse.search.space.segments import Segment, homes

_LARGE = 2000
"""Candidates from which on the program is narrowed."""
_NARROW_SHARE = 0.3
"""Of the time: for the good selection."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """One kernel of a solution."""

    candidate: Candidate
    outputs: tuple[Value, ...]
    """What it writes: its candidate's outputs less those that nobody needs or that an earlier kernel wrote."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A partition and what is known about it."""

    kernels: tuple[Chosen, ...]
    """In a running order."""
    price_us: float
    bound_us: float
    """No partition of the space is cheaper under these prices."""
    optimal: bool
    """Whether the search ended before its deadline."""
    segments: int = 1
    """Parts that were solved by themselves. With more than one, `bound_us` and `optimal` are about partitions in which
    no kernel crosses a cut."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What was found for one program."""

    runs: list[Run]
    """In running order."""
    bound_us: float
    optimal: bool


Solve = Callable[..., Solution]
"""What finds the cheapest cover: `solve`, or the like with demands of its own."""

_Solved = dict[Hashable, tuple[CoverProgram, _Answer]]
"""By the mark of segments: the program of the first of them, and what was found for it."""


def solve(
    graph: AtomGraph,
    priced: Sequence[Priced],
    deadline_s: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
    unlike: Sequence[Collection[str]] = (),
    segments: Sequence[Segment] = (),
    constraints: Sequence[MemoryConstraint] = (),
) -> Solution:
    """Find the cheapest cover. Raises SearchError if the candidates cannot compute the outputs.

    `unlike`: sets of digests, such as those of other covers; of each set at least one is to have no kernel.
    `constraints`: limits on what exists; one that the deadline does not leave time for may be broken, the others not.
    `segments`: parts of the graph to be solved one by one, without the candidates that cross a cut; `constraints` are
    then refused, since they are about all of them, and a cover `unlike` others is the cheapest one but for one segment
    and those that are equal to it. () solves the graph whole.
    A deadline that passes gives the best solution so far with `optimal=False`; failing one, every value that is still
    missing is made by the cheapest kernel that can make it.
    """
    start = clock()
    if not graph.atoms:
        return Solution((), 0.0, 0.0, True)
    if len(segments) > 1 and constraints:
        raise SearchError("a program in segments has no rows on what exists in all of them")
    kept = priced if unlike or constraints else undominated(graph, priced)
    programs = programs_of(graph, kept, segments)
    if len(programs) > 1:
        return _solve_segments(graph, kept, programs, start, deadline_s, clock, unlike)
    programs[0][0].demand(unlike, constraints)
    return _solve_whole(programs[0][0], start, deadline_s, clock)


def lower_bound(graph: AtomGraph, priced: Sequence[Priced], segments: Sequence[Segment] = ()) -> float:
    """What no partition can cost less than: the relaxed program, without whole numbers. Fast, and never timed out.

    `segments`: as for `solve`; then no partition in which no kernel crosses a cut.
    """
    if not graph.atoms:
        return 0.0
    known: dict[Hashable, float] = {}
    total = 0.0
    for program, _ in programs_of(graph, priced, segments):
        mark = program.mark()
        if mark not in known:
            result = program.run(math.inf, relaxed=True)
            known[mark] = max(0.0, result.cost) if result.optimal else 0.0
        total += known[mark]
    return total


def _solve_whole(program: CoverProgram, start: float, deadline_s: float, clock: Callable[[], float]) -> Solution:
    answer = _answer(program, deadline_s, start + deadline_s, clock)
    kernels = tuple(Chosen(program.priced[run.number].candidate, run.writes) for run in answer.runs)
    price = program.price(answer.runs)
    return Solution(kernels, price, min(answer.bound_us, price), answer.optimal)


def _answer(program: CoverProgram, seconds: float, until: float, clock: Callable[[], float]) -> _Answer:
    """Solve, forbidding circles as they are met, for about so many seconds, which end at `until`."""
    known = program.cheapest() if len(program.priced) < _LARGE else None
    if known is not None:
        return _Answer(known, program.price(known), optimal=True)
    whole: list[list[Run]] = []
    """Selections that compute the outputs, met on the way."""
    if len(program.priced) >= _LARGE:
        whole += program.narrow(_NARROW_SHARE * seconds)
    bound = 0.0
    while True:
        left = until - clock()
        result = program.run(max(left, LEAST_S))
        bound = max(bound, result.bound)
        if result.x is None and not result.late:
            raise SearchError(f"no set of candidates computes the outputs: {program.uncovered() or result.message}")
        order, stuck = program.ordered([] if result.x is None else program.runs(result.x))
        split = result.x is not None and not stuck and program.split_writes(order, result.cost)
        if result.x is not None and not stuck:
            whole.append(order)
        if result.optimal and not stuck and not split:
            return _Answer(order, bound, optimal=True)
        if left <= 0 or result.x is None:
            break
        if stuck:
            program.add_lazy_constraint(stuck)
        elif result.optimal:
            program.whole_writes = True
        else:
            break
    return _Answer(min(whole or [program.completed(order)], key=program.price), bound, optimal=False)


def _solve_segments(
    graph: AtomGraph,
    priced: Sequence[Priced],
    programs: Sequence[tuple[CoverProgram, Sequence[int]]],
    start: float,
    deadline_s: float,
    clock: Callable[[], float],
    unlike: Sequence[Collection[str]],
) -> Solution:
    """Each segment by itself, equal ones once; those that are left share the time that is left.

    Another cover takes one half of the time, finding the cheapest one the other.
    """
    end = start + deadline_s
    marks: list[Hashable] = [program.mark() for program, _ in programs]
    waiting = len(set(marks))
    solved: _Solved = {}
    for (program, _), mark in zip(programs, marks, strict=True):
        if mark not in solved:
            program.demand((), ())
            now = clock()
            share = (end - now) / waiting / (2 if unlike else 1)
            solved[mark] = program, _answer(program, share, now + share, clock)
            waiting -= 1
    optimal = all(answer.optimal for _, answer in solved.values()) and not unlike
    bound = sum(min(solved[mark][1].bound_us, _price(solved, mark)) for mark in marks)
    if unlike:
        solved = _changed(programs, marks, solved, unlike, end, clock)
    selection = [
        Run(numbers[run.number], reads_of(graph, priced[numbers[run.number]].candidate), run.writes)
        for (program, numbers), mark in zip(programs, marks, strict=True)
        for run in _carried(program, solved, mark)
    ]
    order, stuck = in_topological_order(selection, ranks(priced))
    assert not stuck, "segments read from earlier ones only"
    kernels = tuple(Chosen(priced[run.number].candidate, run.writes) for run in order)
    price = sum(_price(solved, mark) for mark in marks)
    return Solution(kernels, price, min(bound, price), optimal, len(programs))


def _price(solved: _Solved, mark: Hashable) -> float:
    program, answer = solved[mark]
    return program.price(answer.runs)


def _carried(program: CoverProgram, solved: _Solved, mark: Hashable) -> list[Run]:
    """What was found for the first segment of a mark, in another one."""
    first, answer = solved[mark]
    return program.carried_over(first, answer.runs)


def _changed(
    programs: Sequence[tuple[CoverProgram, Sequence[int]]],
    marks: Sequence[Hashable],
    solved: _Solved,
    unlike: Sequence[Collection[str]],
    end: float,
    clock: Callable[[], float],
) -> _Solved:
    """Another solution for those segments, equal ones alike, where one unlike the others costs the least more.

    Raises SearchError if no segment has one.
    """
    alike: dict[Hashable, list[CoverProgram]] = {mark: [] for mark in solved}
    for (program, _), mark in zip(programs, marks, strict=True):
        alike[mark].append(program)

    def used(found: _Solved, mark: Hashable) -> set[str]:
        """The classes of the kernels in all segments of a mark."""
        return {p.priced[run.number].candidate.digest for p in alike[mark] for run in _carried(p, found, mark)}

    classes = {mark: used(solved, mark) for mark in solved}
    best, least = None, math.inf
    for number, (mark, (program, answer)) in enumerate(solved.items()):
        outside = set[str]().union(*(own for other, own in classes.items() if other != mark))
        here = [{p.candidate.digest for p in own.priced} for own in alike[mark]]
        rests = [set(digests) - outside for digests in unlike]
        wanted = [rest & here[0] for rest in rests if rest and rest <= set[str]().union(*here)]
        if not all(rests) or not all(wanted):
            continue
        fresh = CoverProgram(program.graph, program.priced, program.atoms)
        fresh.demand(wanted, ())
        now = clock()
        share = (end - now) / (len(solved) - number)
        try:
            found = fresh, _answer(fresh, share, now + share, clock)
        except SearchError:
            continue
        changed = {**solved, mark: found}
        more = len(alike[mark]) * (_price(changed, mark) - program.price(answer.runs))
        if more < least and not any((outside | used(changed, mark)).issuperset(digests) for digests in unlike):
            best, least = changed, more
    if best is None:
        raise SearchError("no set of candidates that is unlike the others computes the outputs")
    return best


def programs_of(
    graph: AtomGraph, priced: Sequence[Priced], segments: Sequence[Segment]
) -> list[tuple[CoverProgram, Sequence[int]]]:
    """The program of each segment, and the numbers of its candidates; those that cross a cut are in none."""
    if len(segments) < 2:
        return [(CoverProgram(graph, priced, graph.atoms), range(len(priced)))]
    home = homes(segments)
    numbers: list[list[int]] = [[] for _ in segments]
    for number, p in enumerate(priced):
        touched = {home[atom] for atom in p.candidate.atoms}
        if len(touched) == 1:
            numbers[touched.pop()].append(number)
    return [
        (CoverProgram(graph, [priced[n] for n in inside], segment), inside)
        for segment, inside in zip(segments, numbers, strict=True)
    ]
