"""Covers of the outputs by kernels, as a binary program.

Variables: x_S (binary) runs candidate S; y_{S,v} in 0..1 writes an output of S that S itself may leave out; m_v in
0..1: value v is in memory. Minimise sum price_S x_S + sum write y. Rows:

    x_S <= m_v                     for each input v of S made by another kernel; the kernels that write one value only,
                                   the same one, are added up, since no more than one of them is of use
    y_{S,v} <= x_S
    m_v <= sum of writers          (x_S for the values S always writes, y_{S,v} for the optional ones)
    m_o = 1                        for outputs of the graph
    sum over S containing a of x_S >= 1                          for each atom a that must run
    m_u + sum over S containing maker(u) and w of x_S >= 1       for each edge maker(u) -> w

The last two families follow from the others for whole numbers, but without them the relaxation is so weak that a few
layers of a transformer do not close. Likewise without the sums in the first: two halves of kernels would do with half
of what both read. A selection may still be circular (two kernels that need one another). Then the kernels
are put in topological order, U is the set of values that those left over wait for, and for each u in U the row

    m_u <= sum of writers of any v in U that read nothing of U

forbids it: whoever makes the first value of U can have read none of them.

Narrowing: the relaxation gives a lower bound and, for each kernel, the reduced cost: by how much the bound rises if
that kernel runs. A good selection, found among the kernels of small reduced cost, gives an upper bound. No better
selection runs a kernel whose reduced cost exceeds the difference, so these are closed.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import SearchError
from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass
from autofuse.search.prices.priced import Priced
from autofuse.search.solve.branching import cheapest
from autofuse.search.solve.topological_order import Run, completed, in_topological_order, trimmed
from autofuse.search.space.candidates import Candidate
from autofuse.search.space.segments import Segment, leaves

if TYPE_CHECKING:
    from autofuse.search.solve.highs import LinearProgram, Optimum

LEAST_S = 0.1
"""Seconds that each run of HiGHS gets, however late it is."""
_NEAR = 1e-3
"""Kernels whose reduced cost is at most this part of the bound may be in a good selection."""


def minimum(program: LinearProgram, seconds: float) -> Optimum:
    """`highs.minimum`, imported when it is called: small programs do without HiGHS."""
    from autofuse.search.solve import highs

    return highs.minimum(program, seconds)


@dataclass(frozen=True, slots=True)
class MemoryConstraint:
    """A limit on what exists at one moment, in bytes."""

    values: Mapping[Value, int]
    """What each takes if it is in memory."""
    workspaces: Mapping[Candidate, int]
    """What each takes if it runs."""
    at_most: int


class CoverProgram:
    """Columns and rows of the program of a graph, or of a segment of it."""

    def __init__(self, graph: AtomGraph, priced: Sequence[Priced], atoms: Segment) -> None:
        """`priced`: candidates of these atoms only. Values that other atoms make are there."""
        self.graph, self.priced, self.atoms = graph, priced, atoms
        self._inside = frozenset(atoms)
        self._unlike: Sequence[Collection[str]] = ()
        self._demands = False
        """Whether more than a cover is wanted."""
        self.whole_writes = False
        """Whether y is binary. Nearly always the relaxed y comes out whole by itself, and solving is faster."""
        self.cost: list[float] = []
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._data: list[float] = []
        self._lower: list[float] = []
        self.reads = [tuple(v for v in reads_of(graph, p.candidate) if self._is_made(v)) for p in priced]
        self.rank = ranks(priced)
        self.x = [self._column(p.price_us) for p in priced]
        self.closed: NDArray[Any] = np.zeros(len(priced), bool)
        """Kernels that are known not to run."""
        self.y = {(n, v): self._column(c) for n, p in enumerate(priced) for v, c in p.write_us.items()}
        needed = {v for atom in atoms for v in graph.reads[atom] if self._is_made(v)}
        self.outputs = frozenset(v for atom in atoms for v in graph.writes[atom] if leaves(graph, v, self._inside))
        """What the caller or a later segment needs."""
        self.m = {v: self._column(0.0) for v in graph.value_order(needed | self.outputs)}
        self._writers: dict[Value, list[tuple[int, int]]] = {v: [] for v in self.m}
        self._containing: dict[FusionAtom, list[int]] = {atom: [] for atom in atoms}
        self._index()
        self._availability()
        self._covers()

    def mark(self) -> Hashable:
        """Equal for programs that are the same number by number, whatever atoms and values they are about."""
        place = {rank: n for n, rank in enumerate(sorted(set(self.rank)))}
        number = {value: n for n, value in enumerate(self.m)}
        kernels = tuple(
            (place[rank], tuple(number[v] for v in reads), tuple(number.get(v, -1) for v in p.candidate.outputs))
            for rank, reads, p in zip(self.rank, self.reads, self.priced, strict=True)
        )
        outputs = tuple(n for value, n in number.items() if value in self.outputs)
        rows = tuple(self._rows), tuple(self._columns), tuple(self._data), tuple(self._lower)
        return (tuple(self.cost), rows, kernels, outputs)

    def carried_over(self, other: CoverProgram, runs: Sequence[Run]) -> list[Run]:
        """A selection of a program with an equal mark as one of this program."""
        found: list[Run] = []
        for run in runs:
            there, here = (program.priced[run.number].candidate.outputs for program in (other, self))
            writes = tuple(here[there.index(value)] for value in run.writes)
            found.append(Run(run.number, self.reads[run.number], writes))
        return found

    def _is_made(self, value: Value) -> bool:
        """Whether a kernel of this program can make a value."""
        return self.graph.maker(value) in self._inside

    def _column(self, cost: float) -> int:
        self.cost.append(cost)
        return len(self.cost) - 1

    def _row(self, terms: Mapping[int, float], at_least: float) -> None:
        row = len(self._lower)
        for column, value in terms.items():
            self._rows.append(row)
            self._columns.append(column)
            self._data.append(value)
        self._lower.append(at_least)

    def _index(self) -> None:
        for number, p in enumerate(self.priced):
            for atom in p.candidate.atoms:
                self._containing[atom].append(number)
            for value in p.candidate.outputs:
                if value in self._writers:
                    self._writers[value].append((number, self.y.get((number, value), self.x[number])))

    def _availability(self) -> None:
        alike: dict[tuple[Value | int, Value], list[int]] = {}
        for number, p in enumerate(self.priced):
            outputs = p.candidate.outputs
            for value in self.reads[number]:
                alike.setdefault((outputs[0] if len(outputs) == 1 else number, value), []).append(number)
        for (_, value), numbers in alike.items():
            self._row({self.m[value]: 1.0, **{self.x[n]: -1.0 for n in numbers}}, 0.0)
        for number, p in enumerate(self.priced):
            for value in p.write_us:
                self._row({self.x[number]: 1.0, self.y[number, value]: -1.0}, 0.0)
        for value, writers in self._writers.items():
            self._row({**{column: 1.0 for _, column in writers}, self.m[value]: -1.0}, 0.0)

    def _covers(self) -> None:
        for atom in self.atoms:
            self._row({self.x[n]: 1.0 for n in self._containing[atom]}, 1.0)
        for value in self.m:
            maker = self.graph.maker(value)
            assert maker is not None
            for reader in self.graph.readers.get(value, ()):
                if reader not in self._inside:
                    continue
                both = [n for n in self._containing[reader] if maker in self.priced[n].candidate.atoms]
                self._row({self.m[value]: 1.0, **{self.x[n]: 1.0 for n in both}}, 1.0)

    def cheapest(self) -> list[Run] | None:
        """The cheapest selection, in running order, where HiGHS is not needed to find it."""
        if self._demands or not self.priced:
            return None
        found = cheapest(self.priced, self.reads, list(self.m), self.outputs)
        return None if found is None else self.ordered([Run(n, self.reads[n], writes) for n, writes in found])[0]

    def narrow(self, seconds: float) -> list[list[Run]]:
        """Close the kernels that no cheapest selection runs, as far as that can be told in this time.

        Returns the good selection that told it, if one was found.
        """
        relaxed = self.run(max(seconds, LEAST_S), relaxed=True)
        if relaxed.reduced is None:
            return []
        reduced = np.maximum(relaxed.reduced[self.x], 0.0)
        self.closed = reduced > max(_NEAR * relaxed.cost, 1e-9)
        good = self.run(max(seconds, LEAST_S))
        order, stuck = self.ordered([] if good.x is None else self.runs(good.x))
        if good.x is None or stuck:
            self.closed = np.zeros(len(self.x), bool)
            return []
        self.closed = reduced > (self.price(order) - relaxed.cost) * (1 + 1e-6) + 1e-9
        return [order]

    def _bounds(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Of the columns: outputs are made, closed kernels do not run."""
        low, high = np.zeros(len(self.cost)), np.ones(len(self.cost))
        for value in self.outputs:
            low[self.m[value]] = 1.0
        high[np.array(self.x, np.intp)[self.closed]] = 0.0
        return low, high

    def run(self, seconds: float, relaxed: bool = False) -> Optimum:
        """Solve the program as it stands; `relaxed`: kernels may run in parts."""
        from autofuse.search.solve.highs import LinearProgram

        is_whole = np.zeros(len(self.cost), bool)
        is_whole[self.x] = not relaxed
        if self.whole_writes and not relaxed:
            is_whole[list(self.y.values())] = True
        low, high = self._bounds()
        rows = len(self._lower)
        program = LinearProgram(
            cost=np.array(self.cost),
            low=low,
            high=high,
            is_whole=is_whole,
            least=np.array(self._lower),
            starts=np.searchsorted(self._rows, np.arange(rows + 1)).astype(np.int32),  # rows were added in order
            columns=np.array(self._columns, np.int32),
            values=np.array(self._data),
        )
        return minimum(program, seconds)

    def runs(self, x: NDArray[Any]) -> list[Run]:
        """The kernels of a solution vector, with all that they write there."""
        return [self._run(n, x) for n in range(len(self.priced)) if x[self.x[n]] > 0.5]

    def _run(self, number: int, x: NDArray[Any] | None = None) -> Run:
        writes = self.priced[number].candidate.outputs
        if x is not None:
            writes = tuple(v for v in writes if (number, v) not in self.y or x[self.y[number, v]] > 1e-6)
        return Run(number, self.reads[number], tuple(v for v in writes if v in self.m))

    def ordered(self, runs: Sequence[Run]) -> tuple[list[Run], list[Value]]:
        """The kernels of a selection that can run, without what nobody needs, and the values others wait for."""
        order, stuck = in_topological_order(runs, self.rank)
        return (order, stuck) if stuck else (trimmed(order, self.outputs), stuck)

    def completed(self, order: Sequence[Run]) -> list[Run]:
        """A selection that computes the outputs, from one that does not. Raises SearchError if there is none."""
        runs = sorted((self._run(n) for n in range(len(self.priced))), key=lambda run: self.price([run]))
        writers: dict[Value, list[Run]] = {value: [] for value in self.m}
        for run in runs:
            for value in run.writes:
                writers[value].append(run)
        longer = completed(order, list(self.m), writers)
        found = trimmed(longer, self.outputs)
        if not self.outputs.issubset(value for run in found for value in run.writes) or not self._keeps_demands(found):
            raise SearchError("the deadline passed before any partition was found; raise the budget")
        return found

    def _keeps_demands(self, runs: Sequence[Run]) -> bool:
        """Whether a selection that is not of the program has what was demanded, limits on memory aside."""
        used = {self.priced[run.number].candidate.digest for run in runs}
        return not any(used.issuperset(digests) for digests in self._unlike)

    def price(self, runs: Iterable[Run]) -> float:
        """What a selection costs."""
        return sum(
            self.priced[run.number].price_us + sum(self.priced[run.number].write_us.get(v, 0.0) for v in run.writes)
            for run in runs
        )

    def split_writes(self, order: Sequence[Run], fun: float) -> bool:
        """Whether the relaxation paid only for parts of some writes, so that a real selection costs more."""
        return not self.whole_writes and self.price(order) > fun + 1e-6 * max(1.0, abs(fun))

    def add_lazy_constraint(self, stuck: Sequence[Value]) -> None:
        """Demand that somebody who reads none of the `stuck` values makes the first of them."""
        waiting = set(stuck)
        first = {c: 1.0 for v in stuck for n, c in self._writers[v] if waiting.isdisjoint(self.reads[n])}
        for value in stuck:
            self._row({**first, self.m[value]: -1.0}, 0.0)

    def demand(self, unlike: Sequence[Collection[str]], constraints: Sequence[MemoryConstraint]) -> None:
        """Add the rows of what the caller of `solve` wants beside a cover."""
        self._unlike, self._demands = unlike, bool(unlike or constraints)
        for digests in unlike:
            self.leave_out_one_of(digests)
        for constraint in constraints:
            self.keep_within(constraint)

    def leave_out_one_of(self, digests: Collection[str]) -> None:
        """Demand that of these classes at least one has no kernel."""
        used = {digest: self._column(0.0) for digest in sorted(digests)}
        for number, priced in enumerate(self.priced):
            if priced.candidate.digest in used:
                self._row({used[priced.candidate.digest]: 1.0, self.x[number]: -1.0}, 0.0)
        self._row(dict.fromkeys(used.values(), -1.0), 1.0 - len(used))

    def keep_within(self, constraint: MemoryConstraint) -> None:
        """Demand that values and kernels together take no more than a constraint allows."""
        taken = {self.m[value]: nbytes for value, nbytes in constraint.values.items() if value in self.m}
        for number, priced in enumerate(self.priced):
            if priced.candidate in constraint.workspaces:
                taken[self.x[number]] = constraint.workspaces[priced.candidate]
        unit = max(taken.values(), default=1)
        self._row({column: -nbytes / unit for column, nbytes in taken.items()}, -constraint.at_most / unit)

    def uncovered(self) -> str:
        """An atom that no candidate computes, in words; empty if there is none."""
        lost = next((atom for atom, numbers in self._containing.items() if not numbers), None)
        return "" if lost is None else f"none computes {lost}"


def reads_of(graph: AtomGraph, candidate: Candidate) -> tuple[Value, ...]:
    """Values a candidate reads that other kernels make."""
    ordered = sorted(candidate.atoms, key=lambda atom: atom.number)
    read = dict.fromkeys(value for atom in ordered for value in graph.reads[atom])
    makers = {value: graph.maker(value) for value in read}
    return tuple(v for v, maker in makers.items() if maker is not None and maker not in candidate.atoms)


def ranks(priced: Iterable[Priced]) -> list[int]:
    """By when their last atom stands in the program, the order in which kernels that could run do."""
    return [max(atom.number for atom in p.candidate.atoms) for p in priced]
