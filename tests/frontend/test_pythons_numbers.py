"""Python's numbers in loops that are traced once: what Python computes of them, and in which dtype arrays take them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autofuse.errors import TraceError
from autofuse.frontend.traced import trace
from autofuse.ir.interpreter import interpret

RNG = np.random.default_rng(3)
X = RNG.standard_normal(40).astype(np.float32)
K = RNG.integers(0, 9, 40)


def agrees(function, *args):
    traced = trace(function, *args)
    found, expected = traced.unflatten(interpret(traced.graph, *args)), function(*args)
    for ours, theirs in zip(np.atleast_1d(found), np.atleast_1d(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert np.asarray(found).dtype == np.asarray(expected).dtype


# ---- bools are integers ----------------------------------------------------------------------------------------------


def counted_twice(x, k):
    n = 0
    for i in range(30):
        n += (i < 5) + (i > 2)
    return x * n


def computed_with(x, k):
    n = 0
    for i in range(30):
        b, c = i < 5, i > 2
        n += b * 3 + (b + c) * 2 - (b - c) + (-b) * (~c) + (b & c) + (b | c) + (b ^ True) + abs(b) + (b == c) + (b & 3)
    return x * n


def of_elements(x, k):
    n = 0
    for i in range(1, 30):
        n += bool(x[i] > 0) + bool(x[i - 1] > 0) + (not x[i] > 1) + (not x[i - 1]) + math.isnan(x[i]) + math.isnan(x[0])
    return x * n


def of_numbers_of_the_run(x, k):
    n = 0
    for i in range(30):
        found = int(k[i])
        n += (found < 5) + (i > found)
    return x * n


def carried(x, k):
    f = g = False
    n = 0
    for i in range(40):
        n += f + g
        g = f
        f = bool(x[i] > 0)
    return x * (n + f + g)


def left_alone_by_a_branch(x, k):
    f, n = False, 0
    for i in range(40):
        if k[i] > 4:
            f = bool(x[i] > 0)
        n += f + f
    return x * n


def turned(x, k):
    f, n = True, 0
    for i in range(40):
        f = not f if x[i] > 0 else f
        n += f + f
    return x * n


def chosen(x, k):
    n = 0
    for i in range(40):
        up = i > 3 if x[i] > 0 else i < 30
        n += up + up
    return x * n


def until_nothing_changes(x, k):
    changed, rounds = True, 0
    while changed:
        y = np.minimum(x, np.roll(x, 1) + np.float32(0.1))
        changed = bool((y != x).any())
        x, rounds = y, rounds + 1
    return x * rounds


# ---- integers and floats ---------------------------------------------------------------------------------------------


def bits(x, k):
    y = x
    for i in range(40):
        n = int(k[i])
        y = y + (n & 1) * x + (n | 2) * x + (n ^ 3) * x + (~n) * x + (i & 5) * x + (6 & i) * x + (~i) * x
    return y


def shifts(x, k):
    y = x
    for i in range(40):
        n = int(k[i])
        y = y + (n << 1) * x + (n >> 1) * x + (i << 2) * x + (i >> 3) * x + (1 << (i % 5)) * x + (1000 >> (i % 5)) * x
    return y


def in_place(x, k):
    n = 12345
    for i in range(40):
        n ^= i
        n &= 0xFFFF
        n |= 64
        n = (n << 1) % 65521
        n >>= 1
    return x * n


def hashed(x, k):
    h = 2166136261
    for i in range(40):
        h = ((h ^ int(k[i])) * 16777619) & 0xFFFFFFFF
    return h % 1000003


def extremes(x, k):
    y = x
    for i in range(40):
        n, f = int(k[i]), float(x[i])
        y = (
            y
            + min(n, i) * x
            + max(n, 4) * x
            + min(i, 7) * x
            + min(i / 2, 3.5) * x
            + max(f, 0.5) * x
            + min(f, i / 3) * x
        )
    return y


def extremes_of_both_kinds(x, k):
    y = x
    for i in range(40):
        y = y + min(i / 2, 3) * x + max(i, 1.5) * x
    return y


def rounded(x, k):
    y = x
    for i in range(40):
        y = y + round(i / 3) * x + round(float(x[i])) * x + round(x[i]) * x + round(int(k[i])) * x + round(i) * x
    return y


FUNCTIONS = [
    *(
        counted_twice,
        computed_with,
        of_elements,
        of_numbers_of_the_run,
        carried,
        left_alone_by_a_branch,
        turned,
        chosen,
    ),
    *(until_nothing_changes, bits, shifts, in_place, hashed, extremes, extremes_of_both_kinds, rounded),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_they_are_computed_with_as_python_does(function):
    agrees(function, X, K)


def grows(k):
    h = 0
    for i in range(40):
        h = h * 31 + int(k[i])
    return h % 1000003


def doubles(k):
    n = 1
    for i in range(70):
        n = n * 2 if k[i % 40] >= 0 else n
    return float(n)


def passes_through(k):
    h = 0
    for i in range(40):
        h = (h * 2**40 + int(k[i])) % (2**61 - 1)
    return h


@pytest.mark.parametrize("function", [grows, doubles, passes_through])
def test_integers_that_64_bits_may_not_hold_are_refused(function):
    with pytest.raises(TraceError, match="may not fit in 64 bits"):
        trace(function, K)


OTHERS = {
    "of both kinds": (lambda x: [x * max(float(x[i]), i) for i in range(20)], "between a Python int and a float"),
    "digits": (lambda x: x * round(float(x[0]), 1), "rounds a number of Python's to digits"),
    "a float's bits": (lambda x: x * (float(x[0]) & 1), "float is no integer"),
    "places": (lambda x: x * (1 << int(x[0])), "places that may be negative"),
}


@pytest.mark.parametrize(("function", "message"), OTHERS.values(), ids=OTHERS)
def test_what_numpy_would_do_otherwise_is_refused(function, message):
    with pytest.raises((TraceError, TypeError), match=message):
        trace(function, X)
