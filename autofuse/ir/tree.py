"""Trees: the structure of arguments and results, apart from the arrays in them, and its JSON form.

A tree has array leaves in order; everything else (numbers, strings, None, dtypes) is static and held in the tree.
`from_json` builds plain containers only, so a tree from a stranger's file imports and runs nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import unicodedata
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from keyword import iskeyword
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from autofuse.errors import ArgumentError, PlanError
from autofuse.ir import dtypes
from autofuse.ir.generators import draws, is_counted, state_of
from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array. `scalar` says that NumPy would hold a scalar (`np.float32`) there, not a 0-d array."""

    scalar: bool = False


@dataclass(frozen=True, slots=True)
class Static:
    """Part of the structure: None, a number, a str, a dtype, a class of numbers, or an array by its digest."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and _same_static(self.value, other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), repr(self.value)))


@dataclass(frozen=True, slots=True)
class Digest:
    """Stands in a structure for an array whose values are part of it."""

    text: str
    """SHA-256 over dtype, shape and elements."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A container and its children, in order."""

    kind: str
    """`tuple`, `list`, `dict`, `namedtuple`, `dataclass`, or `generator`: one of NumPy's, by its state."""
    keys: tuple[Any, ...]
    """Dict keys or field names; positions for tuple and list."""
    children: tuple[Tree, ...]
    name: str = ""
    """Class name of a namedtuple or dataclass."""
    make: Callable[..., Any] | None = dataclasses.field(default=None, compare=False, repr=False)
    """The class itself where it is at hand; absent in a tree read from JSON."""


Tree = Leaf | Static | Branch


def hold(value: Any) -> Any:
    """`value` as something static: an array becomes its digest, anything else stays."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    array = np.ascontiguousarray(value)
    content = hashlib.sha256(f"{array.dtype.name}{array.shape}".encode())
    content.update(array.tobytes())
    return Digest(content.hexdigest())


def flatten(value: Any, is_leaf: Callable[[Any], bool]) -> tuple[list[Any], Tree]:
    """Split `value` into its leaves, in order, and the structure around them.

    Raises ArgumentError naming the path of a value that is neither leaf, container nor static.
    """
    leaves: list[Any] = []
    return leaves, _flatten(value, is_leaf, leaves, "")


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """The value with `leaves` put back in order."""
    if len(leaves) != count_leaves(tree):
        raise ArgumentError(f"the structure has {count_leaves(tree)} arrays, got {len(leaves)}")
    return _unflatten(tree, iter(leaves))


def flatten_as(tree: Tree, value: Any, name: str = "args") -> list[Any]:
    """The leaves of `value`, which must have the structure `tree`; static parts must be equal.

    Raises ArgumentError that gives the path, what is required and what came.
    """
    leaves: list[Any] = []
    _flatten_as(tree, value, name, leaves)
    return leaves


def take_leaves(tree: Tree, value: Any, leaves: list[Any]) -> bool:
    """What `flatten_as` does, fast, for plain tuples, lists and dicts: append the leaves to `leaves`.

    False, with some leaves perhaps appended, for anything else or for another structure: then ask `flatten_as`.
    """
    if isinstance(tree, Leaf):
        leaves.append(value)
        return True
    if isinstance(tree, Static):
        return _same_static(tree.value, value)
    parts = _plain_parts(tree, value)
    if parts is not None and _has_leaves_alone(tree):
        leaves.extend(parts)
        return True
    return parts is not None and all(
        take_leaves(child, part, leaves) for child, part in zip(tree.children, parts, strict=True)
    )


def _has_leaves_alone(branch: Branch) -> bool:
    """Whether all that a container holds is leaves: there may be hundreds, and nothing is to be asked of each."""
    return set(map(type, branch.children)) == {Leaf}


def _plain_parts(branch: Branch, value: Any) -> Iterable[Any] | None:
    """The children of a plain container, in the order of `branch`; None if it is another one."""
    if type(value) not in _PLAIN or _PLAIN[type(value)] != branch.kind or len(value) != len(branch.keys):
        return None
    if branch.kind != "dict":
        return value
    try:
        return list(map(value.__getitem__, branch.keys))
    except KeyError:
        return None


_PLAIN: Mapping[type, str] = {tuple: "tuple", list: "list", dict: "dict"}


def count_leaves(tree: Tree) -> int:
    """Number of arrays."""
    if isinstance(tree, Branch):
        return len(tree.children) if _has_leaves_alone(tree) else sum(map(count_leaves, tree.children))
    return int(isinstance(tree, Leaf))


def has_scalars(tree: Tree) -> bool:
    """Whether a leaf is a number of NumPy's."""
    if isinstance(tree, Branch):
        return any(map(has_scalars, tree.children))
    return isinstance(tree, Leaf) and tree.scalar


