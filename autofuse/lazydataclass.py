"""Dataclasses that are quick to define: as the standard library's, but a method is compiled when it is first looked up.

There, compiling the methods of one class takes 0.4 ms. There are hundreds of classes, and a process uses few of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, asdict, astuple, field, fields, is_dataclass
from functools import partial
from threading import get_ident
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

__all__ = ["asdict", "astuple", "dataclass", "field", "fields", "is_dataclass", "replace"]

_Text = tuple[str, dict[str, Any]]
"""A function's text, and the names in it."""


def _dataclass(cls: Any = None, **options: bool) -> Any:
    if cls is None:
        return partial(_dataclass, **options)
    frozen = options.get("frozen", False)
    own = {name for name, value in vars(cls).items() if value is not None}
    plain = {"init": False, "eq": False, "repr": False, "frozen": frozen and any(map(is_dataclass, cls.__bases__))}
    cls.__doc__ = cls.__doc__ or f"{cls.__name__}."  # else the signature would be looked up
    made = dataclasses.dataclass(cls, **{**options, **plain})
    made.__dataclass_params__.frozen = frozen  # the standard library asks it of bases
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


class _Unwritten:
    """A method before it is first looked up. Then it is compiled and takes this one's place."""

    def __init__(self, owner: type, name: str, write: Callable[[Any], _Text]) -> None:
        self._owner, self._name, self._write = owner, name, write

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        text, names = self._write(self._owner)
        exec(compile(f"def {self._name}{text}", "<lazydataclass>", "exec", dont_inherit=True), names)
        method = names[self._name]
        method.__qualname__ = f"{self._owner.__qualname__}.{self._name}"
        setattr(self._owner, self._name, method)
        return method.__get__(instance, owner)


def _init(cls: Any) -> _Text:
    names: dict[str, Any] = {"missing_": MISSING, "set_": object.__setattr__}
    parameters: dict[bool, list[str]] = {False: ["self"], True: []}
    body = ["pass"]
    frozen = cls.__dataclass_params__.frozen
    for f in fields(cls):
        value, default = f.name, ""
        if f.default is not MISSING:
            default = f"default_{f.name}"
            names[default], value = f.default, value if f.init else default
        elif f.default_factory is not MISSING:
            default, made = "missing_", f"make_{f.name}"
            names[made], value = f.default_factory, f"{made}()" + f" if {value} is missing_ else {value}" * f.init
        if f.init:
            names[f"type_{f.name}"] = f.type
            parameters[f.kw_only is True].append(f"{f.name}: type_{f.name}" + f" = {default}" * bool(default))
        if f.init or default:
            body.append(_assignment(cls, f.name, value, names) if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    named = ["*", *parameters[True]] if parameters[True] else []
    return f"({', '.join([*parameters[False], *named])}) -> None:\n " + "\n ".join(body), names


def _assignment(cls: Any, name: str, value: str, names: dict[str, Any]) -> str:
    member = getattr(cls, name, None)
    if not isinstance(member, MemberDescriptorType):
        return f"set_(self, {name!r}, {value})"
    names[f"set_{name}"] = member.__set__  # the fastest way
    return f"set_{name}(self, {value})"


def _eq(cls: Any) -> _Text:
    same = "if other is self: return True"
    refusal = "if other.__class__ is not self.__class__: return NotImplemented"
    return f"(self, other):\n {same}\n {refusal}\n return {_values(cls, 'self')} == {_values(cls, 'other')}", {}


def _hash(cls: Any) -> _Text:
    return f"(self): return hash({_values(cls, 'self')})", {}


def _values(cls: Any, name: str) -> str:
    return f"({''.join(f'{name}.{f.name}, ' for f in fields(cls) if f.compare)})"


def _replaced(cls: Any) -> _Text:
    kept = "".join(f"{f.name!r}: self.{f.name}, " for f in fields(cls) if f.init)
    derived = "if self.__class__ is not owner_: return replace_(self, **changes)"  # may have more fields
    names = {"owner_": cls, "replace_": dataclasses.replace}
    return f"(self, /, **changes):\n {derived}\n return owner_(**{{{kept}**changes}})", names


def _repr(cls: Any) -> _Text:
    """One that is met inside itself is three dots."""
    shown = ", ".join(f"{f.name}={{self.{f.name}!r}}" for f in fields(cls) if f.repr)
    text = f"""(self):
 place = get_ident_(), id(self)
 if place in shown_: return "..."
 shown_.add(place)
 try: return f"{{self.__class__.__qualname__}}({shown})"
 finally: shown_.discard(place)"""
    return text, {"get_ident_": get_ident, "shown_": set()}


def _refuse_to_set(_self: Any, name: str, _value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for f, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)
