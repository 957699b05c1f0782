"""The function under trace sees NumPy through a proxy.

NumPy's protocols do not reach calls that make arrays from none (`np.zeros(n)`, `np.array([t, t])`). So a copy of the
function is traced, whose globals and closure hold proxies for NumPy and copies of the helper functions; the user's own
functions, modules and globals are not changed. The proxy differs from NumPy only in its functions: a call that makes an
array, or is given a traced one, is traced; any other call is NumPy's own.

Seen through: plain functions, lambdas, nested functions, default arguments, `functools.partial`, bound methods and
objects of the user's classes, functions in containers, modules of functions, and imports inside the function. Cached
and compiled functions (`functools.lru_cache`, Numba) are replaced by the Python function they wrap. Objects that the
function makes of the user's classes are made of classes for the trace (`madeobjects`).
"""

from __future__ import annotations

import builtins
import functools
from collections import deque
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError, GraphError
from autofuse.frontend import floatingerrors
from autofuse.frontend.cells import of_array
from autofuse.frontend.dispatch import CREATORS, call, tracers_in
from autofuse.frontend.instances import getattr_in_numpy, hasattr_in_numpy, isinstance_in_numpy
from autofuse.frontend.joining import Concatenator
from autofuse.frontend.location import trace_error
from autofuse.frontend.madeobjects import MadeObjects
from autofuse.frontend.outside import FrozenIterator, Outside, is_iterator
from autofuse.frontend.randomness import source_of_numbers
from autofuse.frontend.rolling.control import Roller
from autofuse.frontend.tracer import TracerArray
from autofuse.frontend.ufuncproxy import UfuncProxy
from autofuse.frontend.usersclasses import ARRAY_LIBRARIES, has_own_methods, is_users_class, is_users_file
from autofuse.ir.types import require_plain