def paths(tree: Tree, name: str = "args") -> list[str]:
    """The path of each leaf as Python would write it: `args[0]["w"].bias`."""
    return [path for path, _ in leaf_items(tree, name)]


def leaf_items(tree: Tree, name: str = "args") -> Iterator[tuple[str, Leaf]]:
    """Path and leaf, in order."""
    match tree:
        case Leaf():
            yield name, tree
        case Static():
            return
        case Branch():
            for key, child in zip(tree.keys, tree.children, strict=True):
                yield from leaf_items(child, child_path(tree.kind, name, key))


def child_path(kind: str, name: str, key: Any) -> str:
    """The path of the child `key` of a container at `name`."""
    if kind in ("namedtuple", "dataclass", "generator"):
        return f"{name}.{key}"
    return f'{name}["{key}"]' if isinstance(key, str) else f"{name}[{key!r}]"


def to_json(tree: Tree) -> dict[str, Any]:
    """Plain JSON data. Raises PlanError for dict keys that JSON cannot hold (other than str, int, bool, float)."""
    match tree:
        case Leaf(scalar=scalar):
            return {"leaf": "scalar" if scalar else "array"}
        case Static(value=value):
            return {"static": _static_to_json(value)}
        case Branch():
            data: dict[str, Any] = {tree.kind: [to_json(child) for child in tree.children]}
            if tree.kind not in ("tuple", "list"):
                data["keys"] = [_static_to_json(key) for key in tree.keys]
            if tree.name:
                data["name"] = tree.name
            return data


def from_json(data: Any) -> Tree:
    """The tree that `to_json` wrote. Raises PlanError for anything else."""
    if not isinstance(data, Mapping):
        raise PlanError(f"a tree is a JSON object, got {type(data).__name__}")
    record = cast("Mapping[str, Any]", data)
    match record:
        case {"leaf": "array" | "scalar" as kind, **rest} if not rest:
            return Leaf(scalar=kind == "scalar")
        case {"static": value, **rest} if not rest:
            return Static(_static_from_json(value))
        case _:
            return _branch_from_json(record)


def _branch_from_json(record: Mapping[str, Any]) -> Branch:
    kinds = [key for key in ("tuple", "list", "dict", "namedtuple", "dataclass", "generator") if key in record]
    if len(kinds) != 1 or set(record) - {kinds[0], "keys", "name"}:
        raise PlanError(f"a tree object has one kind of container, got the keys {sorted(map(str, record))}")
    (kind,) = kinds
    listed = record[kind]
    if not isinstance(listed, list):
        raise PlanError(f"a tree's {kind} holds a list of children, got {type(listed).__name__}")
    children = tuple(from_json(child) for child in cast("list[Any]", listed))
    default_keys = [] if kind not in ("tuple", "list") else list(range(len(children)))
    keys = tuple(_static_from_json(key) for key in record.get("keys", default_keys))
    if len(keys) != len(children):
        raise PlanError(f"a tree's {kind} has {len(children)} children but {len(keys)} keys")
    if len(set(keys)) != len(keys):
        raise PlanError(f"a tree's {kind} has a key twice")
    name = record.get("name", "")
    if kind in ("namedtuple", "dataclass"):
        bad = [text for text in (name, *keys) if not _is_identifier(text)]
        if bad:
            raise PlanError(f"a tree's {kind} has the field or class name {bad[0]!r}, which is not an identifier")
    if kind == "generator" and (keys != ("state",) or not isinstance(children[0], Leaf)):
        raise PlanError(f"a tree's generator has its state, got the entries {list(keys)!r:.200}")
    if kind == "namedtuple" and any(key[0] == "_" and key != f"_{place}" for place, key in enumerate(keys)):
        raise PlanError(f"a tree's namedtuple has fields that begin with '_': {list(keys)!r:.200}")
    return Branch(kind, keys, children, str(name))


