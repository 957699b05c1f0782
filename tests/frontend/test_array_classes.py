"""Arrays of classes that give operations another meaning are refused by name; memory maps and records are plain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError, TraceError

MASKED = np.ma.array([1.0, 2, 3], mask=[False, True, False])
MATRIX = np.matrix([[1.0, 2], [3, 4]])
X = np.arange(3.0)


class Other(np.ndarray[Any, Any]):
    def __mul__(self, other: Any) -> Any:
        return self @ other


class Tagged(np.ndarray[Any, Any]):
    tag = "ours"


@pytest.mark.parametrize("array", [MASKED, MATRIX, X.view(Other)], ids=["masked", "matrix", "other"])
def test_as_an_argument(array: Any) -> None:
    name = f"{type(array).__module__}.{type(array).__qualname__}"
    with pytest.raises(ArgumentError, match=rf"a: needs a plain array, got {name}"):
        af.compile(lambda a: a * a, array)
    plan = af.compile(lambda a: a * a, np.asarray(array))
    with pytest.raises(ArgumentError, match=rf"a: needs a plain array, got {name}"):
        plan(array)
    with pytest.raises(ArgumentError, match=rf"needs a plain array, got {name}"):
        plan(np.asarray(array), out=array)


USES: dict[str, Any] = {
    "operator": lambda a: a + MASKED,
    "ufunc": lambda a: np.add(a, MASKED),
    "function": lambda a: np.concatenate([a, MASKED]),
    "choice": lambda a: np.where(a > 0, MASKED, a),
    "asanyarray": lambda a: a + np.asanyarray(MASKED),
    "out": lambda a: np.add(a, 1, out=MASKED),
    "assignment": lambda a: a.__setitem__(slice(None), MASKED),
    "matrix": lambda a: a[:2] * MATRIX,
    "matrix on the left": lambda a: MATRIX * a[:2],
    "result": lambda a: (a, MASKED),
}


@pytest.mark.parametrize("use", USES)
def test_inside_a_traced_function(use: str) -> None:
    with pytest.raises(TraceError, match=r"needs a plain array, got numpy\.(ma\.MaskedArray|matrix)"):
        af.trace(USES[use], X)
    assert MASKED.mask.tolist() == [False, True, False]


def test_what_they_compute_alone_is_theirs() -> None:
    for call in (lambda a: a + MASKED.sum(), lambda a: a + np.asarray(MASKED)):
        np.testing.assert_array_equal(af.compile(call, X)(X), call(X))


def test_memory_maps_and_records_are_plain(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "x", dtype=np.float64, mode="w+", shape=3)
    mapped[:] = [1, 2, 3]
    plan = af.compile(lambda a: a + 1, mapped)
    assert plan(mapped).tolist() == [2, 3, 4]
    assert plan(X.view(Tagged)).tolist() == [1, 2, 3]
    assert plan(np.rec.array(X)).tolist() == [1, 2, 3]  # pyright: ignore[reportArgumentType]