class Rewriter:
    """Makes the copies and proxies of one trace; each object is wrapped once."""

    def __init__(self, *, roll: bool = False) -> None:
        """`roll`: whether loops and branches may become loops and branches of the graph."""
        self._made = MadeObjects(self._seen_member, lambda held: held.get("__builtins__") is self._import)
        self._roller = Roller(self._made) if roll else None
        self._memo: dict[int, tuple[Any, Any]] = {}
        self._globals: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._classes: dict[type, type] = {}
        own = {} if self._roller is None else self._roller.names()
        asked = {"isinstance": isinstance_in_numpy, "hasattr": hasattr_in_numpy, "getattr": getattr_in_numpy}
        seen = {"__import__": self._import_module, **asked}
        self._import = {**vars(builtins), **own, **seen}
        self.outside = Outside()
        """What the function may change of what it reaches."""

    def wrap_function(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The copy of `fn` to trace."""
        wrapped: Callable[..., Any] = self.wrap(fn)
        return wrapped

    def wrap(self, value: Any) -> Any:
        """What the traced function sees in place of `value`."""
        found = self._memo.get(id(value))
        if found is None:
            random = source_of_numbers(value)
            wrapped = self._wrap(value) if random is None else random
            found = self._memo.setdefault(id(value), (value, wrapped))
            self._memo.setdefault(id(found[1]), (found[1], found[1]))
        return found[1]

    def _wrap(self, value: Any) -> Any:
        match value:
            case None | bool() | int() | float() | str() | bytes() | complex() | np.generic() | np.dtype():
                return value
            case np.ufunc():
                return UfuncProxy(value)
            case ModuleType():
                return self._module(value)
            case np.ndarray() if _is_plain(value):
                return _constant(value)
            case FunctionType():
                return self._function(value)
            case functools.partial():
                return functools.partial(
                    self.wrap(value.func),
                    *(self.wrap(item) for item in value.args),
                    **{key: self.wrap(item) for key, item in value.keywords.items()},
                )
            case MethodType():
                return self._method(value)
            case list() | tuple() | dict():
                return self._container(value)
            case type():
                return self._class(value)
            case _:
                return self._state(value) or self._object(value)

    def _class(self, cls: type) -> Any:
        if is_users_class(cls):
            self.outside.hold(cls)
        return _TYPES.get(cls, cls)

    def _state(self, value: Any) -> Any | None:
        """What stands for an object that holds some state of Python's or NumPy's; None for any other."""
        if isinstance(value, np.errstate):
            return floatingerrors.made_outside(value)
        if is_iterator(value):
            return FrozenIterator(value)
        if isinstance(value, set | deque):
            self.outside.hold(cast("Any", value))
        elif hasattr(value, "__dict__") and (is_users_class(type(value)) or isinstance(value, SimpleNamespace)):
            self.outside.hold_all(value)
        return None

    def _object(self, value: Any) -> Any:
        if _library_of(value) and not (_OPERATORS & set(dir(type(value)))):
            if isinstance(type(value).__init__, FunctionType) or type(value).__module__.startswith("scipy."):
                return _LibraryObject(value)
            if callable(value):
                return intercepted(value)
        if value is np.r_ or value is np.c_:
            return Concatenator(value)
        inside = getattr(value, "__wrapped__", None) or getattr(value, "py_func", None)
        if callable(value) and isinstance(inside, FunctionType):
            return self.wrap(inside)  # a cached or compiled function: the Python one is traced
        if isinstance(value, BuiltinFunctionType) or not has_own_methods(type(value)):
            return value
        return self._instance(value)

    def see_through(self, value: Any) -> None:
        """Have the methods of objects among arguments be traced."""
        self._made.see_through(value)

    def assigned_globals(self) -> list[str]:
        """The globals that functions under trace have assigned or deleted. The user's own stay as they were."""
        found: list[str] = []
        for original, shadow in self._globals.values():
            for name in original.keys() | shadow.keys():
                before, now = original.get(name, shadow), shadow.get(name, original)
                known = self._memo.get(id(before), (None, before))[1]
                if now is not before and known is not now and not name.startswith("__"):  # `__warningregistry__`, say
                    found.append(name)
        return found

    def _module(self, module: ModuleType) -> Any:
        name = module.__name__
        file = str(getattr(module, "__file__", "") or "")
        if name.split(".")[0] in ARRAY_LIBRARIES or (file and is_users_file(file)):
            return ModuleProxy(module, self)
        return module

    def _import_module(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self.wrap(builtins.__import__(name, *args, **kwargs))

    def _container(self, value: Any) -> Any:
        """A copy of a container that holds something to wrap; else the container itself."""
        if isinstance(value, dict):
            items = cast("dict[Any, Any]", value)
            wrapped = {key: self.wrap(item) for key, item in items.items()}
            same = all(wrapped[key] is items[key] for key in items) or type(value) is not dict
            seen: Any = value if same else wrapped
            self.outside.hold(seen, own=same)
            return seen
        listed: list[Any] = list(value)
        copies = [self.wrap(item) for item in listed]
        same = all(copy is item for copy, item in zip(copies, listed, strict=True))
        if isinstance(value, list):
            seen = cast("list[Any]", value) if same else copies
            self.outside.hold(seen, own=same)
            return seen
        if same:
            return value
        return type(value)(*copies) if hasattr(value, "_fields") else tuple(copies)

    # functions

    def _function(self, fn: FunctionType) -> Any:
        if _library_of(fn):
            return floatingerrors.seterr if fn is np.seterr else intercepted(fn)
        if not is_users_file(fn.__code__.co_filename):
            return fn
        shadow = self._shadow_globals(fn.__globals__)
        cells = {name: CellType() for name in fn.__code__.co_freevars}
        code = fn.__code__ if self._roller is None else self._roller.code(fn) or fn.__code__
        copy = FunctionType(code, shadow, fn.__name__, None, tuple(cells[name] for name in code.co_freevars))
        self._memo[id(fn)] = (fn, copy)  # before looking inside: functions may be recursive
        self._memo[id(copy)] = (copy, copy)
        for name in _names(fn.__code__):
            if name in fn.__globals__ and shadow[name] is fn.__globals__[name]:
                shadow[name] = self._named(fn.__globals__[name], name)
        for (name, cell), original in zip(cells.items(), fn.__closure__ or (), strict=True):
            self._fill(cell, original, name)
        names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
        defaults = fn.__defaults__ or ()
        own = names[len(names) - len(defaults) :]
        copy.__defaults__ = tuple(map(self._named, defaults, own)) if defaults else None
        copy.__kwdefaults__ = {key: self._named(item, key) for key, item in (fn.__kwdefaults__ or {}).items()}
        copy.__dict__.update(fn.__dict__)
        copy.__qualname__ = fn.__qualname__
        self.outside.hold(copy, own=False)
        return copy

    def _fill(self, cell: CellType, original: CellType, name: str) -> None:
        try:
            content = original.cell_contents
        except ValueError:  # a variable of the enclosing function that is not assigned yet
            return
        cell.cell_contents = self._named(content, name)
        self.outside.hold_variable(name, cell, cell.cell_contents)

    def _named(self, value: Any, name: str) -> Any:
        """What the traced function sees in place of a value that it knows by a name."""
        seen = self.wrap(value)
        for known in (value, seen):
            self.outside.named(known, name)
        return seen

    def _shadow_globals(self, original: dict[str, Any]) -> dict[str, Any]:
        found = self._globals.get(id(original))
        if found is None:
            found = self._globals[id(original)] = (original, {**original, "__builtins__": self._import})
        return found[1]

    # methods and objects

    def _method(self, method: MethodType) -> Any:
        receiver: Any = method.__self__
        if isinstance(receiver, type) or not has_own_methods(type(receiver)):
            return MethodType(self.wrap(method.__func__), receiver)
        return MethodType(self.wrap(method.__func__), self.wrap(receiver))

    def _instance(self, value: Any) -> Any:
        """An object that shares the attributes of `value` and whose methods and attributes are wrapped."""
        try:
            cls = self._shadow_class(type(value))
            copy = object.__new__(cls)
        except TypeError:  # a class that cannot be subclassed or has its own layout
            return value
        if not hasattr(value, "__dict__"):
            return value
        object.__setattr__(copy, "__dict__", value.__dict__)
        return copy

    def stand_in(self, value: Any, read: Callable[[Any, str], Any], write: Callable[..., None]) -> Any:
        """An object of the class of `value`, wrapped, without its attributes: functions read and write those.

        Raises ArgumentError for a class that cannot be subclassed, or has a layout of its own.
        """
        members = {"__getattribute__": read, "__setattr__": write, "__delattr__": write}
        try:
            shadow = self._shadow_class(type(value))
            return object.__new__(type(shadow.__name__, (shadow,), members))
        except TypeError as error:
            raise ArgumentError(f"methods of a {type(value).__name__} cannot be traced: {error}") from None

    def _shadow_class(self, cls: type) -> type:
        found = self._classes.get(cls)
        if found is None:

            def attribute(receiver: Any, name: str) -> Any:
                return self._attribute(receiver, name)

            members: dict[str, Any] = {"__getattribute__": attribute}
            for owner in reversed(cls.__mro__[:-1]):
                members |= {k: self._member(v) for k, v in vars(owner).items() if self._member(v) is not None}
            found = self._classes[cls] = type(cls.__name__, (cls,), members)
        return found

    def _attribute(self, receiver: Any, name: str) -> Any:
        value = object.__getattribute__(receiver, name)
        if name.startswith("__") or isinstance(value, MethodType):
            return value
        return self._named(value, f"{type(receiver).__name__}.{name}")

    def _seen_member(self, member: Any) -> Any:
        """A class attribute that is Python code or an array, as the trace has it; None for any other."""
        return self.wrap(member) if isinstance(member, np.ndarray) else self._member(member)

    def _member(self, member: Any) -> Any:
        """A class attribute that is Python code, wrapped; None for any other."""
        match member:
            case FunctionType():
                return self.wrap(member)
            case staticmethod():
                return staticmethod(self.wrap(member.__func__))
            case property() if member.fget is not None:
                return property(self.wrap(member.fget), member.fset and self.wrap(member.fset), member.fdel)
            case _ if callable(member) and isinstance(getattr(member, "__wrapped__", None), FunctionType):
                return self.wrap(member)
            case _:
                return None


class ModuleProxy(ModuleType):
    """A module whose attributes are wrapped when they are read."""

    def __init__(self, module: ModuleType, rewriter: Rewriter) -> None:
        super().__init__(module.__name__, module.__doc__)
        self._autofuse_module = module
        self._autofuse_rewriter = rewriter

    def __getattr__(self, name: str) -> Any:
        return self._autofuse_rewriter.wrap(getattr(self._autofuse_module, name))

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_autofuse_"):
            raise trace_error(
                f"assigning {self.__name__}.{name} in a function that is compiled",
                "return the new value and assign it outside",
            )
        super().__setattr__(name, value)


class _NDArrayMeta(type):
    """Traced arrays pass `isinstance(x, np.ndarray)`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, np.ndarray) or (isinstance(instance, TracerArray) and not instance.is_scalar)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, np.ndarray | TracerArray)


class _NDArray(np.ndarray[Any, Any], metaclass=_NDArrayMeta):
    """What `np.ndarray` is in a traced function."""

    def __new__(cls, shape: Any, dtype: Any = float, buffer: Any = None, *layout: Any, **more: Any) -> Any:
        """As `np.ndarray()`: a traced array, unless it is laid over memory that there is."""
        if buffer is not None or layout or more.keys() - {"order"}:
            return np.ndarray(shape, dtype, buffer, *layout, **more)
        return call(np.empty, shape, dtype, order=more.get("order") or "C")


def _vectorize(*args: Any, **kwargs: Any) -> Any:
    """`np.vectorize` in a traced function: its result says that it cannot be traced when it is called."""
    return intercepted(np.vectorize(*args, **kwargs))


_OPERATORS = {"__add__", "__mul__", "__matmul__", "__getitem__"}
"""An object with one of these is more than its methods: it stays as it is."""
_TYPES: dict[type, Any] = {np.ndarray: _NDArray, np.vectorize: _vectorize, np.errstate: floatingerrors.errstate}
"""Classes of NumPy that a traced function sees otherwise."""


def intercepted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy or SciPy that is traced when it makes an array or is given a traced one."""
    creates = callable(getattr(function, "__hash__", None)) and function in CREATORS

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        args = tuple([list(cast("Any", arg)) if type(arg) is deque else arg for arg in args])
        if creates or _has_traced((args, kwargs)):
            return call(function, *args, **kwargs)
        return function(*args, **kwargs)

    return wrapper


class _LibraryObject:
    """An object of NumPy's or SciPy's, a distribution of `scipy.stats` say: it is called, and its methods are."""

    def __init__(self, value: Any) -> None:
        self._autofuse_object = value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return intercepted(self._autofuse_object)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._autofuse_object, name)
        return intercepted(found) if callable(found) else found


def _has_traced(value: Any) -> bool:
    return any(True for _ in tracers_in(value)) or _has_selection(value)


def _has_selection(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_has_selection(item) for item in cast("list[Any]", value))
    return hasattr(type(value), "is_selection")


def _constant(array: NDArray[Any]) -> Any:
    """An array of the user's own. Of a dtype that no graph holds it stays NumPy's; tracing it is an error."""
    try:
        return TracerArray(of_array(array, "it is a global of the traced function; pass it as an argument"))
    except GraphError:
        held = array.view()
        held.flags.writeable = False
        return held


def _is_plain(value: Any) -> bool:
    """Whether an array is traced. Other classes compute alone, and raise with traced ones."""
    try:
        require_plain(value)
    except TypeError:
        return False
    return True


def _library_of(value: Any) -> str:
    """`numpy` or `scipy` for their functions and objects; else empty."""
    library = str(getattr(value, "__module__", None) or type(value).__module__).split(".")[0]
    return library if library in ARRAY_LIBRARIES and not isinstance(value, type) else ""


def _names(code: CodeType) -> Iterator[str]:
    """Every global (and attribute) name in a function and the functions nested in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
