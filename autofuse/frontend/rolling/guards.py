"""What a loop's body may call and change: what is traced once must leave Python's own objects as they are.

A call is allowed if it can do nothing but compute and write into traced arrays: NumPy's functions, functions that were
rewritten, and those of Python's that change nothing. Lists and dicts may be changed by the region that made them.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from autofuse.frontend.forks import CannotRollError, Fork, HeldError
from autofuse.frontend.generators import TracedGenerator
from autofuse.frontend.location import OWN_FOLDER
from autofuse.frontend.madeobjects import MadeObjects
from autofuse.frontend.rolling.growing import Growing
from autofuse.frontend.rolling.places import Place
from autofuse.frontend.rolling.pythonfunctions import python_function
from autofuse.frontend.rolling.ragged import Ragged
from autofuse.frontend.rolling.tables import Table
from autofuse.frontend.rolling.targets import Listed, require_unchanged, target_of
from autofuse.frontend.selection import MaskedSelection
from autofuse.frontend.tracecontext import innermost_fork
from autofuse.frontend.tracer import TracerArray
from autofuse.lazydataclass import is_dataclass

_PURE = frozenset(
    # iterators aside, these change nothing
    name
    for names in (
        "abs all any bool bytes callable chr complex dict divmod enumerate float format frozenset getattr hasattr hash",
        "int isinstance issubclass iter len list max min next ord pow range repr reversed round set slice sorted str",
        "sum tuple type zip",
    )
    for name in names.split()
)
"""Builtins that change nothing but iterators that they are given."""
_VALUES = (
    str,
    bytes,
    tuple,
    int,
    float,
    complex,
    bool,
    frozenset,
    range,
    slice,
    np.generic,
    np.dtype,
    types.ModuleType,
)
"""Objects whose methods change nothing."""
_READS = frozenset(("copy", "count", "difference", "get", "index", "intersection", "items", "keys", "union", "values"))
_COPIES = frozenset(("copy", "difference", "intersection", "union"))
"""Those of them that make containers."""
_PURE_MODULES = ("math", "operator", "_operator", "cmath")


class Guards:
    """What rewritten functions ask before they call and change objects."""

    def __init__(self, classes: MadeObjects) -> None:
        self._classes = classes
        self.codes: set[types.CodeType] = set()
        """The code of all functions that ask."""

    def call(self, function: Any) -> Any:
        """What to call in place of `function`."""
        function = self._classes.called(function)
        instead, fork = python_function(function), innermost_fork()
        if instead is not None:
            return instead if fork is None else functools.partial(_checked, instead, fork)
        if isinstance(function, type) and issubclass(function, np.generic):
            return functools.partial(_converted, function)
        made = self._classes.class_for(function) if isinstance(function, type) else None
        if made is not None:
            return functools.partial(self._object, made)
        if fork is None:
            return function
        if _is_python(function):
            return functools.partial(_checked, function, fork)
        if _appends(function, fork):
            noted = _noted if function.__name__ == "append" else _all_noted
            return functools.partial(noted, fork, function.__self__)
        if not self._is_pure(function, fork):
            name = getattr(function, "__qualname__", None) or type(function).__name__
            reason = f"it calls {name}, which may change Python's own objects"
            owner = getattr(function, "__self__", None)
            raise HeldError(reason, owner) if type(owner) in (list, deque) else CannotRollError(reason)
        return function

    def target(self, value: Any) -> Any:
        """An object whose element or attribute is about to be set."""
        fork = innermost_fork()
        if isinstance(value, TracerArray | Ragged | Table):
            return value
        if fork is None or id(value) in fork.objects:
            return Listed(value) if type(value) is list else value
        return target_of(value, getattr(getattr(type(value), "__setitem__", None), "__code__", None) in self.codes)

    def beside(self, owner: Any, value: Any) -> Any:
        """The other operand of `owner += value`, or another such statement: a list or a set would be changed by it."""
        require_unchanged(owner)
        return value

    def new(self, value: Any) -> Any:
        """A container or a function that was just made: with it the variables of functions that began in the region."""
        fork = innermost_fork()
        if fork is not None:
            fork.objects[id(value)] = value
            cells = (value.__closure__ or ()) if isinstance(value, types.FunctionType) else ()
            fork.objects.update({id(cell): cell for cell in cells if id(cell) not in fork.around})
        return value

    def made(self, value: Any) -> Any:
        """What a slice, or a sum of lists, is: if it is a list, it was just made."""
        return self.new(value) if type(value) is list else value

    def outer(self, variables: Callable[[], Any]) -> None:
        """A function begins that binds variables of those around it, which `variables` reads."""
        names: tuple[str, ...] = variables.__code__.co_freevars
        for name, cell in zip(names, variables.__closure__ or (), strict=True):
            Place(cell, name).note()

    def outer_global(self, name: str) -> None:
        """A function begins that binds a global."""
        if innermost_fork() is not None:
            raise CannotRollError(f"it calls a function that binds {name}, a global")

    def _object(self, cls: type, *args: Any, **kwargs: Any) -> Any:
        """An object of a class of the user's. In a region it is the region's own, if all that makes it is traced."""
        fork, begin = innermost_fork(), cls.__init__
        made: Any = object.__new__(cls)
        if fork is not None:
            code = getattr(begin, "__code__", None)
            is_generated = is_dataclass(cls) and code is not None and code.co_filename == "<string>"
            if begin is not object.__init__ and not is_generated and code not in self.codes:
                raise CannotRollError(f"it makes a {cls.__qualname__}, which may change Python's own objects")
            fork.objects[id(made)] = made
        begin(made, *args, **kwargs)
        return made

    def _is_pure(self, function: Any, fork: Fork) -> bool:
        match function:
            case types.FunctionType():
                inside = getattr(function, "__wrapped__", None)
                drawn = str(getattr(inside, "__module__", "")).startswith("numpy.random")
                own = function.__code__.co_filename.startswith(OWN_FOLDER) and not drawn
                return own or function.__code__ in self.codes
            case types.MethodType():
                receiver: Any = function.__self__
                known = isinstance(receiver, TracerArray | MaskedSelection | Ragged | TracedGenerator | Growing)
                return known or getattr(function.__func__, "__code__", None) in self.codes
            case types.BuiltinFunctionType() | types.MethodWrapperType():
                return _is_pure_builtin(function, fork)
            case functools.partial():
                return self._is_pure(function.func, fork)
            case type():
                own = str(function.__module__).startswith("autofuse.")
                return (
                    own
                    or issubclass(function, BaseException)
                    or (issubclass(function, tuple) and hasattr(function, "_fields"))
                )
            case np.ufunc():
                return True
            case _:
                method = getattr(type(function), "__call__", None)  # noqa: B004 - not whether, but what
                return getattr(method, "__code__", None) in self.codes


def _is_python(function: Any) -> bool:
    """Whether it is one of Python's that gives something that it just made, or that nothing can change."""
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if isinstance(owner, list | dict | set | deque):
        return name in _COPIES
    return getattr(function, "__module__", None) == "builtins" and name in _PURE