def _is_identifier(text: Any) -> bool:
    """Whether Python code can use it as a name, as it is written."""
    plain = isinstance(text, str) and text.isidentifier() and not iskeyword(text)
    return plain and unicodedata.normalize("NFKC", text) == text


def _flatten(value: Any, is_leaf: Callable[[Any], bool], leaves: list[Any], path: str) -> Tree:
    if is_leaf(value):
        leaves.append(value)
        return Leaf(scalar=bool(getattr(value, "is_scalar", isinstance(value, np.generic))))
    opened = _open(value)
    if opened is not None:
        kind, keys, children, make = opened
        name = type(value).__name__ if kind in ("namedtuple", "dataclass") else ""
        subtrees = tuple(
            _flatten(child, is_leaf, leaves, child_path(kind, path, key))
            for key, child in zip(keys, children, strict=True)
        )
        return Branch(kind, keys, subtrees, name, make)
    if is_static(value):
        return Static(value)
    hint = "; of generators, np.random.Generator(np.random.Philox(seed))" if draws(value) else ""
    raise ArgumentError(
        f"value{path} is a {type(value).__module__}.{type(value).__qualname__}; required: an array, a number, a string,"
        f" None, a dtype, or a tuple, list, dict, namedtuple or dataclass of those{hint}"
    )


def _open(value: Any) -> tuple[str, tuple[Any, ...], tuple[Any, ...], Callable[..., Any] | None] | None:
    """Kind, keys, children and class of a container; None for anything else."""
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        fields = getattr(items, "_fields", None)
        if fields is not None:
            return "namedtuple", tuple(fields), tuple(items), type(items)
        return "tuple", tuple(range(len(items))), items, None
    if isinstance(value, list):
        listed = cast("list[Any]", value)
        return "list", tuple(range(len(listed))), tuple(listed), None
    if isinstance(value, dict):
        mapping = cast("dict[Any, Any]", value)
        return "dict", tuple(mapping), tuple(mapping.values()), None
    if dataclasses.is_dataclass(value) and not isinstance(value, type | Digest):
        names = tuple(field.name for field in dataclasses.fields(value) if field.init)
        return "dataclass", names, tuple(getattr(value, name) for name in names), stands_for(type(value))
    if is_counted(value):
        return "generator", ("state",), (state_of(value),), None
    return None


STANDS_FOR = "_autofuse_stands_for"
"""Where a class that stands for another one has that."""


def stands_for(cls: type) -> type:
    """The class that another one stands for; any other class itself."""
    return vars(cls).get(STANDS_FOR, cls)


def is_static(value: Any) -> bool:
    """Whether `value` may be part of a structure: None, a number, a str, a dtype, or a class of numbers."""
    plain = value is None or isinstance(value, bool | int | float | complex | str | Digest)
    return plain or _dtype_name(value) is not None or (isinstance(value, type) and value in _CLASSES.values())


def as_dtype(value: Any) -> dtypes.DType | None:
    """The element type that a NumPy dtype or scalar class stands for; None for any other value."""
    name = _dtype_name(value)
    return None if name is None else dtypes.by_name(name)


def _dtype_name(value: Any) -> str | None:
    """What a NumPy dtype or scalar class is called in a tree."""
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return _DTYPE_NAMES.get(np.dtype(value))
    return None


_DTYPE_NAMES = {entry.numpy: entry.name for entry in dtypes.KNOWN}
_CLASSES: Mapping[str, type] = {"bool": bool, "int": int, "float": float, "complex": complex}


