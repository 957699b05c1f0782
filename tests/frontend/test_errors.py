"""What cannot be traced is an error that names the line, the call, and what to write instead."""

from __future__ import annotations

import math
import operator
import pickle
from typing import Any

import numpy as np
import pytest

from autofuse.errors import ArgumentError, AutofuseError, TraceError
from autofuse.frontend.spec import spec
from autofuse.frontend.traced import trace

X = np.arange(1.0, 5.0)

CASES: dict[str, tuple[Any, str, str]] = {
    "if": (lambda x: x if x.sum() > 0 else -x, "truth test", r"np\.where"),
    "while": (lambda x: [1 for _ in iter(lambda: x[0] > 0, False)], "truth test", r"np\.where"),
    "and": (lambda x: (x > 0) and (x < 2), "truth test", "& |"),
    "max": (lambda x: max(x[0], x[1]), "truth test", r"np\.maximum"),
    "in": (lambda x: 3.0 in x, "truth test", r"np\.where"),
    "int": (lambda x: int(x[0]), r"int\(\)", "astype"),
    "float": (lambda x: float(x[0]), r"float\(\)", "np function"),
    "math": (lambda x: math.sqrt(x[0]), r"float\(\)", "np function of the same name"),
    "range": (lambda x: list(range(x.astype(int)[0])), "range", "Python int"),
    "shape": (lambda x: np.zeros(x.astype(int)[0]), "shape", "Python int"),
    "item": (lambda x: x[0].item(), r"item\(\)", "0-d array"),
    "tolist": (lambda x: x.tolist(), r"tolist\(\)", "keep the array"),
    "format": (lambda x: f"{x[0]:.3f}", "formatting", "print after the call"),
    "ix_ of a mask": (lambda x: np.ix_(x > 0, [1])[0], r"np\.ix_ of a mask that is a traced value", "known"),
    "nonzero": (lambda x: [np.nonzero(x)], r"np\.nonzero cannot be traced", "number of results depends on data"),
    "nonzero method": (lambda x: x.nonzero(), "nonzero cannot be traced", r"np\.where"),
    "where of one": (lambda x: np.where(x > 2), "data-dependent shape", r"np\.where\(condition, a, b\)"),
    "unique": (lambda x: [np.unique(x)], r"np\.unique cannot be traced", r"np\.bincount"),
    "bincount": (lambda x: np.bincount(x.astype(int)), "data-dependent length", "minlength"),
    "bincount of larger keys": (lambda x: np.bincount(x.astype(int), minlength=3), "not below minlength", r"np\.clip"),
    "unknown function": (lambda x: np.linalg.inv(x[None]), r"np\.linalg\.inv cannot be traced", "eager"),
    "near name": (lambda x: np.nanquantile(x, 0.5), r"np\.nanquantile cannot be traced", "near names|eager"),
    "unknown method": (lambda x: x.tobytes(), r"ndarray\.tobytes cannot be traced", "np|NumPy"),
    "float32 of an array": (lambda x: [np.float32(x)], "real array", "astype|NumPy function"),
    "setting an element of an ordinary array": (
        lambda x: operator.setitem(pickle.loads(PICKLED), 0, x[0]),
        "real array|float",
        "",
    ),
    "complex": (lambda x: x * np.clongdouble(1j), "complex", ""),
    "fft": (lambda x: [np.fft.fft(x)], r"np\.fft\.fft cannot be traced", ""),
    "broadcast": (lambda x: x + np.ones(3), r"np\.add: .*broadcast", ""),
    "unknown keyword": (lambda x: np.sum(x, axes=0), r"np\.sum: .*axes", ""),
    "bool index": (lambda x: x[True], "bool as an index", "None"),
    "scalar fill": (lambda x: x.sum().fill(0), "scalar", ""),
    "other function": (lambda x: np.packbits(x > 0), r"np\.packbits cannot be traced", "eager"),
    "inverse": (lambda x: np.linalg.inv(x + 1), r"np\.linalg\.inv cannot be traced", "compose it"),
    "solution": (lambda x: np.linalg.solve(x, x), r"np\.linalg\.solve cannot be traced", "compose it"),
    "pickle": (lambda x: [pickle.dumps(x)], "pickled", ""),
    "returning an object": (lambda x: object(), "returns something that is not an array", ""),
    "reduceat": (lambda x: np.add.reduceat(x, np.argsort(x)), "reduceat needs indices", "np.add.at"),
    "vectorize": (
        lambda x: [np.vectorize(lambda v: v + 1)(x)],
        r"np\.vectorize cannot be traced",
        "on the whole arrays",
    ),
}


PICKLED = pickle.dumps(np.zeros(3))


@pytest.mark.parametrize("name", CASES)
def test_the_message_says_line_call_and_remedy(name: str) -> None:
    function, problem, instead = CASES[name]
    with pytest.raises(TraceError) as caught:
        trace(function, X, on_unsupported="error")
    message = str(caught.value)
    if name != "returning an object":
        assert "test_errors.py:" in message
        assert "lambda x" in message  # the source line
    assert caught.match(problem)
    assert caught.match(instead)


def test_the_innermost_user_line_is_named() -> None:
    def helper(x: Any) -> Any:
        return np.zeros(int(x[0]))

    def f(x: Any) -> Any:
        return x * helper(x)

    with pytest.raises(TraceError) as caught:
        trace(f, X)
    line = helper.__code__.co_firstlineno + 1
    assert f"test_errors.py:{line} in helper" in str(caught.value)


def test_the_users_own_exceptions_pass_through() -> None:
    def f(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trace(f, X)


def test_a_leaked_tracer_is_an_error() -> None:
    kept: list[Any] = []

    class Box:
        """Keeps what it is given."""

        def keep(self, x: Any) -> Any:
            kept.append(x)
            return x

    trace(lambda x: Box().keep(x), X)
    with pytest.raises(TraceError, match="after its trace ended"):
        _ = kept[0] + 1
    with pytest.raises(TraceError):
        trace(lambda x: x + kept[0], X)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: trace(lambda x: x, object()), "required: an array"),
        (lambda: trace(lambda x: x, np.ones(2, np.clongdouble)), "argument x: dtype complex256 is not supported"),
        (lambda: trace(lambda x: x, np.ones(2, ">f4")), "not supported"),
        (lambda: trace(lambda x, y: x, X), "was given 1 arguments"),
        (lambda: trace(lambda x: x, X, static=["y"]), "static names an argument"),
        (lambda: trace(lambda x: x, X, on_unsupported="maybe"), "on_unsupported"),
        (lambda: spec("f32[2,b]"), "not a tensor type"),
    ],
)
def test_bad_arguments_of_trace(call: Any, message: str) -> None:
    with pytest.raises(AutofuseError, match=message):
        call()


def test_overlapping_arguments_must_not_be_written() -> None:
    def f(x: Any, y: Any) -> Any:
        x[0] = 1.0
        return x + y

    with pytest.raises(TraceError, match="share memory"):
        trace(f, X, X)
    trace(lambda x, y: x + y, X, X)
    trace(f, X, X.copy())


def test_calls_are_checked_against_the_trace() -> None:
    traced = trace(lambda x, n: x * n, X, 2)
    assert traced.flatten((X, 2))[0] is X
    with pytest.raises(ArgumentError, match="n must be 2"):
        traced.flatten((X, 3))
    with pytest.raises(ArgumentError, match="takes 2 arguments, got 1"):
        traced.flatten((X,))
