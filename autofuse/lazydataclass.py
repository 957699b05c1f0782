"""Dataclasses that are quick to define: as the standard library's, but a method is made when it is first looked up.

There, compiling the methods of one class takes 0.4 ms. There are hundreds of classes, and a process uses few of them.
Methods of classes with as many fields share code, in which only the names of the fields differ: it is compiled once.
"""

from __future__ import annotations

import builtins
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, asdict, astuple, field, fields, is_dataclass
from functools import cache, partial
from threading import get_ident
from types import CodeType, FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, NamedTuple

__all__ = ["asdict", "astuple", "dataclass", "field", "fields", "is_dataclass", "replace"]


def _dataclass(cls: Any = None, **options: bool) -> Any:
    if cls is None:
        return partial(_dataclass, **options)
    frozen = options.get("frozen", False)
    own = {name for name, value in vars(cls).items() if value is not None}
    cls.__doc__ = cls.__doc__ or f"{cls.__name__}."  # else the signature would be looked up
    made = _simple(cls, options) or _by_standard_library(cls, options)
    methods: dict[str, Any] = {"__init__": _Unwritten(made, "__init__", _init)}
    methods["__replace__"] = _Unwritten(made, "__replace__", _replaced)
    if options.get("repr", True):
        methods["__repr__"] = _Unwritten(made, "__repr__", _repr)
    if options.get("eq", True):
        methods["__eq__"] = _Unwritten(made, "__eq__", _eq)
        methods["__hash__"] = _Unwritten(made, "__hash__", _hash) if frozen else None
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    for name in methods.keys() - own:
        setattr(made, name, methods[name])
    return made


def _replace(obj: Any, /, **changes: Any) -> Any:
    """The same with other values of some fields. Raises TypeError for a name that is none."""
    return obj.__replace__(**changes)


if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:
    dataclass, replace = _dataclass, _replace


# ---- classes -----------------------------------------------------------------------------------------------------

_SIMPLE = frozenset(("frozen", "slots", "eq", "repr", "kw_only"))
"""Options of classes that are made here."""
_NOT_SIMPLE = ("ClassVar", "InitVar", "KW_ONLY")
"""Annotations of what is no field, or that say something of others."""


def _by_standard_library(cls: Any, options: Mapping[str, bool]) -> Any:
    frozen = options.get("frozen", False)
    plain = {"init": False, "eq": False, "repr": False, "frozen": frozen and any(map(is_dataclass, cls.__bases__))}
    made = dataclasses.dataclass(cls, **{**options, **plain})
    made.__dataclass_params__.frozen = frozen  # the standard library asks it of bases
    return made


def _simple(cls: Any, options: Mapping[str, bool]) -> Any:
    """The class with its fields, in a third of the time; None where the standard library has more to do."""
    held = vars(cls)
    types = held.get("__annotations__", {})
    if type(cls) is not type or not options.keys() <= _SIMPLE or any(map(is_dataclass, cls.__mro__)):
        return None
    if any(not isinstance(text, str) or any(word in text for word in _NOT_SIMPLE) for text in types.values()):
        return None
    if any(isinstance(value, Field) and name not in types for name, value in held.items()):
        return None
    found = {name: _field(name, text, held.get(name, MISSING), options) for name, text in types.items()}
    if any(f.default.__class__.__hash__ is None for f in found.values()):
        return None  # a list, say, which is refused
    made = _slotted(cls, found) if options.get("slots", False) else _unslotted(cls, found)
    made.__dataclass_fields__ = found
    made.__dataclass_params__ = _parameters(**options)
    made.__match_args__ = tuple(name for name, f in found.items() if f.init and not f.kw_only)
    return made


def _field(name: str, type_: str, default: Any, options: Mapping[str, bool]) -> Field[Any]:
    own: Any = default
    if not isinstance(default, Field):
        own = field(default=MISSING if isinstance(default, MemberDescriptorType) else default)
    own.name, own.type, own._field_type = name, type_, _kind_of_fields()
    if own.kw_only is MISSING:
        own.kw_only = options.get("kw_only", False)
    return own


