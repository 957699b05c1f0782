"""Small programs of one-operation atoms with priced kernels, and a search for the cheapest cover without tricks."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.ir.builder import GraphBuilder
from autofuse.ir.dtypes import F32
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import TileProgram
from autofuse.search.prices.priced import Priced
from autofuse.search.solve.solver import Solution
from autofuse.search.space.builder import SpaceBuilder
from autofuse.search.space.candidates import Candidate
from autofuse.search.space.enumeration import enumerated
from autofuse.testing.fusions import LIMITS
from autofuse.testing.graphs import random_graph

Case = tuple[AtomGraph, list[Priced]]
"""A program and the kernels that there are for it."""

VECTOR = TensorType((8,), F32)
_NO_PROGRAM = TileProgram("none", (), (), Schedule())


def graph_of(reads: Sequence[Sequence[int]], outputs: Iterable[int]) -> AtomGraph:
    """Atom n adds what `reads[n]` lists: numbers of earlier atoms, or -1 for the graph's input."""
    build = GraphBuilder("random")
    x = build.input(VECTOR, "x")
    values: list[Value] = []
    for number, sources in enumerate(reads):
        operands = [x if source < 0 else values[source] for source in sources]
        op = "tanh" if len(operands) == 1 else "add"
        values.append(build.emit(op, operands, name=f"v{number}"))
    return AtomGraph(build.finish([values[n] for n in outputs]), contract=False)


def candidate_of(graph: AtomGraph, numbers: Collection[int], outputs: tuple[Value, ...] | None = None) -> Candidate:
    """The candidate of atoms by number; by default it writes all that others may need."""
    atoms = frozenset(graph.atoms[n] for n in numbers)
    outputs = graph.required_outputs(atoms) if outputs is None else outputs
    return Candidate(atoms, graph.candidate(atoms, outputs), str(sorted(numbers)), _NO_PROGRAM)


def priced(
    graph: AtomGraph, numbers: Collection[int], price: float, writes: Mapping[int, float] | None = None
) -> Priced:
    """A priced candidate; `writes`: price by atom number of the outputs that it may leave out."""
    values = {graph.atoms[n].nodes[0].output: us for n, us in (writes or {}).items()}
    return Priced(candidate_of(graph, numbers), price, values)


def chain_of(length: int, price: Callable[[int], float] = lambda _: 1.0) -> Case:
    """A chain, with a kernel for each atom and one for each two neighbours, a quarter cheaper than both."""
    graph = graph_of([[n - 1] for n in range(length)], [length - 1])
    single = [priced(graph, {n}, price(n)) for n in range(length)]
    return graph, [*single, *(priced(graph, {n, n + 1}, 0.75 * (price(n) + price(n + 1))) for n in range(length - 1))]


def random_case(seed: int, most: int = 8) -> Case:
    """A random graph of up to `most` atoms, with several outputs and unconnected parts, and a random space of kernels.

    Kernels overlap, so that values are computed more than once; some compute a value only for themselves; some are
    unconnected; and some need one another.
    """
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, most + 1))
    reads = [[int(s) for s in rng.integers(-1, n, size=int(rng.integers(1, 3)))] if n else [-1] for n in range(count)]
    sinks = [n for n in range(count) if not any(n in sources for sources in reads)]
    outputs = sinks + [n for n in range(count) if n not in sinks and rng.random() < 0.2]
    graph = graph_of(reads, outputs)
    sets = [{n} for n in range(count) if rng.random() < 0.9]
    sets += [{n for n in range(count) if rng.random() < 0.5} for _ in range(int(rng.integers(0, 16)))]
    candidates: list[Priced] = []
    for numbers in sets:
        written = _some_outputs(graph, numbers, rng) if numbers else ()
        if not written:
            continue
        inner = {v for n in numbers for v in graph.reads[graph.atoms[n]]} - set(graph.graph.outputs)
        optional = [v for v in written if v in inner and rng.random() < 0.8]
        # few distinct prices, so that ties and kernels for nothing occur too
        scale = 1.0 if seed % 2 else float(rng.uniform(0.5, 2))
        writes = {v: float(rng.integers(0, 4)) * scale for v in optional}
        candidates.append(Priced(candidate_of(graph, numbers, written), float(rng.integers(1, 9)) * scale, writes))
    return graph, candidates


