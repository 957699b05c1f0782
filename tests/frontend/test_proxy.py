"""What a traced function sees: NumPy through a proxy, helpers as copies, nothing of the user's changed."""

from __future__ import annotations

import functools
import math
import os
import random
import secrets
import sys
import uuid
from dataclasses import dataclass
from random import gauss
from types import ModuleType
from typing import Any

import numpy as np
import numpy.linalg as la
import pytest
import scipy.special
from numpy import exp, zeros
from numpy.random import default_rng, normal
from scipy.special import softmax

from autofuse.errors import OutsideStateWarning, TraceError
from autofuse.frontend.spec import spec
from autofuse.frontend.traced import trace

X = np.arange(4.0)
TABLE = np.array([10.0, 20.0, 30.0, 40.0])
ORDER = [2, 0, 1, 3]
SCALE = 3.0
CALLS = 0
TWO = np.float32(2)


def double(x: Any) -> Any:
    out = np.zeros(len(x))
    out[:] = x * 2
    return out


def factorial(x: Any, n: int) -> Any:
    if n == 0:
        return np.ones_like(x)
    return x * factorial(x, n - 1)


def count(x: Any) -> Any:
    global CALLS  # noqa: PLW0603 - what is tested
    CALLS += 1
    return x + CALLS


def with_default(x: Any, helper: Any = double, *, scale: Any = TWO) -> Any:
    return helper(x) * scale


@functools.lru_cache
def cached(x: Any) -> Any:
    return np.concatenate([x[1:], np.zeros(1)])


def make_adder(n: float) -> Any:
    table = np.full(4, n)

    def add(x: Any) -> Any:
        buffer = np.empty(4)
        buffer[...] = x + table
        return double(buffer)

    return add


class Model:
    """Weights and methods, some of which make arrays."""

    bias = 1.0

    def __init__(self, w: Any) -> None:
        self.w = w
        self.calls: list[int] = []

    def hidden(self, x: Any) -> Any:
        out = np.zeros((2, 4))
        out[0] = x * self.w
        out[1] = self.shift(x)
        return out

    @staticmethod
    def shift(x: Any) -> Any:
        return np.concatenate([x[1:], np.zeros(1)]) + Model.bias

    @property
    def total(self) -> Any:
        return self.w.sum()

    def forward(self, x: Any) -> Any:
        return self.hidden(x).sum(0) * self.total

    def __call__(self, x: Any) -> Any:
        return self.forward(x) + 1


def module_of_helpers() -> ModuleType:
    module = ModuleType("user_helpers")
    module.__file__ = __file__
    source = (
        "import numpy as np\nfrom numpy import zeros\ndef fill(x):\n    a = zeros(4)\n    a[1:] = x[1:]\n    return a\n"
    )
    exec(compile(source, __file__, "exec"), module.__dict__)
    sys.modules["user_helpers"] = module
    return module


helpers = module_of_helpers()
ACTIVATIONS = {"double": double, "exp": np.exp}