def _slotted(cls: Any, found: Mapping[str, Field[Any]]) -> Any:
    held = {name: value for name, value in vars(cls).items() if name not in found}
    for name in ("__dict__", "__weakref__"):
        held.pop(name, None)
    listed = [vars(base).get("__slots__", ()) for base in cls.__mro__[1:-1]]
    inherited = {name for names in listed for name in ((names,) if isinstance(names, str) else names)}
    held["__slots__"] = tuple(name for name in found if name not in inherited)
    made: Any = type(cls.__name__, cls.__bases__, held)
    made.__qualname__ = cls.__qualname__
    return made


def _unslotted(cls: Any, found: Mapping[str, Field[Any]]) -> Any:
    for name, f in found.items():
        if f.default is not MISSING:
            setattr(cls, name, f.default)
        elif name in vars(cls):
            delattr(cls, name)
    return cls


@cache
def _parameters(**options: bool) -> Any:
    """What the standard library keeps of options, for classes of these."""
    sample: Any = dataclasses.dataclass(type("Sample", (), {}), **{**options, "init": False, "frozen": False})
    sample.__dataclass_params__.frozen = options.get("frozen", False)
    return sample.__dataclass_params__


@cache
def _kind_of_fields() -> Any:
    """What the standard library marks fields with that are nothing else."""
    sample = dataclasses.make_dataclass("Sample", ["x"], init=False, repr=False, eq=False)
    return getattr(fields(sample)[0], "_field_type")  # noqa: B009 - it has no public name


# ---- methods -----------------------------------------------------------------------------------------------------


class _Written(NamedTuple):
    """A method, written down. In its text fields are called f0, f1 and so on, so that classes alike share code."""

    text: str
    """What follows the name."""
    fields: Sequence[str]
    """What the class calls f0, f1, ..."""
    names: dict[str, Any]
    """What the text reads beside its parameters."""
    defaults: tuple[Any, ...] = ()
    """Of the last parameters."""
    by_name: dict[str, Any] | None = None
    """Of parameters that are given by name."""
    types: dict[str, Any] | None = None
    """By parameter."""


class _Unwritten:
    """A method before it is first looked up. Then it is made and takes this one's place."""

    def __init__(self, owner: type, name: str, write: Callable[[Any], _Written]) -> None:
        self._owner, self._name, self._write = owner, name, write

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = _function(self._name, self._owner, self._write(self._owner))
        setattr(self._owner, self._name, method)
        return method.__get__(instance, owner)


def _function(name: str, owner: type, written: _Written) -> Any:
    """The method: shared code in which the fields have their own names."""
    called = {f"f{number}": own for number, own in enumerate(written.fields)}
    shared = _code(written.text)
    code = shared.replace(
        co_name=name,
        co_qualname=f"{owner.__qualname__}.{name}",
        co_varnames=_renamed(shared.co_varnames, called),
        co_names=_renamed(shared.co_names, called),
        co_consts=_renamed(shared.co_consts, called),
    )
    # what C code imports while the method runs, as NumPy does to print an array, is looked up by the builtins
    method = FunctionType(code, {"__builtins__": builtins, **written.names}, name, written.defaults)
    method.__kwdefaults__, method.__annotations__ = written.by_name, written.types or {}
    return method


@cache
def _code(text: str) -> CodeType:
    module = compile(f"def method{text}", "<lazydataclass>", "exec", dont_inherit=True)
    return next(constant for constant in module.co_consts if isinstance(constant, CodeType))


def _renamed(names: Sequence[Any], called: Mapping[str, str]) -> tuple[Any, ...]:
    """Names, or constants, in which fields are called by their own names."""
    return tuple(
        _renamed(name, called) if isinstance(name, tuple) else called.get(name, name) if isinstance(name, str) else name
        for name in names
    )


