"""The question most front-end tests ask: does the traced graph compute what NumPy computes?"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autofuse.frontend.traced import trace
from autofuse.frontend.tracedprogram import Traced
from autofuse.ir import tree
from autofuse.ir.interpreter import interpret


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def _assert_same(got: Any, want: Any, ulps: float, scale: float) -> None:
    """Equal dtype, shape and values; with `ulps` == 0 also equal signs of zero."""
    assert isinstance(got, np.generic) == isinstance(want, np.generic), (type(got), type(want))
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if want.dtype == ml_dtypes.bfloat16:
        got, want = got.astype(np.float32), want.astype(np.float32)
        epsilon = float(ml_dtypes.finfo(ml_dtypes.bfloat16).eps)
    else:
        epsilon = float(np.finfo(want.dtype).eps) if want.dtype.kind == "f" else 0.0
    if ulps == 0:
        np.testing.assert_array_equal(got, want)
        if want.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(got) | np.isnan(got), np.signbit(want) | np.isnan(want))
    else:
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=ulps * epsilon, atol=ulps * epsilon * scale
        )


@pytest.fixture
def agrees() -> Any:
    """A function that checks `fn` traced and interpreted against `fn` run by NumPy, arguments written into included.

    `ulps` is the relative tolerance in units of the result dtype's epsilon (0: bit for bit); `scale` is the magnitude
    of the terms that are summed, for results that cancel.
    """

    def check(fn: Any, *args: Any, ulps: float = 0, scale: float = 0.0, **options: Any) -> Traced:
        theirs, ours = copy.deepcopy(args), copy.deepcopy(args)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's on empty slices and NaN
            want = fn(*theirs)
        traced = trace(fn, *ours, **options)
        given = traced.flatten(ours)
        outputs = interpret(traced.graph, *given)
        got = traced.unflatten(outputs)
        got_leaves, got_tree = tree.flatten(got, _is_array)
        want_leaves, want_tree = tree.flatten(want, _is_array)
        assert got_tree == want_tree
        for g, w in zip(got_leaves, want_leaves, strict=True):
            _assert_same(g, w, ulps, scale)
        final = list(given)
        for position, output in traced.writebacks:
            final[position] = outputs[output]
        for g, w in zip(final, traced.flatten(theirs), strict=True):
            _assert_same(g, w, ulps, scale)
        return traced

    return check