PROGRAMS: dict[str, Any] = {
    "helper": lambda x: double(x) + 1,
    "recursion": lambda x: factorial(x, 3),
    "from numpy import": lambda x: exp(-x) + zeros(4),
    "module alias": lambda x: la.norm(x) + np.linalg.norm(x, 1),
    "nested function": lambda x: (lambda y: double(y) * x)(x + 1),
    "closure": make_adder(2.5),
    "default arguments": with_default,
    "partial": functools.partial(factorial, n=2),
    "table of functions": lambda x: ACTIVATIONS["double"](x) + ACTIVATIONS["exp"](-x),
    "module of helpers": helpers.fill,
    "bound method": Model(TABLE).forward,
    "callable object": Model(TABLE),
    "object in a closure": (lambda model: lambda x: model(x) + model.total)(Model(TABLE)),
    "global array": lambda x: x * TABLE + TABLE[1:].sum(),
    "global array indexed by a traced array": lambda x: TABLE[x.astype(np.int64)],
    "global list as index": lambda x: x[ORDER],
    "global scalar": lambda x: x * SCALE + math.pi,
    "scipy": lambda x: scipy.special.expit(x) + softmax(x) + scipy.special.logsumexp(x) + scipy.special.log_softmax(x),
    "list of arrays": lambda x: np.array([x, x * 2]) + np.asarray([x[0], 1.0, x[1], 2]),
    "array of numbers": lambda x: np.array([1, 2, 3, 4]) * x + np.array(3.0),
    "sum of a list": lambda x: (np.sum([x, x]), np.max((x[0], x[1])), np.mean([x, x * 2], axis=0)),
    "isinstance": lambda x: x * 2 if isinstance(x, np.ndarray) and not isinstance(x, float) else 1 / 0,
    "shape decisions": lambda x: x * 2 if x.shape[0] > 3 and x.ndim == 1 and len(x) == 4 else x,
    "known values in Python": lambda x: sum(
        x[k] * float(w) for k, w in zip(np.arange(3), np.linspace(0, 1, 3), strict=True)
    ),
    "known condition": lambda x: x if np.arange(4).sum() > 5 else -x,
    "known loop bound": lambda x: sum(x * k for k in range(int(np.ceil(2.5)))),
    "cached function": lambda x: cached(x) + x[:1],
    "errstate": lambda x: np.divide(x, 2.0) if np.errstate(all="ignore") else x,
    "dtype attributes": lambda x: x.astype(np.float32) if x.dtype == np.float64 else x,
    "finfo": lambda x: x + np.finfo(x.dtype).eps + np.iinfo(np.int8).max,
    "numpy constants": lambda x: x[np.newaxis] * np.pi + np.e,
    "seeded generator": lambda x: x + np.random.default_rng(3).normal(size=4),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, agrees: Any) -> None:
    if name == "cached function":
        assert trace(PROGRAMS[name], X).graph.nodes  # NumPy's arrays are not hashable: only traced, it runs
        return
    agrees(PROGRAMS[name], X, ulps=8)


def test_imports_inside_the_function(agrees: Any) -> None:
    def f(x: Any) -> Any:
        import numpy
        import numpy as nn
        from numpy import empty

        a = empty(4)
        a[:] = nn.zeros_like(x) + numpy.linalg.norm(x)
        return a

    agrees(f, X)


def test_global_statements_change_only_the_copy() -> None:
    with pytest.warns(OutsideStateWarning, match="changes CALLS outside of itself"):
        traced = trace(lambda x: count(count(x)), X)
    assert CALLS == 0
    assert [node.op for node in traced.graph.nodes].count("add") == 2


def test_the_users_function_is_untouched() -> None:
    before = double.__globals__["np"], double.__code__, with_default.__defaults__
    trace(with_default, X)
    assert (double.__globals__["np"], double.__code__, with_default.__defaults__) == before
    assert isinstance(double(X), np.ndarray)
    assert isinstance(Model(TABLE).forward(X), np.ndarray)


def test_writing_into_a_global_array_is_an_error() -> None:
    def f(x: Any) -> Any:
        TABLE[0] = x[0]
        return TABLE

    with pytest.raises(TraceError, match="read-only: it is a global"):
        trace(f, X)
    assert TABLE[0] == 10.0


def test_later_changes_of_a_global_array_do_not_reach_the_graph() -> None:
    table = np.ones(4)
    traced = trace(lambda x: x + table, X)
    table[:] = 7
    (constant,) = (node for node in traced.graph.nodes if node.op == "constant")
    assert constant.attrs["value"].tolist() == [1.0] * 4


GENERATOR = np.random.default_rng(0)
DICE = random.Random(0)


class Layer:
    """Holds a generator, as many models do."""

    def __init__(self) -> None:
        self.rng = np.random.RandomState(0)

    def dropout(self, x: Any) -> Any:
        return x * (self.rng.uniform(size=x.shape) > 0.5)


