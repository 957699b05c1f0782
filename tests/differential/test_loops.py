"""Loops inside kernels: fused as the search would have them, unfused, and by the interpreter, they are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.interpreter import interpret
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from tests.fixtures.loopprograms import LEFT, PROGRAMS
from tests.fixtures.randomloops import random_nest, random_program, random_updates

POLICIES = ("unfused", "greedy", "analytical")


def compare(function: Any, arguments: tuple[Any, ...], policy: str) -> af.Plan:
    plan = af.compile(function, *arguments, policy=policy)
    graph, flat = plan.graph, list(arguments)
    expected, bounds = interpret(graph, *flat), bounds_of(graph, flat)
    found = [np.full(value.type.shape, 77, value.type.dtype.numpy) for value in graph.outputs]
    plan(*arguments, out=_nested(function(*arguments), iter(found)))
    for value, got, right, bound in zip(graph.outputs, found, expected, bounds, strict=True):
        check(f"{policy}: {value.name}", got, right, bound)
    return plan


def _nested(like: Any, leaves: Any) -> Any:
    return type(like)(_nested(part, leaves) for part in like) if isinstance(like, tuple | list) else next(leaves)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, policy: str) -> None:
    plan = compare(*PROGRAMS[name], policy)
    assert ("driver" in [kernel.kind for kernel in plan.kernels]) == (name in LEFT)


@pytest.mark.parametrize("seed", range(24))
def test_random_bodies(seed: int) -> None:
    compare(*random_program(seed), POLICIES[seed % 3])


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_random_nests(seed: int) -> None:
    compare(*random_nest(seed), POLICIES[seed % 3])


@pytest.mark.parametrize("seed", [1, 3])
def test_random_updates(seed: int) -> None:
    compare(*random_updates(seed), POLICIES[seed % 3])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_many_random_updates(seed: int) -> None:
    compare(*random_updates(seed), POLICIES[seed % 3])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_many_random_nests(seed: int) -> None:
    compare(*random_nest(seed), POLICIES[seed % 3])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_random_bodies(seed: int) -> None:
    compare(*random_program(seed), POLICIES[seed % 3])
