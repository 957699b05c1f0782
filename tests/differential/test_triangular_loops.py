"""Loops over slices that grow and shrink: fused, unfused, the interpreter and NumPy give the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.fusion import domain
from tests.differential.test_loops import POLICIES
from tests.fixtures.triangularprograms import random_program, source_of

LARGE = 68
"""An extent at which states do not fit registers, so that a driver runs the loops."""


def _copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(np.array(argument) for argument in arguments)


def _same(found: Any, wanted: Any, source: str) -> None:
    """About equal: sums are in any order, and some programs let numbers grow."""
    for got, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-8, atol=1e-10 * (1.0 + np.max(np.abs(right))), err_msg=source)


def _agree(seed: int, folder: Path, extent: int, policies: tuple[str, ...]) -> None:
    function, arguments = random_program(seed, folder, extent)
    expected = _copied(arguments)
    returned = function(*expected)
    wanted = [*map(np.asarray, returned), *expected]
    for policy in policies:
        plan = af.compile(function, *_copied(arguments), policy=policy, threads=2)
        for _ in range(2):
            given = _copied(arguments)
            _same([*map(np.asarray, plan(*given)), *given], wanted, source_of(seed))
        interpreted = af.interpret(plan.graph, *_copied(arguments))
        _same(interpreted[: len(returned)], wanted[: len(returned)], source_of(seed))


@pytest.mark.parametrize("seed", range(6))
def test_driven_loops(seed: int, tmp_path: Path) -> None:
    _agree(seed, tmp_path, LARGE, (POLICIES[seed % len(POLICIES)],))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_driven_loops(seed: int, tmp_path: Path) -> None:
    _agree(seed, tmp_path, LARGE + seed % 7, tuple(POLICIES))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300, 400))
def test_many_small_loops(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Extents of few vectors, and of one that no vector divides; loops that could be kernels, too, are driven."""
    monkeypatch.setattr(domain, "refusal", lambda node: "the test wants it so")
    _agree(seed, tmp_path, 17 + seed % 9, ("analytical",))