def _appends(function: Any, fork: Fork) -> bool:
    """Whether it appends to a list from outside that nobody else can see, so that nothing in the loop reads it."""
    if not fork.lists or not isinstance(function, types.BuiltinFunctionType):
        return False
    if function.__name__ not in ("append", "extend"):
        return False
    if type(function.__self__) is not list or id(function.__self__) not in fork.lists:
        return False
    noted = sum(one is function.__self__ for one, _ in fork.appended)
    return _references(function) == _usual_references() + fork.lists[id(function.__self__)] + noted


def _references(method: Any) -> int:
    """How many hold the object whose method it is."""
    held = method.__self__
    return sys.getrefcount(held)


@functools.cache
def _usual_references() -> int:
    """How many do where only a variable of a function holds it, which it shares with one inside."""
    mine: list[Any] = []

    def asked() -> int:
        return _references(mine.append)

    return asked()


def _noted(fork: Fork, receiver: list[Any], value: Any) -> None:
    fork.appended.append((receiver, value))


def _all_noted(fork: Fork, receiver: list[Any], values: Any) -> None:
    if isinstance(values, Iterator) and id(values) not in fork.objects:
        raise CannotRollError("it takes elements from an iterator")
    for value in values:
        _noted(fork, receiver, value)


def _is_pure_builtin(function: Any, fork: Fork) -> bool:
    receiver = function.__self__
    if isinstance(receiver, types.ModuleType):
        return receiver.__name__ in _PURE_MODULES
    if id(receiver) in fork.objects:
        return True
    return isinstance(receiver, _VALUES) or (
        isinstance(receiver, list | dict | set | deque) and function.__name__ in _READS
    )


def _checked(function: Callable[..., Any], fork: Fork, /, *args: Any, **kwargs: Any) -> Any:
    """Call one of Python's functions, which must not use up an iterator from before the region."""
    for value in args:
        if isinstance(value, Iterator) and id(value) not in fork.objects:
            raise CannotRollError("it takes elements from an iterator")
    made = function(*args, **kwargs)
    if isinstance(made, list | dict | set | deque | Iterator):
        fork.objects[id(made)] = made
    return made


def _converted(function: type[np.generic], *args: Any) -> Any:
    """`np.float32(x)`."""
    if len(args) == 1 and isinstance(args[0], TracerArray):
        return args[0].astype(function)
    return function(*args)
