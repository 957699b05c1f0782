"""Trees: structure apart from arrays, and back; their JSON form."""

from __future__ import annotations

import json
import math
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from autofuse.errors import ArgumentError, PlanError
from autofuse.ir import tree
from autofuse.ir.tree import Branch, Leaf, Static

Point = namedtuple("Point", "x y")


@dataclass
class Layer:
    """A container of arrays."""

    w: Any
    rate: float


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic)


A, B = np.zeros(2), np.ones(3)
VALUES: dict[str, Any] = {
    "array": A,
    "scalar": np.float32(1),
    "nested": (A, [B, {"k": A, "n": 3}], None, "text"),
    "namedtuple": Point(A, 2.5),
    "dataclass": Layer(A, 0.5),
    "dtypes": [np.float32, np.dtype("i8"), np.complex64, np.dtype(np.complex128), True],
    "classes": [bool, int, float, complex],
    "not finite": [math.inf, -math.inf, math.nan],
    "empty": [(), [], {}],
    "keys": {1: A, "b": B, 2.5: A, False: B},
}


@pytest.mark.parametrize("name", VALUES)
def test_flatten_and_back(name: str) -> None:
    leaves, structure = tree.flatten(VALUES[name], is_array)
    again = tree.unflatten(structure, leaves)
    assert type(again) is type(VALUES[name])
    assert tree.flatten(again, is_array)[1] == structure
    assert all(a is b for a, b in zip(tree.flatten(again, is_array)[0], leaves, strict=True))


@pytest.mark.parametrize("name", VALUES)
def test_json_round_trip(name: str) -> None:
    leaves, structure = tree.flatten(VALUES[name], is_array)
    text = json.dumps(tree.to_json(structure), allow_nan=False)
    read = tree.from_json(json.loads(text))
    assert read == structure
    tree.unflatten(read, leaves)


def test_containers_read_from_json_are_plain() -> None:
    _, structure = tree.flatten((Point(A, 1), Layer(A, 0.5)), is_array)
    point, layer = tree.unflatten(tree.from_json(tree.to_json(structure)), [A, B])
    assert point._fields == ("x", "y")
    assert point.x is A
    assert layer.w is B
    assert layer.rate == 0.5


def test_a_namedtuple_read_from_json_has_one_class_and_keeps_renamed_fields() -> None:
    _, structure = tree.flatten(namedtuple("Row", ["x", "class"], rename=True)(A, B), is_array)
    read = tree.from_json(tree.to_json(structure))
    first, second = tree.unflatten(read, [A, B]), tree.unflatten(read, [B, A])
    assert first._fields == ("x", "_1")
    assert type(first) is type(second)


def test_a_structure_read_from_json_accepts_the_original_class() -> None:
    _, structure = tree.flatten((Point(A, 1), Layer(A, 0.5)), is_array)
    read = tree.from_json(tree.to_json(structure))
    leaves = tree.flatten_as(read, (Point(A, 1), Layer(B, 0.5)))
    assert [leaf is expected for leaf, expected in zip(leaves, (A, B), strict=True)] == [True, True]


def test_paths_are_what_python_would_write() -> None:
    _, structure = tree.flatten(({"w": [A, Point(A, B)]}, B), is_array)
    assert tree.paths(structure) == ['args[0]["w"][0]', 'args[0]["w"][1].x', 'args[0]["w"][1].y', "args[1]"]


MISMATCHES: dict[str, tuple[Any, Any]] = {
    r"args\[0\] must be 3, the value at tracing; got 4": ((3,), (4,)),
    r"must be 3, .* got 3\.0": ((3,), (3.0,)),
    r"args\[1\] must be a list, got tuple": ((A, [A]), (A, (A,))),
    r"must have the entries \['w'\], got \['v'\]": ({"w": A}, {"v": A}),
    r"must have the entries \[0, 1\], got \[0\]": ([A, A], [A]),
    r"args must be a dict, got ndarray": ({"w": A}, A),
}


