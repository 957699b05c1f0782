"""Short loops written out: the same bits, and no more nodes than a graph may have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.graph import Graph
from autofuse.ir.interpreter import interpret
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.measurement.checks import same_bits
from autofuse.passes import wholeunrolling
from autofuse.passes.choices import read_choices
from autofuse.passes.pipeline import clean
from autofuse.passes.wholeunrolling import UnrollWhole, count_nodes
from tests.fixtures import loopprograms
from tests.fixtures.drivenprograms import PROGRAMS, random_program

ALL = read_choices("unrolled=all")
F32 = np.float32


def loops_in(graph: Graph) -> int:
    inside = sum(loops_in(region) for node in graph.nodes for region in node.regions)
    return inside + sum(role_of(node) is Role.COUNTED_LOOP for node in graph.nodes)


def compare(function: Any, arguments: tuple[Any, ...]) -> tuple[Graph, Graph]:
    """The graph as it is usually, and with short loops written out; both give the same bits."""
    usual = clean(af.trace(function, *arguments))
    written_out = clean(usual, choices=ALL)
    expected, found = (interpret(graph, *map(np.array, arguments)) for graph in (usual, written_out))
    assert all(same_bits(*pair) for pair in zip(found, expected, strict=True))
    return usual, written_out


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_bits(name: str) -> None:
    usual, written_out = compare(*PROGRAMS[name])
    assert count_nodes(written_out) <= wholeunrolling.MOST_NODES
    assert loops_in(written_out) <= loops_in(usual)


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(n, marks=pytest.mark.slow) for n in range(8, 300))])
def test_random_loops(seed: int) -> None:
    compare(*random_program(seed))


def cell(x: Any, w: Any) -> Any:
    """A product in each step, so no kernel; the rows are stacked."""

    def step(h: Any, row: Any) -> Any:
        h = np.tanh(h @ w + row)
        return h, h

    return af.scan(step, np.zeros((3, 80), F32), x)


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(F32)


def test_all_iterations_are_there_and_no_loop() -> None:
    usual, written_out = compare(cell, (numbers(5, 3, 80), numbers(80, 80)))
    assert (loops_in(usual), loops_in(written_out)) == (1, 0)
    assert sum(node.op == "dot_general" for node in written_out.nodes) == 5


def test_a_long_loop_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = clean(af.trace(cell, numbers(5, 3, 80), numbers(80, 80)))
    length = count_nodes(graph) + 5 * (count_nodes(graph.nodes[-1].regions[0]) + 3)
    for most, loops in ((length - 1, 1), (length, 0)):
        monkeypatch.setattr(wholeunrolling, "MOST_NODES", most)
        assert loops_in(UnrollWhole().apply(graph)) == loops


def test_loops_that_are_kernels_stay_and_those_that_these_walk() -> None:
    for name, (function, arguments) in loopprograms.PROGRAMS.items():
        if name not in loopprograms.LEFT:
            usual = clean(af.trace(function, *arguments))
            assert UnrollWhole().apply(usual) is usual, name