def _init(cls: Any) -> _Written:
    names: dict[str, Any] = {"missing_": MISSING, "set_": object.__setattr__}
    listed: dict[bool, list[str]] = {False: ["self"], True: []}
    defaults: dict[bool, dict[str, Any]] = {False: {}, True: {}}
    types: dict[str, Any] = {}
    body: list[str] = []
    for number, f in enumerate(fields(cls)):
        place, makes = f"f{number}", f.default_factory is not MISSING
        value = place if f.init else f"default_{number}"
        names[f"default_{number}"], names[f"make_{number}"] = f.default, f.default_factory
        if makes:
            value = f"make_{number}()" + f" if {place} is missing_ else {place}" * f.init
        has_default = makes or f.default is not MISSING
        if f.init:
            types[f.name] = f.type
            listed[f.kw_only is True].append(place)
            if has_default:
                defaults[f.kw_only is True][f.name] = f.default
            elif not f.kw_only and defaults[False]:
                raise TypeError(f"non-default argument {f.name!r} follows default argument")
        if f.init or has_default:
            body.append(_assignment(cls, f.name, number, value, names))
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    by_name = ["*", *listed[True]] if listed[True] else []
    text = f"({', '.join([*listed[False], *by_name])}):\n " + "\n ".join(body or ["pass"])
    own = [f.name for f in fields(cls)]
    return _Written(text, own, names, tuple(defaults[False].values()), defaults[True], {**types, "return": None})


def _assignment(cls: Any, name: str, number: int, value: str, names: dict[str, Any]) -> str:
    if not cls.__dataclass_params__.frozen:
        return f"self.f{number} = {value}"
    member = getattr(cls, name, None)
    if not isinstance(member, MemberDescriptorType):
        return f"set_(self, 'f{number}', {value})"
    names[f"set_{number}"] = member.__set__  # the fastest way
    return f"set_{number}(self, {value})"


def _eq(cls: Any) -> _Written:
    own = _compared(cls)
    same = "if other is self: return True"
    refusal = "if other.__class__ is not self.__class__: return NotImplemented"
    text = f"(self, other):\n {same}\n {refusal}\n return {_values(own, 'self')} == {_values(own, 'other')}"
    return _Written(text, own, {})


def _hash(cls: Any) -> _Written:
    own = _compared(cls)
    return _Written(f"(self): return hash({_values(own, 'self')})", own, {})


def _compared(cls: Any) -> list[str]:
    return [f.name for f in fields(cls) if f.compare]


def _values(own: Sequence[str], name: str) -> str:
    return f"({''.join(f'{name}.f{number}, ' for number in range(len(own)))})"


def _replaced(cls: Any) -> _Written:
    own = [f.name for f in fields(cls) if f.init]
    kept = "".join(f"'f{number}': self.f{number}, " for number in range(len(own)))
    derived = "if self.__class__ is not owner_: return replace_(self, **changes)"  # may have more fields
    names = {"owner_": cls, "replace_": dataclasses.replace}
    return _Written(f"(self, /, **changes):\n {derived}\n return owner_(**{{{kept}**changes}})", own, names)


def _repr(cls: Any) -> _Written:
    """One that is met inside itself is three dots."""
    own = [f.name for f in fields(cls) if f.repr]
    shown = ", ".join(f"{{name_{number}}}={{self.f{number}!r}}" for number in range(len(own)))
    text = f"""(self):
 place = get_ident_(), id(self)
 if place in shown_: return "..."
 shown_.add(place)
 try: return f"{{self.__class__.__qualname__}}({shown})"
 finally: shown_.discard(place)"""
    names = {f"name_{number}": name for number, name in enumerate(own)}
    return _Written(text, own, {"get_ident_": get_ident, "shown_": set(), **names})


def _refuse_to_set(_self: Any, name: str, _value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for f, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)
