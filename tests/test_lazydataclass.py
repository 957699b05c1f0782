"""Dataclasses that are quick to define behave as the standard library's."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autofuse import lazydataclass
from autofuse.ir.dtypes import BF16, F32

WAYS = (dataclasses.dataclass, lazydataclass.dataclass)


def pairs(**options: bool) -> list[Any]:
    """One class, made by the standard library and by ours."""

    def made(dataclass: Any) -> Any:
        class Point:
            """A point."""

            x: int
            names: list[str] = dataclasses.field(default_factory=list)
            _weight: float = dataclasses.field(default=1.0, compare=False, repr=False)
            seen: int = dataclasses.field(default=7, init=False)
            kept: dict[str, int] = dataclasses.field(default_factory=dict, init=False)
            later: int = dataclasses.field(default=3, kw_only=True)

        return dataclass(**options)(Point)

    return [made(way) for way in WAYS]


OPTIONS = [
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
    {"frozen": True, "slots": True, "repr": False, "eq": False, "kw_only": True},
    {"frozen": True, "slots": True, "weakref_slot": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_a_class_is_as_the_standard_library_makes_it(options: dict[str, bool]):
    theirs, ours = pairs(**options)
    shown = [
        [(p.name, p.kind, p.annotation) for p in inspect.signature(one).parameters.values()] for one in (ours, theirs)
    ]
    assert shown[0] == shown[1]
    assert dataclasses.is_dataclass(ours)
    assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]
    assert ours.__match_args__ == theirs.__match_args__
    assert getattr(ours, "__slots__", None) == getattr(theirs, "__slots__", None)
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    assert (ours.__eq__ is object.__eq__) == (theirs.__eq__ is object.__eq__)
    for arguments in ({"x": 1}, {"x": 1, "names": ["a"], "_weight": 2.0, "later": 4}):
        one, other = theirs(**arguments), ours(**arguments)
        assert dataclasses.asdict(other) == dataclasses.asdict(one)
        assert (repr(other) == repr(one)) or options.get("repr") is False
        assert (ours(**arguments) == other) == (theirs(**arguments) == one)
        assert other != one
        assert copy.copy(other).names == one.names
        assert dataclasses.replace(other, x=5, _weight=0.5).x == 5


@pytest.mark.parametrize("dataclass", WAYS)
def test_what_is_compared_is_hashed(dataclass: Any):
    @dataclass(frozen=True, slots=True)
    class Pair:
        first: int
        second: str = dataclasses.field(default="", compare=False)

    assert Pair(1, "a") == Pair(1, "b")
    assert hash(Pair(1, "a")) == hash(Pair(1, "b")) == hash((1,))
    assert Pair(1) != (1,)


@pytest.mark.parametrize("dataclass", WAYS)
def test_frozen_ones_refuse_changes_with_the_same_words(dataclass: Any):
    @dataclass(frozen=True, slots=True)
    class Frozen:
        first: int

    one = Frozen(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'first'"):
        one.first = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'first'"):
        del one.first
    assert one.first == 1


@pytest.mark.parametrize("dataclass", WAYS)
def test_methods_of_ones_own_stay(dataclass: Any):
    @dataclass(frozen=True, slots=True)
    class Own:
        first: int

        def __init__(self, text: str) -> None:
            object.__setattr__(self, "first", int(text))

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    assert (repr(Own("3")), Own("3") == 4, hash(Own("3")), Own("3").first) == ("own", True, 5, 3)


@pytest.mark.parametrize("of_base", WAYS)
@pytest.mark.parametrize("dataclass", WAYS)
def test_derived_ones_begin_with_the_fields_of_their_base(dataclass: Any, of_base: Any):
    seen: list[int] = []

    @of_base(frozen=True)
    class Base:
        first: int = 1

        def __post_init__(self) -> None:
            seen.append(self.first)

    @dataclass(frozen=True)
    class Derived(Base):
        second: int = 2

    @dataclass(frozen=True)
    class Own(Base):
        second: int = 2

        def __init__(self, first: int) -> None:
            super().__init__(first)

    Own(9)
    assert seen.pop() == 9
    assert (Derived(5) == Derived(5, 2), Derived(5) == Base(5), seen) == (True, False, [5, 5, 5, 5])
    assert repr(Derived()).endswith("Derived(first=1, second=2)")
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclass(type("Changing", (Base,), {}))
    with pytest.raises(dataclasses.FrozenInstanceError):
        Derived().second = 3


def test_other_values_of_some_fields_are_taken():
    theirs, ours = pairs(frozen=True, slots=True)
    one, other = lazydataclass.replace(ours(4, ["a"]), x=5, _weight=0.5), dataclasses.replace(theirs(4, ["a"]), x=5)
    assert (one.x, one.names, one._weight, one.seen) == (5, ["a"], 0.5, other.seen)
    longer = dataclasses.make_dataclass("Longer", [("more", int)], bases=(pairs()[1],), kw_only=True)
    assert lazydataclass.replace(longer(4, more=2), x=5).more == 2
    with pytest.raises(TypeError, match="nothing"):
        lazydataclass.replace(one, nothing=1)


def test_one_inside_itself_is_three_dots():
    @lazydataclass.dataclass(frozen=True)
    class Holder:
        held: list[Any]

    holder = Holder([])
    holder.held.append(holder)
    assert repr(holder).endswith("Holder(held=[...])")


def test_dtypes_are_the_same_objects_elsewhere():
    assert pickle.loads(pickle.dumps((F32, BF16))) == (F32, BF16)
    assert copy.deepcopy(F32) is F32


@lazydataclass.dataclass(frozen=True, slots=True)
class Kept:
    """One that can be pickled."""

    first: int
    second: tuple[int, ...] = ()


def test_frozen_ones_travel():
    one = Kept(1, (2, 3))
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one


def test_c_code_may_import_while_a_method_runs():
    @lazydataclass.dataclass
    class Timed:
        at: Any = dataclasses.field(default_factory=partial(time.strptime, "2026", "%Y"))

    assert Timed().at.tm_year == 2026


def test_no_method_is_compiled_before_it_is_looked_up():
    @lazydataclass.dataclass(frozen=True, slots=True)
    class Lazy:
        first: int

    assert not inspect.isfunction(vars(Lazy)["__init__"])
    one = Lazy(1)
    assert inspect.isfunction(vars(Lazy)["__init__"])
    assert not inspect.isfunction(vars(Lazy)["__hash__"])
    assert hash(one) == hash((1,))
    assert inspect.isfunction(vars(Lazy)["__hash__"])


def test_the_package_defines_no_dataclass_in_another_way():
    root = Path(lazydataclass.__file__).parent
    folders = (root, root / "search", root / "cost_models")
    texts = {path: path.read_text() for folder in folders for path in folder.rglob("*.py")}
    assert len(texts) > 300
    assert [path for path, text in texts.items() if "from dataclasses import" in text] == [root / "lazydataclass.py"]
