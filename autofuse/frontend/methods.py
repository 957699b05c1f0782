"""Methods under trace: what a method reads of its object is found while it is traced, and looked at again at each call.

Arrays become arguments of the plan, so nothing that is written into them is missed. Numbers, texts, the lengths of
lists, functions and the classes of objects decide how the trace went: they are what a later call must find again.
An object's own attributes are read when the method reads them, so what it does not read does not matter.
"""

from __future__ import annotations

import enum
import inspect
import weakref
from collections.abc import Callable, Hashable
from functools import partial
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from autofuse.frontend.location import trace_error
from autofuse.frontend.proxy import Rewriter
from autofuse.frontend.tracer import TracerArray
from autofuse.frontend.usersclasses import has_attributes, is_array
from autofuse.ir import tree
from autofuse.ir.parameters import BY_NAME
from autofuse.ir.tree import Branch, Leaf, Tree
from autofuse.lazydataclass import dataclass, field

_SAME = (FunctionType, BuiltinFunctionType, type, ModuleType, np.ufunc, enum.Enum)
"""What an attribute may be that counts as the same only if it is the same object."""
_MISSING = object()
_PLAIN = (MemberDescriptorType, GetSetDescriptorType)
"""Descriptors that only give what is stored."""


@dataclass(frozen=True, slots=True)
class State:
    """What a method found when it read an object."""

    trees: tuple[Tree | None, ...]
    """What each attribute was, arrays and objects left out; None for one that was not there."""
    kinds: tuple[Hashable, ...]
    """Shape and dtype of each array; the class of each object; functions themselves."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Which attributes a method reads, in order."""

    attributes: tuple[tuple[int, str], ...]
    """Number of the object, and name. Object 0 is the method's own; the others are numbered as they are found."""
    paths: tuple[str, ...]
    """What to call the arrays among them: `w`, `layers[0].w`."""

    def look(self, instance: Any) -> tuple[State, dict[str, Any]] | None:
        """What the method would find now, and the arrays by path; None if there is something else to read."""
        objects, trees, kinds, arrays = [instance], list[Tree | None](), list[Hashable](), list[Any]()
        for number, name in self.attributes:
            if number >= len(objects):
                return None
            try:
                value = getattr(objects[number], name)
            except AttributeError:
                trees.append(None)
                continue
            leaves, structure = [value], Leaf()
            if type(value) is not np.ndarray:
                leaves, structure = tree.flatten(value, _is_part)
            trees.append(structure)
            for leaf in leaves:
                if is_array(leaf):
                    arrays.append(leaf)
                    kinds.append((leaf.shape, leaf.dtype))
                else:
                    kinds.append(_kind(leaf))
                    objects += _object_in(leaf)
        if len(arrays) != len(self.paths):
            return None
        return State(tuple(trees), tuple(kinds)), dict(zip(self.paths, arrays, strict=True))


@dataclass(slots=True, eq=False)
class Method:
    """A function and the object that is its first argument, to be traced as one; what was read of it is noted here."""

    function: Callable[..., Any]
    instance: Any
    reads: Reads = field(default=Reads((), ()), init=False)
    state: State = field(default=State((), ()), init=False)
    arrays: dict[str, Any] = field(default_factory=dict[str, Any], init=False)
    """By path."""

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def structures(self) -> dict[str, Tree]:
        """What was read of the object itself, by name."""
        found = zip(self.reads.attributes, self.state.trees, strict=True)
        return {f"self.{name}": tree for (number, name), tree in found if number == 0 and tree is not None}

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(MethodType(self.function, self.instance))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        return self.function(self.instance, *args, **kwargs)

    def with_arrays(
        self, parameters: tuple[str, ...], values: tuple[Any, ...], leaves: list[Any], in_tree: Tree
    ) -> tuple[tuple[str, ...], tuple[Any, ...], list[Any], Tree]:
        """A call's parameters and arguments, with the arrays that were read of the object as one more, if any were."""
        if not self.arrays:
            return parameters, values, leaves, in_tree
        assert isinstance(in_tree, Branch)
        mark = () if BY_NAME in parameters else (BY_NAME,)
        own = next(iter(inspect.signature(self.function).parameters.values()))
        name = "self" if own.kind is own.VAR_POSITIONAL else own.name
        arrays = Branch(
            "dict", tuple(self.arrays), tuple(Leaf(isinstance(a, np.generic)) for a in self.arrays.values())
        )
        children = (*in_tree.children, arrays)
        whole = Branch("tuple", tuple(range(len(children))), children)
        return (*parameters, *mark, name), (*values, dict(self.arrays)), [*leaves, *self.arrays.values()], whole