LAYER = Layer()


def _with_default(x: Any, rng: Any = GENERATOR) -> Any:
    return x + rng.normal()


def _importing(x: Any) -> Any:
    import random as dice

    return x * dice.random()


DRAWS: dict[str, tuple[Any, str]] = {
    "np.random": (lambda x: x + np.random.rand(4), r"numpy\.random\.rand|RandomState\.rand"),
    "np.random.seed": (lambda x: [np.random.seed(0), x], "RandomState.seed"),
    "unseeded": (lambda x: x + np.random.default_rng().normal(size=4), r"default_rng\(\) without a seed"),
    "unseeded by name": (lambda x: x + default_rng().normal(size=4), r"default_rng\(\) without a seed"),
    "by name": (lambda x: x + normal(size=4), r"np\.random\.RandomState\.normal"),
    "a generator of the module": (lambda x: x + GENERATOR.normal(size=4), r"np\.random\.Generator\.normal"),
    "a generator in a container": (lambda x: [g.normal() * x for g in (GENERATOR,)], r"Generator\.normal"),
    "a generator as a default": (_with_default, r"Generator\.normal"),
    "a generator of an object": (LAYER.dropout, r"RandomState\.uniform"),
    "random": (lambda x: x * random.random(), r"random\.Random\.random"),
    "random by name": (lambda x: x * gauss(0, 1), r"random\.Random\.gauss"),
    "random imported inside": (_importing, r"Random\.random"),
    "a random.Random": (lambda x: x * DICE.random(), r"random\.Random\.random"),
    "secrets": (lambda x: x * secrets.randbelow(3), "secrets.randbelow"),
    "the system": (lambda x: x * os.urandom(1)[0], r"urandom"),
    "uuid": (lambda x: x * uuid.uuid4().int, r"uuid\.uuid4"),
}


@pytest.mark.parametrize("form", DRAWS)
def test_numbers_drawn_from_outside_are_an_error(form: str) -> None:
    program, what = DRAWS[form]
    with pytest.raises(TraceError, match=what) as caught:
        trace(program, X)
    message = str(caught.value)
    assert "would freeze today's numbers" in message
    assert "pass them as an argument" in message
    assert "test_proxy.py:" in message


def test_a_generator_made_inside_from_a_seed_draws_the_same_in_every_call(agrees: Any) -> None:
    def f(x: Any) -> Any:
        rng = np.random.default_rng(7)
        dice = random.Random(3)
        return x + rng.normal(size=4), x * dice.random(), x + isinstance(GENERATOR, np.random.Generator)

    agrees(f, X)


def test_modules_that_hold_a_source_of_numbers_keep_the_rest(agrees: Any) -> None:
    agrees(lambda x: x * len(os.path.join("a", "b")), X)


