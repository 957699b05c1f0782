"""`at`, `reduce`, `accumulate`, `reduceat` and `outer` of ufuncs, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autofuse.errors import TraceError
from autofuse.frontend.traced import trace

INTEGERS = ["i1", "i2", "i8", "u1", "u4", "u8"]
AT = ["add", "subtract", "multiply", "maximum", "minimum", "floor_divide", "bitwise_xor", "power", "left_shift"]


def applied(name: str) -> Any:
    def step(x: Any, index: Any, *operands: Any) -> Any:
        getattr(np, name).at(x, index, *operands)
        return x

    return step


@pytest.mark.parametrize("dtype", ["?", *INTEGERS, "f2", "f4", "f8"])
@pytest.mark.parametrize("name", AT)
@pytest.mark.parametrize("known", [True, False])
def test_at_with_repeated_and_negative_indices(name: str, dtype: str, known: bool, agrees: Any) -> None:
    x, index = np.array([5, 6, 1, 9, 0, 3]).astype(dtype), np.array([0, 1, -2, 0, 1, 1, 3])
    b = np.array([1, 2, 3, 4, 3, 2, 1]).astype(dtype)
    try:
        applied(name)(x.copy(), index, b)
    except TypeError:
        with pytest.raises(TraceError):
            trace(applied(name), x, index, b)
        return
    step = applied(name)
    if known:
        agrees(lambda x, b: step(x, [0, 1, -2, 0, 1, 1, 3], b), x, b)
    else:
        agrees(step, x, index, b)


@pytest.mark.parametrize("operand", [1.5, 0.6, -3, 300, 40000, True, np.int8(-3), np.float32(2.7), np.uint64(7)])
@pytest.mark.parametrize("dtype", ["i2", "u1", "i8"])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "divide"])
def test_at_casts_every_step_into_the_array(name: str, dtype: str, operand: Any, agrees: Any) -> None:
    """1.5 is subtracted from an integer in f64, and what comes out is cut before the next one."""
    step = applied(name)
    agrees(lambda x: step(x, [0, 1, -2, 0, 0], operand), np.array([5, 6, 7], dtype))
    agrees(lambda x, index: step(x, index, operand), np.array([5, 6, 7], dtype), np.array([0, 1, -2, 0]))


FORMS: dict[str, Any] = {
    "slice": lambda x: np.add.at(x, np.s_[::2], 2),
    "ellipsis": lambda x: np.add.at(x, ..., 1.5),
    "scalar": lambda x: np.subtract.at(x, -1, 1.5),
    "row": lambda x: np.add.at(x, (1, slice(None)), [1, 2, 3, 4]),
    "tuple": lambda x: np.multiply.at(x, (np.array([0, 2, 0]), np.array([1, -1, 1])), 3),
    "tuple, cut": lambda x: np.add.at(x, ([0, 2, 0], [1, -1, 1]), 1.5),
    "rows": lambda x: np.subtract.at(x, [0, 0, -1], [1, 2, 3, 4]),
    "rows, cut": lambda x: np.subtract.at(x, [0, 0, -1], [1.5, 2, 3, 4]),
    "known mask": lambda x: np.add.at(x, np.array([True, False, True]), 1),
    "mask": lambda x: np.add.at(x, x > 5, 1.5),
    "nothing": lambda x: np.add.at(x, np.zeros(0, int), 5),
    "no argument": lambda x: (np.negative.at(x, [0, 0, 1]), np.absolute.at(x, 2)),
    "a view": lambda x: np.subtract.at(x.T[1:], [0, 0, 2], 1.5),
    "many": lambda x: np.add.at(x[0], [1] * 20, 0.7),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["i2", "u1", "f8"])
def test_forms_of_indices(form: str, dtype: str, agrees: Any) -> None:
    def step(x: Any) -> Any:
        FORMS[form](x)
        return x

    agrees(step, np.arange(12).reshape(3, 4).astype(dtype), ulps=2)


WRONG: dict[str, Any] = {
    "second operand needed": lambda x: np.add.at(x, [0]),
    "second operand provided": lambda x: np.negative.at(x, [0], 3),
    "single output": lambda x: np.divmod.at(x, [0], 3),
    "out of bounds": lambda x: np.add.at(x, [0, 5], 3),
    "broadcast": lambda x: np.add.at(x, [0, 1], [1, 2, 3]),
    "not supported": lambda x: np.left_shift.at(x, [0], np.uint64(1)),
}


@pytest.mark.parametrize("message", WRONG)
def test_at_raises_where_numpy_does(message: str) -> None:
    x = np.array([5, 6, 7], np.int16)
    with pytest.raises((TypeError, ValueError, IndexError)):
        WRONG[message](x.copy())
    with pytest.raises((TraceError, ValueError), match=message):  # NumPy counts the operands before anyone is asked
        trace(WRONG[message], x)


FOLDS = ["add", "multiply", "maximum", "fmin", "subtract", "divide", "logaddexp", "hypot", "gcd", "lcm", "bitwise_xor"]
FOLDS += ["bitwise_and", "logical_xor", "remainder", "left_shift"]


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i8", "f4", "f8"])
@pytest.mark.parametrize("name", FOLDS)
def test_reductions(name: str, dtype: str, agrees: Any) -> None:
    ufunc = getattr(np, name)
    x = np.random.default_rng(0).integers(1, 6, (3, 4)).astype(dtype)
    where = np.random.default_rng(1).random((3, 4)) < 0.5
    calls: list[Any] = [
        lambda x, m: ufunc.reduce(x),
        lambda x, m: ufunc.reduce(x, axis=1, keepdims=True),
        lambda x, m: ufunc.reduce(x[:1]),
        lambda x, m: ufunc.reduce(x, axis=None),
        lambda x, m: ufunc.reduce(x[:0], axis=0),
        lambda x, m: ufunc.reduce(x[:0], axis=1),
        lambda x, m: ufunc.reduce(x, initial=2),
        lambda x, m: ufunc.reduce(x, where=m),
        lambda x, m: ufunc.reduce(x, where=m, initial=1, axis=1),
        lambda x, m: ufunc.reduce(x, dtype=np.float64),
        lambda x, m: ufunc.reduce(x[0, 0]),
        lambda x, m: ufunc.accumulate(x, axis=1),
        lambda x, m: ufunc.accumulate(x[:0]),
        lambda x, m: ufunc.accumulate(x, dtype=np.float64),
        lambda x, m: ufunc.reduceat(x, [0, 2, 1, 1]),
        lambda x, m: ufunc.reduceat(x, [0, 3], axis=1),
        lambda x, m: ufunc.outer(x, x[0]),
        lambda x, m: ufunc.outer(2, x),
    ]
    raised: list[Any] = []
    for number, call in enumerate(calls):
        try:
            with np.errstate(all="ignore"):
                call(x, where)
        except (TypeError, ValueError) as error:
            with pytest.raises(TraceError) as caught:
                trace(call, x, where)
            raised.append((number, error, caught.value.__cause__))
            continue
        agrees(call, x, where, ulps=8)
    assert all(isinstance(theirs, type(ours)) for _, theirs, ours in raised), raised


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "all", "any", "ptp", "cumsum", "cumprod"])
def test_rank_0_has_an_axis_for_reductions_of_ufuncs(name: str, agrees: Any) -> None:
    function = getattr(np, name)
    agrees(lambda x: (function(x, axis=0), function(x, axis=-1), function(x, axis=None)), np.array(2.0))


def test_long_reductions_in_order_are_loops(agrees: Any) -> None:
    traced = agrees(lambda x: (np.subtract.reduce(x), np.divide.accumulate(x)), np.linspace(1, 2, 40), ulps=8)
    assert len(traced.graph.nodes) < 30


def test_reduceat_needs_indices_that_are_known() -> None:
    with pytest.raises(TraceError, match="known while tracing"):
        trace(np.add.reduceat, np.arange(4.0), np.array([0, 2]))
    with pytest.raises(TraceError, match="out-of-bounds"):
        trace(lambda x: np.add.reduceat(x, [0, 7]), np.arange(4.0))