class Reader:
    """Stands between a method under trace and its object."""

    def __init__(self, method: Method, rewriter: Rewriter, new_input: Callable[[Any, str], TracerArray]) -> None:
        """`new_input` makes an argument of the plan from an array and its path."""
        self._method, self._rewriter, self._new_input = method, rewriter, new_input
        self._objects: list[tuple[Any, str]] = []
        self._found: dict[tuple[int, str], Any] = {}
        self._trees: list[Tree | None] = []
        self._kinds: list[Hashable] = []
        self._containers: list[tuple[str, Any, Any]] = []
        """What is called how, was given to the function, and holds what it held then."""
        self.arrays: dict[str, Any] = {}
        """What became an argument, by path."""
        self.tracers: list[TracerArray] = []
        stand_in = self._stand_in(method.instance, "")
        self.function = partial(rewriter.wrap_function(method.function), stand_in)
        """The function to trace, with what it gets in place of the object."""

    def finish(self) -> None:
        """Note in the method what was read. Raises TraceError for a container that the function changed."""
        for path, given, before in self._containers:
            if not _unchanged(before, given):
                raise trace_error(f"changing {path} in a method that is compiled", "return the new values")
        self._note()

    def _note(self) -> None:
        method = self._method
        method.reads = Reads(tuple(self._found), tuple(self.arrays))
        method.state = State(tuple(self._trees), tuple(self._kinds))
        method.arrays = self.arrays

    def _stand_in(self, instance: Any, path: str) -> Any:
        number = len(self._objects)
        self._objects.append((instance, path))

        def read(stand_in: Any, name: str) -> Any:
            if name == "__dict__":
                raise trace_error(f"reading all attributes of a {type(instance).__name__}", "read them by name")
            if name.startswith("__") or _is_code(instance, name):
                return object.__getattribute__(stand_in, name)
            return self._read(number, name)

        def write(_: Any, name: str, *value: Any) -> None:
            if not value or self._found.get((number, name)) is not value[0]:
                where = _path(path, name)
                raise trace_error(
                    f"assigning self.{where} in a method that is compiled",
                    f"return the new value and assign it outside, or write into the array: self.{where}[...] = value",
                )

        return self._rewriter.stand_in(instance, read, write)

    def _read(self, number: int, name: str) -> Any:
        key = (number, name)
        if self._found.get(key, _MISSING) is not _MISSING:
            return self._found[key]
        instance, owner = self._objects[number]
        path = _path(owner, name)
        if any(tracer.cell.storage.version for tracer in self.tracers) and _is_computed(instance, name):
            raise trace_error(f"reading self.{path}, which is computed, after writing into self", "read it before that")
        try:
            value = getattr(instance, name)
        except AttributeError:
            if key not in self._found:
                self._found[key] = _MISSING
                self._trees.append(None)
                self._note()
            raise
        leaves, structure = tree.flatten(value, _is_part)
        given = [
            self._part(leaf, path + below)
            for leaf, (below, _) in zip(leaves, tree.leaf_items(structure, ""), strict=True)
        ]
        self._trees.append(structure)
        self._found[key] = found = tree.unflatten(structure, given)
        if isinstance(structure, Branch):
            self._containers.append((f"self.{path}", found, tree.unflatten(structure, given)))
        self._note()
        return found

    def _part(self, leaf: Any, path: str) -> Any:
        if is_array(leaf):
            self._kinds.append((leaf.shape, leaf.dtype))
            self.arrays[path] = leaf
            self.tracers.append(self._new_input(leaf, path))
            return self.tracers[-1]
        self._kinds.append(_kind(leaf))
        if isinstance(leaf, MethodType) and _object_in(leaf):
            return MethodType(self._rewriter.wrap(leaf.__func__), self._stand_in(leaf.__self__, path))
        if _object_in(leaf):
            return self._stand_in(leaf, path)
        if isinstance(leaf, _SAME):
            return self._rewriter.wrap(leaf)
        raise trace_error(
            f"self.{path}, a {type(leaf).__module__}.{type(leaf).__qualname__}, is read in a method that is compiled",
            "pass it as an argument, or keep arrays, numbers, texts, functions, objects of your own classes, and"
            " tuples, lists and dicts of those",
        )


class _Same:
    """Equal to another that stands for the same object, which it does not keep alive where that can be helped."""

    __slots__ = ("_hash", "_of")

    def __init__(self, value: Any) -> None:
        self._hash = id(value)
        try:
            self._of: Callable[[], Any] = weakref.ref(value)
        except TypeError:
            self._of = lambda: value

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._of() is not None and self._of() is other._of()


def _is_part(value: Any) -> bool:
    """Whether a value is looked at as a whole: an array or an object, no container and no number."""
    return not (tree.is_static(value) or isinstance(value, tuple | list | dict))


def _unchanged(before: Any, now: Any) -> bool:
    """Whether containers hold the same objects."""
    if isinstance(before, dict):
        return list(before) == list(now) and all(_unchanged(before[key], now[key]) for key in before)
    if isinstance(before, list | tuple):
        return len(before) == len(now) and all(map(_unchanged, before, now))
    return before is now


def _object_in(leaf: Any) -> list[Any]:
    """The object whose attributes may be read next, if there is one."""
    inside = leaf.__self__ if isinstance(leaf, MethodType) else leaf
    return [inside] if has_attributes(inside) and not isinstance(inside, _SAME) else []


def _kind(leaf: Any) -> Hashable:
    if isinstance(leaf, MethodType):
        return _Same(leaf.__func__), _Same(type(leaf.__self__))
    return _Same(leaf) if isinstance(leaf, _SAME) else _Same(type(leaf))


def _path(owner: str, name: str) -> str:
    return f"{owner}.{name}" if owner else name


def _class_attribute(instance: Any, name: str) -> Any:
    return next((vars(cls)[name] for cls in type(instance).__mro__ if name in vars(cls)), None)


def _is_code(instance: Any, name: str) -> bool:
    """Whether an attribute is a method or a property of the class: code, which runs with the stand-in."""
    found = _class_attribute(instance, name)
    if isinstance(found, property):
        return True
    code = isinstance(found, FunctionType | staticmethod | classmethod) or (
        callable(found) and isinstance(getattr(found, "__wrapped__", None), FunctionType)
    )
    return code and name not in getattr(instance, "__dict__", ())


def _is_computed(instance: Any, name: str) -> bool:
    """Whether reading an attribute runs code that does not see the stand-in."""
    if name in getattr(instance, "__dict__", ()):
        return False
    found = _class_attribute(instance, name)
    return found is None or (hasattr(type(found), "__get__") and not isinstance(found, _PLAIN))
