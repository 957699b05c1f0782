"""Calls with structured arguments in native code: what it takes, what it leaves to Python, and whose references."""

import gc
import sys
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError
from autofuse.ir.tree import Branch, Leaf, Static, flatten
from autofuse.targets.cpu.native.treedata import tree_data

A, B, C = (np.arange(6.0).reshape(2, 3) + k for k in range(3))


def step(state, scale):
    """A tree of every plain container, with a static value in the arguments and in the result."""
    x, (y, z) = state["x"], state["pair"]
    return {"sum": x + y * scale, "parts": [(x * z, None)], "mean": x.mean()}


STATE = {"x": A, "pair": [B, C]}


@pytest.fixture(scope="module")
def plan():
    return af.compile(step, STATE, 2.0)


def native(plan, *args):
    return plan.executable.native.call_tree(*args)


def assert_right(result, scale=2.0):
    np.testing.assert_array_equal(result["sum"], A + B * scale)
    np.testing.assert_array_equal(result["parts"][0][0], A * C)
    np.testing.assert_allclose(result["mean"], A.mean())


def test_results_have_the_structure_that_the_function_gives(plan):
    result = native(plan, STATE, plan.document.in_tree.children[1].value)
    assert_right(result)
    assert type(result) is dict
    assert list(result) == ["sum", "parts", "mean"]
    assert type(result["parts"]) is list
    assert type(result["parts"][0]) is tuple
    assert result["parts"][0][1] is None
    assert type(result["mean"]) is np.float64


Pair = namedtuple("Pair", "a b")

UNUSUAL = {
    "another order of keys": ({"pair": [B, C], "x": A}, 2.0),
    "an equal number": (STATE, float("2.0")),
    "a number of another type": (STATE, np.float64(2.0)),
    "a subclass of dict": (OrderedDict(STATE), 2.0),
    "a transposed array": ({"x": np.asfortranarray(A), "pair": [B, C]}, 2.0),
}


@pytest.mark.parametrize("case", UNUSUAL)
def test_unusual_arguments_work(plan, case):
    assert_right(plan(*UNUSUAL[case]))


REFUSED = {
    "too few arguments": (STATE,),
    "a tuple for a list": ({"x": A, "pair": (B, C)}, 2.0),
    "a key too many": ({**STATE, "more": A}, 2.0),
    "another key": ({"y": A, "pair": [B, C]}, 2.0),
    "a list too short": ({"x": A, "pair": [B]}, 2.0),
    "another number": (STATE, 3.0),
    "another shape": ({"x": A[:1], "pair": [B, C]}, 2.0),
    "no container": (A, 2.0),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_arguments_are_refused(plan, case):
    assert native(plan, *REFUSED[case]) is NotImplemented
    with pytest.raises(ArgumentError):
        plan(*REFUSED[case])


def test_no_reference_is_lost_or_kept(plan):
    scale = plan.document.in_tree.children[1].value

    def counts():
        gc.collect()
        return [sys.getrefcount(thing) for thing in (A, B, C, STATE, NotImplemented, scale, plan)]

    native(plan, STATE, scale)
    before = counts()
    for _ in range(50):
        native(plan, STATE, scale)
        for args in REFUSED.values():
            native(plan, *args)
    after = counts()
    # NotImplemented, a static value: the interpreter itself may hold a few more
    assert all(abs(b - a) < 10 for a, b in zip(before, after, strict=True))


def test_a_float_is_taken_by_its_bits():
    zero = af.compile(lambda x, c: x / c, A, 0.0)
    assert native(zero, A, float("0")) is not NotImplemented
    assert native(zero, A, -0.0) is NotImplemented


class Rude:
    """Equal to nothing, loudly, and in the same place of every dict as `"x"`."""

    def __hash__(self):
        return hash("x")

    def __eq__(self, other):
        raise RuntimeError("compared")


def test_keys_that_cannot_be_compared(plan):
    assert native(plan, {Rude(): A, "pair": [B, C]}, 2.0) is NotImplemented


def test_arguments_live_through_the_call_that_empties_their_list():
    def swap(values):
        return values[0] + 1

    values = [np.ones(4)]
    plan = af.compile(swap, values)
    result = plan(values)
    values.clear()
    np.testing.assert_array_equal(result, np.full(4, 2.0))


def test_trees_of_other_things_have_no_native_form():
    array = lambda leaf: isinstance(leaf, np.ndarray)  # noqa: E731 - a one-line predicate
    assert tree_data((flatten({"a": A, "b": [B, 1.5]}, array)[1],)) is not None
    assert tree_data((flatten(Pair(A, B), array)[1],)) is None
    deep = Leaf()
    for _ in range(100):
        deep = Branch("list", (0,), (deep,))
    assert tree_data((deep,)) is None
    assert tree_data((Static(None), Leaf(scalar=True))) is not None
