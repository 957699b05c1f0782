"""Objects that a traced function makes of classes of the user's: their methods are traced as the function is.

A class that stands for the user's is made for the trace, with its methods wrapped; objects are made of that. What
returns them gets the user's class again (`tree.stands_for`). A class that the traced function defines itself has
methods that are traced already.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any, Generic, Protocol, cast

from autofuse.frontend.usersclasses import file_of, is_installed, is_users_class, is_users_file
from autofuse.ir.tree import STANDS_FOR
from autofuse.lazydataclass import fields, is_dataclass

_ROOTS: tuple[Any, ...] = (object, abc.ABC, Generic, Protocol)
_OWN_WAYS = frozenset(("__slots__", "__new__", "__init_subclass__", "__getattribute__", "__del__"))
"""What a class decides by itself, so that another one cannot stand for it."""


class MadeObjects:
    """The classes of one trace of which objects are made."""

    def __init__(self, wrapped: Callable[[Any], Any], is_traced: Callable[[Mapping[str, Any]], bool]) -> None:
        """`wrapped`: from a member of a class that is code, or an array, to what the trace has; None for any other.

        `is_traced`: whether these are the globals of functions under trace.
        """
        self._wrapped, self._is_traced = wrapped, is_traced
        self._found: dict[type, type | None] = {}

    def class_for(self, cls: type) -> type | None:
        """The class to make objects of in place of one of the user's; None where Python makes them as it does."""
        if cls not in self._found:
            self._found[cls] = made = self._made(cls)
            if made is not None:
                self._found[made] = made
        return self._found[cls]

    def called(self, function: Any) -> Any:
        """What to call in place of a function or method that the trace got from a class or object as it is."""
        match function:
            case MethodType(__self__=type() as cls):
                made = self.class_for(cls)
                return function if made is None else getattr(made, function.__name__)
            case MethodType(__func__=FunctionType() as inner) if self._is_users(inner):
                return MethodType(self._wrapped(inner), function.__self__)
            case FunctionType() if self._is_users(function):
                return self._wrapped(function)
            case _:
                return function

    def _is_users(self, function: FunctionType) -> bool:
        """Whether a function is the user's own, not traced yet."""
        file = function.__code__.co_filename
        return not self._is_traced(function.__globals__) and is_users_file(file) and not is_installed(file)

    def see_through(self, value: Any) -> None:
        """Have the methods of dataclasses in a value be traced, which was made for the trace."""
        match value:
            case list() | tuple():
                held: Any = value
            case dict():
                held = value.values()
            case _ if is_dataclass(value) and not isinstance(value, type):
                held = [getattr(value, field.name, None) for field in fields(value)]
                object.__setattr__(value, "__class__", self.class_for(type(value)) or type(value))
            case _:
                return
        for item in held:
            self.see_through(item)

    def _made(self, cls: type) -> type | None:
        if type(cls) not in (type, abc.ABCMeta) or is_installed(file_of(cls)):
            return None
        owners = [owner for owner in cls.__mro__ if owner not in _ROOTS]
        if not all(is_users_class(owner) and _OWN_WAYS.isdisjoint(vars(owner)) for owner in owners):
            return None
        held = [(name, member) for owner in reversed(owners) for name, member in vars(owner).items()]
        functions = [member for _, member in held if isinstance(member, FunctionType)]
        if any(self._is_traced(function.__globals__) for function in functions):
            return cls
        members = {name: self._member(member) for name, member in held}
        members = {name: member for name, member in members.items() if member is not None}
        own = {STANDS_FOR: cls, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
        return cast("type", type(cls)(cls.__name__, (cls,), {**members, **own}))

    def _member(self, member: Any) -> Any:
        if isinstance(member, classmethod):
            return classmethod(self._wrapped(member.__func__))
        return self._wrapped(member)