def _unflatten(tree: Tree, leaves: Iterator[Any]) -> Any:
    if isinstance(tree, Leaf):
        return next(leaves)
    if isinstance(tree, Static):
        return tree.value
    if _has_leaves_alone(tree):
        children = list(islice(leaves, len(tree.children)))
    else:
        children = [_unflatten(child, leaves) for child in tree.children]
    if tree.kind == "tuple":
        return tuple(children)
    return children if tree.kind == "list" else _build(tree, dict(zip(tree.keys, children, strict=True)))


def _build(tree: Branch, fields: dict[Any, Any]) -> Any:
    if tree.kind == "dict":
        return fields
    if tree.make is not None:
        return tree.make(**fields)
    if tree.kind == "namedtuple":
        return _namedtuple(tree.name, tree.keys)(**fields)
    return SimpleNamespace(**fields)


@lru_cache(maxsize=64)
def _namedtuple(name: str, fields: tuple[str, ...]) -> Callable[..., Any]:
    """A class for a tree from a file: the same one at every call. `_1` is what `rename=True` makes of the second."""
    return namedtuple(name, fields, rename=True)  # pyright: ignore[reportUntypedNamedTuple]  # known at run time


def _flatten_as(tree: Tree, value: Any, path: str, leaves: list[Any]) -> None:
    match tree:
        case Leaf():
            leaves.append(value)
        case Static(value=required):
            if not _same_static(required, value):
                raise ArgumentError(
                    f"{path} must be {required!r}, the value at tracing; got {value!r}. Trace again for another value"
                )
        case Branch():
            _flatten_branch_as(tree, value, path, leaves)


def _flatten_branch_as(tree: Branch, value: Any, path: str, leaves: list[Any]) -> None:
    opened = _open(value)
    if opened is None or (opened[0] != tree.kind and {opened[0], tree.kind} != {"dataclass", "namedtuple"}):
        fix = "; pass np.random.Generator(np.random.Philox(seed))" if tree.kind == "generator" else ""
        raise ArgumentError(f"{path} must be a {tree.kind}, got {type(value).__name__}{fix}")
    found = dict(zip(opened[1], opened[2], strict=True))
    if set(found) != set(tree.keys):
        raise ArgumentError(f"{path} must have the entries {list(tree.keys)}, got {list(found)}")
    for key, child in zip(tree.keys, tree.children, strict=True):
        _flatten_as(child, found[key], child_path(tree.kind, path, key), leaves)


def _same_static(a: Any, b: Any) -> bool:
    if isinstance(a, Digest):
        return a == hold(b)
    first, second = _dtype_name(a), _dtype_name(b)
    if first is not None or second is not None:
        return first == second
    if isinstance(a, float) and isinstance(b, float):
        return float.__repr__(a) == float.__repr__(b)  # 0.0 is not -0.0, and NaN is NaN
    if isinstance(a, complex) and isinstance(b, complex):
        return complex.__repr__(a) == complex.__repr__(b)
    return type(a) is type(b) and a == b


def _static_to_json(value: Any) -> Any:
    dtype = _dtype_name(value)
    if dtype is not None:
        return {"dtype": dtype}
    if isinstance(value, type):
        return {"class": value.__name__}
    if isinstance(value, Digest):
        return {"digest": value.text}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, complex):
        return {"complex": [_static_to_json(value.real), _static_to_json(value.imag)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise PlanError(f"{value!r} cannot be written to a plan; use a str, int, float, bool, None or dtype")


def _static_from_json(value: Any) -> Any:
    match value:
        case {"dtype": str(name), **rest} if not rest:
            return dtypes.by_name(name).numpy
        case {"class": "bool" | "int" | "float" | "complex" as name, **rest} if not rest:
            return _CLASSES[name]
        case {"digest": str(text), **rest} if not rest:
            return Digest(text)
        case {"float": "inf" | "-inf" | "nan" as text, **rest} if not rest:
            return float(text)
        case {"complex": [real, imaginary], **rest} if not rest:
            parts = _static_from_json(real), _static_from_json(imaginary)
            if all(type(part) is float for part in parts):
                return complex(*parts)
            raise PlanError(f"a complex number has two floats, got {value!r}")
        case None | bool() | int() | float() | str():
            return value
        case _:
            raise PlanError(f"a tree's static value is a number, string or null, got {value!r}")
