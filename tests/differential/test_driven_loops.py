"""Loops and branches that a driver runs, kernel by kernel, are what the interpreter gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.fusion import domain
from tests.differential.test_loops import POLICIES, compare
from tests.fixtures import loopprograms, randomloops
from tests.fixtures.drivenprograms import PROGRAMS, random_program


def _copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(np.array(argument) for argument in arguments)


def _compare(function: Any, arguments: tuple[Any, ...], policy: str) -> af.Plan:
    """Twice, on new memory, as a frame must not remember anything."""
    plan = af.compile(function, *_copied(arguments), policy=policy)
    for _ in range(2):
        inputs = _copied(arguments)
        expected = af.interpret(plan.graph, *inputs)
        found = plan(*inputs)
        flat = [*_leaves(found), *(inputs[number] for number in plan.document.writebacks)]
        assert len(flat) == len(expected)
        for got, right in zip(flat, expected, strict=True):
            np.testing.assert_allclose(got, right, rtol=2e-4, atol=2e-4)
    return plan


def _leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, tuple | list) else [value]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, policy: str) -> None:
    plan = _compare(*PROGRAMS[name], policy)
    kinds = {kernel.kind for kernel in plan.kernels}
    assert kinds & {"driver", "rows"}
    assert "interpreter" not in kinds


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    _compare(*random_program(seed), POLICIES[seed % 3])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_random_programs(seed: int) -> None:
    _compare(*random_program(seed), POLICIES[seed % 3])


@pytest.fixture
def no_loop_is_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain, "refusal", lambda node: "the test wants it so")


@pytest.mark.usefixtures("no_loop_is_a_kernel")
@pytest.mark.parametrize("name", loopprograms.PROGRAMS)
def test_what_could_be_kernels(name: str) -> None:
    compare(*loopprograms.PROGRAMS[name], "analytical")


@pytest.mark.slow
@pytest.mark.usefixtures("no_loop_is_a_kernel")
@pytest.mark.parametrize("seed", range(200))
def test_many_that_could_be_kernels(seed: int) -> None:
    compare(*randomloops.random_program(seed), POLICIES[seed % 3])
