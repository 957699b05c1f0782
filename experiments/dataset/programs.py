"""The programs of the data set: workloads, workloads in other sizes, and random programs, each by a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.api.programs import measuring_inputs, traced_program
from autofuse.errors import ArgumentError
from autofuse.frontend.traced import trace
from autofuse.ir import dtypes, tree
from autofuse.ir.graph import Graph
from autofuse.ir.graphtext import print_graph
from autofuse.measurement.workloads import SIZES, discover, load
from autofuse.passes.pipeline import clean
from autofuse.search.plans.planning import Program
from autofuse.targets.base import find_target
from autofuse.testing.graphs import FAMILIES, random_graph, random_inputs
from autofuse.testing.partitions import program_of
from autofuse.testing.rareops import ALL_FAMILIES

_STRETCHES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""What an extent of a workload is multiplied by."""
_FIXED = 4
"""Extents up to here are part of what a program does: coordinates, gates."""
_MOST_BYTES = 192 << 20
"""Of a program's arguments."""
_MOST_VALUES = 1 << 30
"""Bytes of all values of a program together."""
_SPREAD = (11.0, 22.5)
"""Binary logarithms of the elements that values of random programs have, about."""
_KINDS: Mapping[str, Sequence[str]] = {
    "elementwise": ("elementwise", "broadcast"),
    "rows": ("elementwise", "broadcast", "reduce", "reduce"),
    "index": ("elementwise", "index", "index"),
    "products": ("elementwise", "broadcast", "dot", "reduce"),
    "integers": ("elementwise", "integer", "dtypes"),
    "windows": ("elementwise", "window", "contraction"),
    "moving": ("elementwise", "index", "run-time index", "opaque"),
    "mixed": tuple(FAMILIES),
}
"""Families of random programs: the families of their ops, those named twice twice as likely."""
_MOST_SIDE = 700.0
"""Of arrays that are multiplied: products of long vectors with each other would fill memory."""
_DTYPES = (dtypes.F32, dtypes.F32, dtypes.F32, dtypes.F64, dtypes.BF16)
_RANDOM_SHARE = 6
"""Of ten programs, those that are random."""


@dataclass(frozen=True)
class Source:
    """How one program is made. It is the same in every process."""

    name: str
    grouped: str
    """Equal for programs that are the same but for sizes."""
    family: str
    seed: int
    workload: str = ""
    """Its name; empty for a random program."""
    size: str = ""
    stretched: bool = False
    """Whether its extents are others than the workload's own."""


@dataclass(frozen=True)
class Made:
    """A program with arguments."""

    program: Program
    arrays: Sequence[NDArray[Any]]
    """Of the inputs of its graph."""
    text: str
    """Of its graph."""
    nbytes: int
    """Of all values of the graph together."""


def source_of(number: int, seed: int, size: str = "full") -> Source:
    """The program of a number: first the workloads as they are, then random ones and stretched workloads in turns.

    `size`: of workloads that are stretched, and those beside the small ones.
    """
    names, sizes = _names(), _sizes(size)
    if number < unstretched(size):
        name, of = names[number // len(sizes)], sizes[number % len(sizes)]
        return Source(f"{name}/{of}", name, "workload", seed, name, of)
    turn, place = divmod(number - unstretched(size), 10)
    if place < _RANDOM_SHARE:
        count = turn * _RANDOM_SHARE + place
        kind = list(_KINDS)[count % len(_KINDS)]
        return Source(f"{kind}/{count}", f"{kind}/{count}", f"random {kind}", seed * 1_000_003 + count)
    count = turn * (10 - _RANDOM_SHARE) + place - _RANDOM_SHARE
    name = names[count % len(names)]
    variant = count // len(names)
    return Source(f"{name}/{size}-{variant}", name, "workload", seed + 1 + variant, name, size, stretched=True)


def unstretched(size: str = "full") -> int:
    """How many programs are workloads as they are: the first ones."""
    return len(_sizes(size)) * len(_names())


def _sizes(size: str) -> Sequence[str]:
    return SIZES if size == "full" else (size,)


@cache
def _names() -> Sequence[str]:
    """Of the workloads."""
    return [workload.name for workload in discover()]


def made(source: Source) -> Made:
    """The program, cleaned up, and its arguments. Raises AutofuseError, or what NumPy does, where there is none."""
    if source.workload:
        program, arrays = _from_workload(source)
    else:
        program, arrays = _random(source)
    text, constants = print_graph(program.graph)
    if constants:
        raise ArgumentError(f"{source.name} holds constant arrays")
    nbytes = sum(value.type.nbytes for node in program.graph.nodes for value in node.outputs)
    if nbytes > _MOST_VALUES or sum(array.nbytes for array in arrays) > _MOST_BYTES:
        raise ArgumentError(f"{source.name} is too large")
    return Made(program, arrays, text, nbytes)


def _from_workload(source: Source) -> tuple[Program, Sequence[NDArray[Any]]]:
    workload = load(source.workload)
    arguments: Any = workload.inputs(source.size, 0)
    if source.stretched:
        arguments = stretched(arguments, np.random.default_rng([source.seed, len(source.workload)]))
    traced = trace(workload.function, *arguments)
    return traced_program(traced), measuring_inputs(traced, None, 0, find_target())


def stretched(arguments: Any, rng: np.random.Generator) -> Any:
    """Arguments in other sizes: equal extents stay equal, values come again in their order."""
    leaves, structure = tree.flatten(arguments, lambda part: isinstance(part, np.ndarray | np.generic))
    extents = sorted({extent for leaf in leaves for extent in np.shape(leaf) if extent > _FIXED})
    alike = rng.random() < 0.5
    factor = float(rng.choice(_STRETCHES))
    factors = {extent: factor if alike else float(rng.choice(_STRETCHES)) for extent in extents}
    others = {extent: max(1, round(extent * factors[extent])) for extent in extents}
    made_anew = [
        np.resize(leaf, tuple(others.get(extent, extent) for extent in leaf.shape))
        if isinstance(leaf, np.ndarray)
        else leaf
        for leaf in leaves
    ]
    return tree.unflatten(structure, made_anew)


def _random(source: Source) -> tuple[Program, Sequence[NDArray[Any]]]:
    rng = np.random.default_rng(source.seed)
    kind = source.family.removeprefix("random ")
    rules = {f"{name} {place}": ALL_FAMILIES[name] for place, name in enumerate(_KINDS[kind])}
    rank = int(rng.integers(1, 4))
    elements = 2.0 ** rng.uniform(*_SPREAD)
    side = min(elements ** (1 / rank), _MOST_SIDE if {"dot", "contraction"} & {*_KINDS[kind]} else elements)
    extents = [max(1, round(side * 2.0 ** rng.uniform(-2, 2))) for _ in range(4)]
    dtype = _DTYPES[int(rng.integers(len(_DTYPES)))]
    graph = _usual(
        random_graph(rng, int(rng.integers(6, 20)), families=rules, dtype=dtype, extents=extents, max_rank=rank)
    )
    return program_of(graph), random_inputs(graph, np.random.default_rng(source.seed))


def _usual(graph: Graph) -> Graph:
    """As it is before it is searched."""
    return clean(graph, "strict")
