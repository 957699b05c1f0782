"""The cheapest set of kernels that computes the outputs, as a binary program solved by HiGHS.

Variables: x_S (binary) runs candidate S; y_{S,v} in 0..1 writes an output of S that S itself may leave out; m_v in
0..1: value v is in memory. Minimise sum price_S x_S + sum write y. Rows:

    x_S <= m_v                     for each input v of S made by another kernel
    y_{S,v} <= x_S
    m_v <= sum of writers          (x_S for the values S always writes, y_{S,v} for the optional ones)
    m_o = 1                        for outputs of the graph
    sum over S containing a of x_S >= 1                          for each atom a that must run
    m_u + sum over S containing maker(u) and w of x_S >= 1       for each edge maker(u) -> w

The last two families follow from the others for whole numbers, but without them the relaxation is so weak that a few
layers of a transformer do not close. A selection may still be circular (two kernels that need one another); then a cut
is added for the values that nobody can provide, and the program is solved again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from autofuse.errors import SearchError
from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.ir.graph import Value
from autofuse.search.space import Candidate


@dataclass(frozen=True, slots=True)
class Priced:
    """A candidate with its price."""

    candidate: Candidate
    price_us: float
    """Time of the kernel when it writes its sinks only."""
    write_us: Mapping[Value, float]
    """Extra time for each output that another kernel could recompute instead; outputs not named are in the price."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """One kernel of a solution."""

    candidate: Candidate
    outputs: tuple[Value, ...]
    """What it writes: its required outputs less those that nobody reads."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A partition and what is known about it."""

    kernels: tuple[Chosen, ...]
    """In a running order."""
    price_us: float
    bound_us: float
    """No partition of the space is cheaper under these prices."""
    optimal: bool
    seconds: float
    cuts: int


def solve(graph: AtomGraph, priced: Sequence[Priced], deadline_s: float = 60.0) -> Solution:
    """Find the cheapest cover. Raises SearchError if the candidates cannot compute the outputs.

    A deadline that passes gives the best solution so far with `optimal=False`.
    """
    start = time.monotonic()
    program = _Program(graph, priced)
    while True:
        left = max(deadline_s - (time.monotonic() - start), 0.1)
        result = program.run(left)
        if result.x is None:
            raise SearchError(f"no set of candidates computes the outputs ({result.message})")
        picks = program.picks(result.x)
        stuck = _unavailable(graph, picks)
        if not stuck:
            break
        program.cut(stuck)
        if time.monotonic() - start > deadline_s:
            raise SearchError("the deadline passed before a partition without circles was found; raise the budget")
    picks = _ordered(graph, picks)
    bound = float(result.mip_dual_bound) if result.mip_dual_bound is not None else float(result.fun)
    return Solution(picks, float(result.fun), bound, result.status == 0, time.monotonic() - start, program.cuts)


