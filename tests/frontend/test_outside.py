"""What a traced function changes outside of itself: of arguments an error, of the rest one warning."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import warnings
from collections import deque
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import NumpyOnlyError, OutsideStateWarning, TraceError
from autofuse.frontend.traced import trace

X = np.arange(4.0)
COUNT = 0
TABLE: dict[Any, Any] = {}
LOG: list[Any] = []
SEEN: set[Any] = set()
LAST: deque[Any] = deque(maxlen=2)
SPACE = SimpleNamespace(n=0, log=[])
module = ModuleType("module_of_numbers")
module.n = 1
module.__file__ = __file__


class Counter:
    """An object that counts, and keeps what was costly."""

    made = 0

    def __init__(self) -> None:
        self.n = 0
        self.log: list[Any] = []

    def step(self) -> int:
        self.n += 1
        return self.n

    @functools.cached_property
    def window(self) -> Any:
        return np.hanning(4)


COUNTER = Counter()


@pytest.fixture(autouse=True)
def nothing_kept():
    for container in (TABLE, LOG, SEEN, LAST, SPACE.log, COUNTER.log):
        container.clear()
    vars(COUNTER).pop("window", None)
    SPACE.n = COUNTER.n = Counter.made = 0


# ---- arguments -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Weights:
    """An argument with attributes."""

    w: Any
    n: int = 1


@dataclasses.dataclass(slots=True)
class Slotted:
    """One without a dict."""

    w: Any


def replaces_entry(x, d):
    d["w"] = d["w"] - x


def adds_entry(x, d):
    d["new"] = 3
    return x


def removes_entry(x, d):
    return x * d.pop("n")


def appends(x, items):
    items.append(x)


def replaces_item(x, items):
    items[0] = items[0] * 2
    return x


def reorders(x, items):
    items.sort()
    return x


def assigns(x, weights):
    weights.w = weights.w * x


def deep(x, pair):
    pair[1]["a"] = x


CHANGES: list[Any] = [
    (replaces_entry, lambda: {"w": X.copy()}, r"changing d, an argument.*\n.*\n.*d\['w'\]\[\.\.\.\] = value"),
    (adds_entry, lambda: {"w": X.copy()}, "changing d,"),
    (removes_entry, lambda: {"n": 2}, "changing d,"),
    (appends, lambda: [X.copy()], "changing items,"),
    (replaces_item, lambda: [X.copy(), 1], r"items\[0\]\[\.\.\.\] = value"),
    (reorders, lambda: [3, 1, 2], "changing items,"),
    (assigns, lambda: Weights(X.copy()), r"weights\.w\[\.\.\.\] = value"),
    (assigns, lambda: Slotted(X.copy()), r"weights\.w\[\.\.\.\] = value"),
    (deep, lambda: (1, {"a": X.copy()}), r"changing pair\[1\],"),
]


@pytest.mark.parametrize(("function", "argument", "message"), CHANGES)
def test_arguments_that_python_would_change_are_refused(function, argument, message):
    with pytest.raises(TraceError, match=message):
        af.jit(function)(X, argument())


def test_what_is_written_into_arrays_of_arguments_is_no_such_change():
    def step(params, rate, *layers, **more):
        params["w"] -= rate
        params["w"][0] = 7
        layers[0].w[...] = more.pop("b")
        own = [params["w"], rate]
        own.append(2)
        return own

    def arguments():
        return [{"w": X.copy()}, np.float64(0.5), Weights(X.copy())], {"b": X + 1}

    ours, theirs = arguments(), arguments()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = af.jit(step)(*ours[0], **ours[1])
    expected = step(*theirs[0], **theirs[1])
    np.testing.assert_array_equal(result[0], expected[0])
    np.testing.assert_array_equal(ours[0][0]["w"], theirs[0][0]["w"])
    np.testing.assert_array_equal(ours[0][2].w, theirs[0][2].w)


# ---- globals, closures, defaults, objects ----------------------------------------------------------------------------


def assigns_global(x):
    global COUNT  # noqa: PLW0603 - what is tested
    COUNT += 1
    return x * COUNT


def closure():
    count = 0

    def counts(x):
        nonlocal count
        count += 1
        return x * count

    return counts


def has_default(x, found=[]):  # noqa: B006 - what is tested
    found.append(1)
    return x * len(found)


def has_attribute(x):
    has_attribute.n = getattr(has_attribute, "n", 0) + 1
    return x * has_attribute.n


def class_attribute(x):
    Counter.made += 1
    return x * Counter.made


STATES: dict[str, Any] = {
    "COUNT": assigns_global,
    "count": closure(),
    "found": has_default,
    "has_attribute.n": has_attribute,
    "Counter.made": class_attribute,
    "COUNTER.n": lambda x: x * COUNTER.step(),
    "Counter.log": lambda x: (COUNTER.log.append(1), x)[1],
    "SPACE.n": lambda x: (setattr(SPACE, "n", 3), x)[1],
    "a list": lambda x: (SPACE.log.append(1), x)[1],
    "LOG": lambda x: (LOG.append(x.shape), x)[1],
    "SEEN": lambda x: (SEEN.add(3), x)[1],
    "LAST": lambda x: (LAST.append(3), x)[1],
    "TABLE": lambda x: x * TABLE.setdefault("n", 2),
}


@pytest.mark.parametrize("name", STATES)
def test_what_is_changed_elsewhere_is_said_once(name):
    with pytest.warns(OutsideStateWarning, match=rf"changes {name} outside of itself.*pass such values") as caught:
        trace(STATES[name], X)
    assert [warning.filename for warning in caught] == [__file__]


def test_what_stays_as_it_was_is_not_mentioned():
    def quiet(x):
        own = {"a": x}
        own["b"] = [COUNTER.n, *LOG, *TABLE, *LAST]
        return own["a"] * COUNTER.window + Counter.made + sum(i for i in iter([1, 2]))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(af.jit(quiet)(X), X * np.hanning(4) + 3)
    assert type(COUNTER.window) is np.ndarray


def test_arrays_that_are_known_stay_outside_as_numpys():
    def windowed(x):
        if "window" not in TABLE:
            TABLE["window"] = np.hanning(len(x))
        return x * TABLE["window"]

    with pytest.warns(OutsideStateWarning, match="TABLE"):
        np.testing.assert_array_equal(af.jit(windowed)(X), X * np.hanning(4))
    assert type(TABLE["window"]) is np.ndarray
    TABLE["window"] *= 2


LEAKS: dict[str, Any] = {
    "LOG": lambda x: (LOG.append(x * 2), x)[1],
    "LOG ": lambda x: (LOG.append(("step", x * 2)), x)[1],
    "TABLE": lambda x: (TABLE.update(a=x), x)[1],
    "LAST": lambda x: (LAST.append(x), x)[1],
    "SPACE.n": lambda x: (setattr(SPACE, "n", x), x)[1],
    "a list": lambda x: (SPACE.log.append(x), x)[1],
    "COUNTER.n": lambda x: (setattr(COUNTER, "n", x + 1), x)[1],
    "Counter.made": lambda x: (setattr(Counter, "made", x + 1), x)[1],
}


@pytest.mark.parametrize("name", LEAKS)
def test_traced_arrays_do_not_stay_outside(name):
    with pytest.raises(TraceError, match=f"{name.strip()}, outside of the function, was given a traced array"):
        trace(LEAKS[name], X)
    assert [len(container) for container in (LOG, TABLE, LAST, SPACE.log)] == [0, 0, 0, 0]
    assert (SPACE.n, COUNTER.n, Counter.made) == (0, 0, 0)


def test_a_trace_that_fails_changes_nothing():
    def fails(x):
        LOG.append(1)
        TABLE["a"] = SPACE.n = COUNTER.n = Counter.made = x
        SEEN.add(2)
        return np.nonzero(x)

    with pytest.raises(TraceError, match=r"np\.nonzero"):
        trace(fails, X)
    assert [len(container) for container in (LOG, TABLE, SEEN)] == [0, 0, 0]
    assert (SPACE.n, COUNTER.n, Counter.made) == (0, 0, 0)


def test_a_module_is_not_assigned_to():
    def assigns_there(x):
        module.n = 2
        return x * module.n

    with pytest.raises(TraceError, match=r"assigning module_of_numbers\.n in a function that is compiled"):
        trace(assigns_there, X)


@pytest.mark.parametrize(
    "make",
    [itertools.count, lambda: iter([1.0, 2.0]), lambda: (i for i in range(3)), lambda: zip([1], [2], strict=True)],
)
def test_iterators_from_outside_are_not_used_up(make):
    items = make()
    for use in (lambda x: x * next(items), lambda x: (list(items), x)[1], lambda x: [x for _ in items]):
        with pytest.raises(TraceError, match=f"a {type(items).__name__} made outside the traced function"):
            trace(use, X)
    assert len(list(itertools.islice(items, 1))) == 1


# ---- floating-point errors -------------------------------------------------------------------------------------------


def hears(x):
    try:
        with np.errstate(divide="raise"):
            return 1.0 / (x - x)
    except FloatingPointError:
        return x


@np.errstate(all="raise")
def hears_too(x):
    return 1.0 / (x - x)


def asks_for_all(x):
    old = np.seterr(all="raise")
    try:
        return 1.0 / (x - x)
    except FloatingPointError:
        return x
    finally:
        np.seterr(**old)


@pytest.mark.parametrize("function", [hears, hears_too, asks_for_all])
def test_who_hears_of_floating_point_errors_runs_through_numpy(function):
    before = np.geterr()
    with pytest.raises(NumpyOnlyError, match="kernels raise no floating-point errors"):
        trace(function, X)
    assert np.geterr() == before


def test_such_a_function_gives_what_numpy_gives():
    with pytest.warns(af.errors.LeftToNumpyWarning, match=r"np\.errstate\(divide='raise'\)"):
        np.testing.assert_array_equal(af.jit(hears)(X), X)


@np.errstate(all="ignore")
def inverse(x):
    return 1.0 / (x - x)


SILENT = np.errstate(divide="ignore", invalid="warn")


def test_other_modes_are_let_through():
    def silent(x):
        with np.errstate(all="ignore"), SILENT:
            return inverse(x)

    with np.errstate(all="raise"):  # of the caller: it changes nothing, also where constants are folded
        narrow = af.jit(lambda x: x * 1e300)(X.astype(np.float32))
        np.testing.assert_array_equal(af.jit(silent)(X), np.full(4, np.inf))
    np.testing.assert_array_equal(narrow, np.array([np.nan, np.inf, np.inf, np.inf], np.float32))


# ---- isinstance ------------------------------------------------------------------------------------------------------

KINDS = (float, int, bool, complex, np.floating, np.float64, np.integer, np.bool_, np.generic, np.ndarray, list)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.bool_, np.complex128])
def test_isinstance_says_what_numpy_has(dtype):
    def classes(x):
        number, zero = x[0], np.array(x[0])
        values = [x, number, zero, x.sum(), x == x, number == number, x.shape, 3]
        return [[isinstance(value, kind) for kind in KINDS] for value in values] + [
            isinstance(number, (list, np.number)),
            isinstance(number, float | np.ndarray),
        ]

    x = X.astype(dtype)
    assert af.jit(classes)(x) == classes(x)


def test_isinstance_of_numbers_that_loops_decide():
    def total(x):
        s = 0.0
        for i in range(20):
            s = s * 0.5 + x[i] if isinstance(s, float) and isinstance(i, int) else x[0] * np.nan
        return s

    x = np.linspace(-1, 1, 20)
    assert af.jit(total)(x) == total(x)
