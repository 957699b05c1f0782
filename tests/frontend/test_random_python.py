"""Random Python programs (`tests.fixtures.randompython`): plans compute what they do, or say that they cannot.

To see one: `python -m tests.fixtures.randompython 17`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.pythonprograms import shrunk, verdict
from tests.fixtures.randompython import program

QUICK, MANY, COMPILED = range(20), range(20, 1000), range(1, 12)


def _require_right(seed: int, folder: Path, *, compiled: bool = False) -> None:
    source = program(seed)
    found = verdict(source, folder, compiled=compiled)
    if found.kind in ("wrong", "crash"):
        small = shrunk(source, lambda other: verdict(other, folder, compiled=compiled).kind == found.kind)
        pytest.fail(f"seed {seed}, {found.kind}: {found.reason}\n{small}")


@pytest.mark.parametrize("seeds", [QUICK[k::2] for k in range(2)], ids=str)
def test_random_python(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        _require_right(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
def test_much_random_python(seed: int, tmp_path: Path) -> None:
    _require_right(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", COMPILED)
def test_random_python_in_kernels(seed: int, tmp_path: Path) -> None:
    _require_right(seed, tmp_path, compiled=True)


def test_a_program_is_made_smaller_as_long_as_it_fails() -> None:
    source = "def f(a):\n    b = 1\n    for i in range(3):\n        if a:\n            a[i] += 2 * b\n    return a, b\n"
    small = shrunk(source, lambda other: "a[i] += b" in other or "2 * b" in other)
    assert small == "def f(a):\n    a[i] += b"
