"""`af.random` against what `jax.random` draws (`make_vectors.py`), at once and as kernels."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import autofuse as af

CASES = json.loads(Path(__file__).with_name("vectors.json").read_text())
ULPS = {
    "normal": {"float16": 1, "bfloat16": 1, "float32": 3, "float64": 8},
    "exponential": {"float16": 1, "bfloat16": 1, "float32": 2, "float64": 128},
    "gumbel": {"float16": 8, "bfloat16": 2, "float32": 5, "float64": 2},
    "uniform": {"float32": 1},
}
"""How far numbers may be from JAX's, in units in the last place of the greater of them and 1/4: XLA contracts products
and sums, and its functions are others (log1p of f64 is 70 off the exact value). All else, and `uniform` from 0 to 1,
has the same bits."""


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def array_of(stored):
    dtype = dtype_of(stored["dtype"])
    if dtype.kind == "b":
        return np.array(stored["bits"], bool).reshape(stored["shape"])
    return np.array(stored["bits"], f"u{dtype.itemsize}").view(dtype).reshape(stored["shape"])


def argument_of(name, value):
    if name == "dtype":
        return dtype_of(value)
    if isinstance(value, dict):
        return array_of(value)
    return tuple(value) if isinstance(value, list) else value


def title(case):
    shown = {n: v if not isinstance(v, dict) else v["shape"] for n, v in case["arguments"].items()}
    return f"{case['function']}-{case['seed']}-" + "-".join(f"{n}={v}" for n, v in shown.items())


def parts(case):
    """The function, the key, the arguments, what JAX gives, and the units in the last place that are allowed."""
    function, arguments = case["function"], {n: argument_of(n, v) for n, v in case["arguments"].items()}
    exact = function == "uniform" and "minval" not in arguments
    ulps = 0 if exact else ULPS.get(function, {}).get(case["result"]["dtype"], 0)
    return getattr(af.random, function), af.random.key(case["seed"]), arguments, array_of(case["result"]), ulps


def assert_drawn(found, wanted, ulps):
    found = np.asarray(found)
    assert found.shape == wanted.shape
    if wanted.dtype.kind == "i" and found.dtype != wanted.dtype:  # JAX's places are of 64 bits with 64-bit types
        wanted = wanted.astype(np.int32)
    assert found.dtype == wanted.dtype
    if not ulps:
        np.testing.assert_array_equal(found.view(f"u{found.itemsize}"), wanted.view(f"u{found.itemsize}"))
        return
    step = 2.0 ** -{"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[str(wanted.dtype)]
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    assert (np.abs(a - b) <= ulps * step * np.maximum(np.abs(b), 0.25)).all()


@pytest.mark.parametrize("case", CASES, ids=title)
def test_numbers_are_those_of_jax(case):
    function, key, arguments, wanted, ulps = parts(case)
    assert_drawn(function(key, **arguments), wanted, ulps)


@pytest.mark.parametrize("case", CASES[::9], ids=title)
def test_kernels_draw_the_same_numbers(case):
    function, key, arguments, wanted, ulps = parts(case)
    plan = af.compile(lambda k: function(k, **arguments), key)
    assert_drawn(plan(key), wanted, ulps and ulps + 4)