@pytest.mark.parametrize("message", MISMATCHES)
def test_mismatches_are_named(message: str) -> None:
    made, given = MISMATCHES[message]
    _, structure = tree.flatten(made, is_array)
    with pytest.raises(ArgumentError, match=message):
        tree.flatten_as(structure, given)


@pytest.mark.parametrize("name", VALUES)
def test_the_fast_way_gives_the_same_leaves_or_gives_up(name: str) -> None:
    leaves, structure = tree.flatten(VALUES[name], is_array)
    taken: list[Any] = []
    plain = name not in ("namedtuple", "dataclass")
    assert tree.take_leaves(structure, VALUES[name], taken) is plain
    assert not plain or all(a is b for a, b in zip(taken, leaves, strict=True))


@pytest.mark.parametrize("message", MISMATCHES)
def test_the_fast_way_gives_up_on_mismatches(message: str) -> None:
    made, given = MISMATCHES[message]
    _, structure = tree.flatten(made, is_array)
    assert not tree.take_leaves(structure, given, [])


def test_static_parts_compare_by_value() -> None:
    _, structure = tree.flatten([math.nan, np.float32, "a"], is_array)
    assert tree.flatten_as(structure, [math.nan, np.dtype("f4"), "a"]) == []


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_of_either_sign_are_two_static_values(zero: float) -> None:
    _, structure = tree.flatten([zero], is_array)
    assert tree.flatten_as(structure, [zero]) == []
    assert not tree.take_leaves(structure, [-zero], [])
    with pytest.raises(ArgumentError):
        tree.flatten_as(structure, [-zero])
    assert structure != tree.flatten([-zero], is_array)[1]


def test_held_arrays_compare_by_content() -> None:
    _, structure = tree.flatten([tree.hold(A), B], is_array)
    read = tree.from_json(tree.to_json(structure))
    assert tree.flatten_as(read, [np.zeros(2), B])[0] is B
    with pytest.raises(ArgumentError):
        tree.flatten_as(read, [np.ones(2), B])
    with pytest.raises(ArgumentError):
        tree.flatten_as(read, [np.zeros(2, np.float32), B])


@pytest.mark.parametrize("value", [object(), {1, 2}, np.dtype("U3"), str, list])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(ArgumentError, match="required: an array"):
        tree.flatten([value], is_array)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"leaf": "other"},
        {"leaf": "array", "extra": 1},
        {"static": {"dtype": 3}},
        {"static": [1]},
        {"static": {"float": "1"}},
        {"tuple": {}},
        {"tuple": [], "list": []},
        {"dict": [{"leaf": "array"}], "keys": []},
        {"namedtuple": [{"leaf": "array"}], "keys": ["import os"], "name": "P"},
        {"namedtuple": [{"leaf": "array"}], "keys": ["class"], "name": "P"},
        {"namedtuple": [{"leaf": "array"}], "keys": ["x"], "name": "class"},
        {"namedtuple": [{"leaf": "array"}], "keys": ["_x"], "name": "P"},
        {"namedtuple": [{"leaf": "array"}, {"leaf": "array"}], "keys": ["x", "x"], "name": "P"},
        {"namedtuple": [{"leaf": "array"}, {"leaf": "array"}], "keys": ["\ufb01", "fi"], "name": "P"},
        {"dict": [{"leaf": "array"}, {"leaf": "array"}], "keys": [1, True]},
        {"dataclass": [], "keys": [], "name": "a b"},
        {"module": "os"},
    ],
)
def test_hostile_json_is_refused(data: Any) -> None:
    with pytest.raises(PlanError):
        tree.from_json(data)


def test_wrong_number_of_leaves() -> None:
    with pytest.raises(ArgumentError, match="has 1 arrays, got 2"):
        tree.unflatten(Branch("tuple", (0, 1), (Leaf(), Static(2))), [A, B])