def _some_outputs(graph: AtomGraph, numbers: Collection[int], rng: np.random.Generator) -> tuple[Value, ...]:
    """What a kernel writes: all that others may need or, where it waits for what is made from it, less than that."""
    atoms = frozenset(graph.atoms[n] for n in numbers)
    left: Collection[Value] = graph.left_to_others(atoms) if rng.random() < 0.5 else ()
    return tuple(value for value in graph.required_outputs(atoms) if value not in left)


def real_case(seed: int, most: int = 8) -> Case | None:
    """A random program of up to `most` atoms with the kernels that the search has for it; None for a larger one."""
    rng = np.random.default_rng(seed)
    graph = AtomGraph(random_graph(rng, 10))
    if len(graph.atoms) > most:
        return None
    candidates: list[Priced] = []
    for candidate in enumerated(SpaceBuilder(graph, LIMITS)).candidates:
        inner = {v for atom in candidate.atoms for v in graph.reads[atom]} - set(graph.graph.outputs)
        writes = {v: float(rng.uniform(0, 2)) for v in candidate.outputs if v in inner}
        candidates.append(Priced(candidate, float(rng.uniform(1, 4)) + 0.2 * len(candidate.atoms), writes))
    return graph, candidates


def brute_force(graph: AtomGraph, candidates: Sequence[Priced]) -> float | None:
    """The price of the cheapest way to make the outputs, by a shortest path over sets of values in memory.

    None if there is no way.
    """
    made = graph.value_order(v for a in graph.atoms for v in graph.writes[a])
    bit = {value: 1 << n for n, value in enumerate(made)}

    def bits(values: Iterable[Value]) -> int:
        return sum(bit[value] for value in set(values))

    goal = bits(v for v in graph.graph.outputs if graph.maker(v) is not None)
    moves: dict[tuple[int, int], float] = {}
    for p in candidates:
        needs = bits(_read(graph, p.candidate.atoms))
        always = bits(v for v in p.candidate.outputs if v not in p.write_us)
        for size in range(len(p.write_us) + 1):
            for chosen in itertools.combinations(p.write_us.items(), size):
                move = needs, always | bits(v for v, _ in chosen)
                moves[move] = min(p.price_us + sum(us for _, us in chosen), moves.get(move, math.inf))
    best = {0: 0.0}
    todo = [(0.0, 0)]
    while todo:
        price, there = heapq.heappop(todo)
        if there & goal == goal:
            return price
        if price > best[there]:
            continue
        for (needs, written), us in moves.items():
            then = there | written
            if not needs & ~there and then != there and price + us < best.get(then, math.inf):
                best[then] = price + us
                heapq.heappush(todo, (price + us, then))
    return None


def fault_of(graph: AtomGraph, candidates: Sequence[Priced], solution: Solution) -> str:
    """What is wrong with a solution, in words; empty for one that is right.

    Every kernel's inputs are there when it runs, the outputs are made, each value once, and the price is what it says.
    """
    prices = {id(p.candidate): p for p in candidates}
    there: set[Value] = set()
    total = 0.0
    for chosen in solution.kernels:
        p = prices[id(chosen.candidate)]
        missing = [v.name for v in _read(graph, chosen.candidate.atoms) if v not in there]
        if missing:
            return f"{chosen.candidate.digest} reads {missing}, which nobody has made"
        if not chosen.outputs or not set(chosen.outputs) <= set(chosen.candidate.outputs):
            return f"{chosen.candidate.digest} writes {[v.name for v in chosen.outputs]}"
        if not there.isdisjoint(chosen.outputs):
            return f"{chosen.candidate.digest} writes what is there"
        there |= set(chosen.outputs)
        total += p.price_us + sum(p.write_us.get(v, 0.0) for v in chosen.outputs)
    unmade = [v.name for v in graph.graph.outputs if graph.maker(v) is not None and v not in there]
    if unmade:
        return f"nobody makes {unmade}"
    if not math.isclose(solution.price_us, total, rel_tol=1e-9, abs_tol=1e-12):
        return f"the price is {solution.price_us}, its kernels cost {total}"
    return "" if solution.bound_us <= solution.price_us else f"the bound {solution.bound_us} is above the price"


def _read(graph: AtomGraph, atoms: Collection[FusionAtom]) -> list[Value]:
    """What a kernel of these atoms needs of others."""
    read = dict.fromkeys(v for atom in atoms for v in graph.reads[atom])
    return [v for v in read if graph.maker(v) is not None and graph.maker(v) not in atoms]