class _Program:
    """Columns and rows of the binary program."""

    def __init__(self, graph: AtomGraph, priced: Sequence[Priced]) -> None:
        self.graph, self.priced = graph, priced
        self.cuts = 0
        self.cost: list[float] = []
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._data: list[float] = []
        self._lower: list[float] = []
        self.x = [self._column(p.price_us) for p in priced]
        self.y = {(n, v): self._column(c) for n, p in enumerate(priced) for v, c in p.write_us.items()}
        needed = {v for values in graph.reads.values() for v in values if graph.maker(v) is not None}
        self.m = {v: self._column(0.0) for v in graph.value_order(needed | self._outputs())}
        self._writers: dict[Value, list[tuple[int, int]]] = {v: [] for v in self.m}
        self._containing: dict[FusionAtom, list[int]] = {atom: [] for atom in graph.atoms}
        self._index()
        self._availability()
        self._covers()

    def _outputs(self) -> set[Value]:
        return {v for v in self.graph.graph.outputs if self.graph.maker(v) is not None}

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
        for number, p in enumerate(self.priced):
            for value in self._inputs(number):
                self._row({self.m[value]: 1.0, self.x[number]: -1.0}, 0.0)
            for value in p.write_us:
                self._row({self.x[number]: 1.0, self.y[number, value]: -1.0}, 0.0)
        for value, writers in self._writers.items():
            self._row({**{column: 1.0 for _, column in writers}, self.m[value]: -1.0}, 0.0)

    def _covers(self) -> None:
        for atom in self.graph.atoms:
            self._row({self.x[n]: 1.0 for n in self._containing[atom]}, 1.0)
        for value in self.m:
            maker = self.graph.maker(value)
            assert maker is not None
            for reader in self.graph.readers.get(value, ()):
                both = [n for n in self._containing[reader] if maker in self.priced[n].candidate.atoms]
                self._row({self.m[value]: 1.0, **{self.x[n]: 1.0 for n in both}}, 1.0)

    def _inputs(self, number: int) -> list[Value]:
        """Values a candidate reads that other kernels make."""
        atoms = self.priced[number].candidate.atoms
        found: dict[Value, None] = {}
        for atom in atoms:
            for value in self.graph.reads[atom]:
                maker = self.graph.maker(value)
                if maker is not None and maker not in atoms:
                    found[value] = None
        return list(found)

    def run(self, seconds: float) -> Any:
        """Solve the program as it stands."""
        columns = len(self.cost)
        shape = (len(self._lower), columns)
        matrix = csr_array((self._data, (self._rows, self._columns)), shape=shape)
        low = np.zeros(columns)
        for value in self._outputs():
            low[self.m[value]] = 1.0
        integrality = np.zeros(columns)
        integrality[self.x] = 1
        bounds: Any = cast("Any", Bounds)(low, np.ones(columns))
        rows: Any = cast("Any", LinearConstraint)(matrix, np.array(self._lower), np.inf)
        return milp(
            np.array(self.cost),
            integrality=integrality,
            bounds=bounds,
            constraints=rows,
            options={"time_limit": seconds, "mip_rel_gap": 1e-6},
        )

    def picks(self, x: NDArray[Any]) -> list[Chosen]:
        """The kernels of a solution vector; values that nobody reads are not written."""
        values = x
        chosen = [n for n in range(len(self.priced)) if values[self.x[n]] > 0.5]
        read = {v for n in chosen for v in self._inputs(n)} | self._outputs()
        picks: list[Chosen] = []
        for n in chosen:
            candidate = self.priced[n].candidate
            written = [v for v in candidate.outputs if v in read and self._is_written(values, n, v)]
            picks.append(Chosen(candidate, tuple(written)))
        return [pick for pick in picks if pick.outputs]

    def _is_written(self, values: NDArray[Any], number: int, value: Value) -> bool:
        column = self.y.get((number, value))
        return column is None or values[column] > 1e-6

    def cut(self, stuck: set[Value]) -> None:
        """Demand a writer from outside the circle for one of the values that cannot be provided."""
        self.cuts += 1
        for value in stuck:
            outside = [column for n, column in self._writers[value] if not stuck.intersection(self._inputs(n))]
            others = {
                column
                for other in stuck
                for n, column in self._writers[other]
                if not stuck.intersection(self._inputs(n))
            }
            self._row({**dict.fromkeys([*others, *outside], 1.0), self.m[value]: -1.0}, 0.0)


def _unavailable(graph: AtomGraph, picks: Sequence[Chosen]) -> set[Value]:
    """Values that are needed but cannot be made, because their makers wait for one another."""
    done: set[Value] = set()
    todo = list(picks)
    while True:
        ready = [p for p in todo if _missing(graph, p, done) == set()]
        if not ready:
            break
        for pick in ready:
            done |= set(pick.outputs)
            todo.remove(pick)
    missing: set[Value] = set()
    for pick in todo:
        missing |= _missing(graph, pick, done)
    return missing


def _missing(graph: AtomGraph, pick: Chosen, done: set[Value]) -> set[Value]:
    atoms = pick.candidate.atoms
    return {
        value
        for atom in atoms
        for value in graph.reads[atom]
        if graph.maker(value) is not None and graph.maker(value) not in atoms and value not in done
    }


def _ordered(graph: AtomGraph, picks: Sequence[Chosen]) -> tuple[Chosen, ...]:
    done: set[Value] = set()
    todo = list(picks)
    order: list[Chosen] = []
    while todo:
        ready = [p for p in todo if not _missing(graph, p, done)]
        for pick in ready:
            todo.remove(pick)
            order.append(pick)
        for pick in ready:
            done |= set(pick.outputs)
    return tuple(order)