CREATION: dict[str, Any] = {
    "zeros ones": lambda x: (np.zeros(3), np.ones((2, 2), np.float32), np.zeros((), int), np.empty(0)),
    "full": lambda x: (np.full(3, 2), np.full((2,), 1.5, "f4"), np.full(3, x[1]), np.full((2, 4), x)),
    "like": lambda x: (np.zeros_like(x), np.ones_like(x, dtype=int), np.full_like(x, 7), np.empty_like(x, shape=0)),
    "arange": lambda x: (
        np.arange(5),
        np.arange(2, 9, 3),
        np.arange(0.0, 1.0, 0.3),
        np.arange(5, 0, -2),
        np.arange(3, dtype="f4"),
    ),
    "arange of sizes": lambda x: (np.arange(len(x)), np.arange(x.size) * x, np.arange(0)),
    "linspace": lambda x: (
        np.linspace(0, 1, 5),
        np.linspace(0, 1, 4, endpoint=False),
        *np.linspace(0, 2, 3, retstep=True)[:1],
    ),
    "linspace of traced bounds": lambda x: (np.linspace(x[0], x[3], 4), np.linspace(x, x + 3, 4, axis=-1)),
    "eye": lambda x: (np.eye(3), np.eye(2, 4, 1), np.eye(4, k=-2, dtype=np.int32), np.identity(2), np.tri(3)),
    "diag": lambda x: (np.diag(x), np.vander(x, 3), np.vander(x, increasing=True)),
    "array": lambda x: (
        np.array(x),
        np.array([x[0], x[1] * 2]),
        np.array([[1, x[2]], [x[3], 4]]),
        np.array(2, ndmin=2),
    ),
    "array dtypes": lambda x: (
        np.array([x[0], 1], np.float32),
        np.asarray([1, 2.5]),
        np.array(x, dtype=int),
        np.array([True]),
    ),
    "grids": lambda x: (np.indices((2, 3)), np.geomspace(1, 8, 4), np.logspace(0, 1, 3), np.hanning(5)),
    "triangle indices": lambda x: np.add.outer(x, x)[np.triu_indices(4, 1)],
    "mgrid": lambda x: np.mgrid[0:2, 0:3] + x[0],
    "shape from an array": lambda x: np.zeros(np.array([2, 3])),
}


@pytest.mark.parametrize("form", CREATION)
def test_creation(form: str, agrees: Any) -> None:
    agrees(CREATION[form], X, ulps=2)


def test_created_arrays_can_be_written(agrees: Any) -> None:
    def f(x: Any) -> Any:
        a, b, c, d = np.zeros(4), np.array([1.0, 2.0, 3.0, 4.0]), np.arange(4), np.eye(4)
        a[1:] = x[:-1]
        b[0] += x[3]
        c[::2] = x[::2]
        d[:, 1] = x
        np.fill_diagonal(d, x)
        return a, b, c, d

    agrees(f, X)


def test_large_constant_fills_cost_no_constant() -> None:
    traced = trace(lambda x: x + np.zeros((1000, 1000)) + np.arange(1000) + np.eye(1000), spec("f64[1000,1000]"))
    sizes = [node.output.type.size for node in traced.graph.nodes if node.op == "constant"]
    assert max(sizes) == 1


@dataclass
class Params:
    """A container of arrays."""

    w: Any
    b: Any
    rate: float = 0.5


def test_structures_of_arguments_and_results(agrees: Any) -> None:
    def f(params: Params, batch: dict[str, Any], pair: Any, n: int) -> Any:
        out = params.w * batch["x"] * params.rate + params.b
        pair[0][0] = 5
        return {"out": out, "params": Params(params.w - out, params.b), "n": n, "none": None}, [out.sum(), pair[1]]

    traced = agrees(f, Params(X, X + 1), {"x": X * 2}, (X * 3, [X + 2]), 3)
    assert [value.name for value in traced.graph.inputs] == ["params_w", "params_b", "batch_x", "pair_0", "pair_1_0"]
    assert traced.parameters == ("params", "batch", "pair", "n")
    assert [traced.graph.inputs[i].name for i, _ in traced.writebacks] == ["pair_0"]


def test_names_come_from_variables_and_operations() -> None:
    def f(x: Any, w: Any) -> Any:
        hidden = x @ w
        hidden = np.maximum(hidden, 0)
        return np.exp(hidden)

    names = [node.name for node in trace(f, spec("f32[2,3]"), spec("f32[3,4]")).graph.nodes]
    assert names[0] == "hidden"
    assert names[-2:] == ["hidden_1", "exp"]


def test_nodes_know_their_line() -> None:
    graph = trace(double, X).graph
    locations = {node.location for node in graph.nodes if node.op == "multiply"}
    (location,) = locations
    assert location is not None
    assert location.file == __file__
    assert location.function == "double"
    assert location.line == double.__code__.co_firstlineno + 2
