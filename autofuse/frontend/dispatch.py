"""From a NumPy call on traced arrays to the function here that implements it.

`implements(np.sum)` registers an implementation with NumPy's own signature. Every call of the user's, whether it comes
through an operator, a method, `__array_ufunc__`, `__array_function__` or the proxy, passes through `run`: it sets the
location of the nodes emitted, turns NumPy's errors into TraceErrors that name the line, and notes when the result does
not depend on traced inputs.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError, NumpyOnlyError, TraceError
from autofuse.frontend.cells import Known, Storage, order_of
from autofuse.frontend.layouts import depends_on_order
from autofuse.frontend.location import numpys_error, trace_error
from autofuse.frontend.tracecontext import current
from autofuse.ir.dtypes import ComplexDtypeError

Handler = Callable[..., Any]
_H = TypeVar("_H", bound=Handler)

ORDERED: set[Handler] = set()
"""Implementations whose results have NumPy's memory order; other results are in C order if all operands are."""
FUNCTIONS: dict[Any, Handler] = {}
"""NumPy function -> implementation."""
CREATORS: set[Any] = set()
"""Those of them that make arrays from no array: the proxy must catch them, NumPy's protocols do not."""
NAMED: dict[tuple[str, str], Handler] = {}
"""(module prefix, function name) -> implementation, for functions of modules that are not imported here."""
UNSUPPORTED: list[Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]] = []
"""What to do with a function that has no implementation; set by `eager`."""


_ASKED: tuple[type[Exception], ...] = (IndexError, ValueError, TypeError)
_ASKED_SIZE = 1_000_000
"""Elements of arguments for which NumPy is asked whether it raises too."""


def implements(*functions: Any, creates: bool = False) -> Callable[[_H], _H]:
    """Register the decorated function as the implementation of NumPy's `functions`."""

    def register(handler: _H) -> _H:
        for function in functions:
            FUNCTIONS[function] = handler
            if creates:
                CREATORS.add(function)
        return handler

    return register


def implements_named(prefix: str, name: str) -> Callable[[_H], _H]:
    """Register the implementation of `name` from a module whose name starts with `prefix`."""

    def register(handler: _H) -> _H:
        NAMED[prefix, name] = handler
        return handler

    return register


def find(function: Any) -> Handler | None:
    """The implementation of a function, if there is one."""
    try:
        handler = FUNCTIONS.get(function)
    except TypeError:  # not hashable
        return None
    if handler is None and NAMED:
        module, name = str(getattr(function, "__module__", "")), getattr(function, "__name__", "")
        for (prefix, known_name), candidate in NAMED.items():
            if name == known_name and module.startswith(prefix):
                return candidate
    return handler


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call NumPy's `function` on arguments that hold traced arrays."""
    for selection in _selections(args, kwargs):
        return selection.__array_function__(function, (), args, kwargs)
    handler = find(function)
    if handler is None:
        return UNSUPPORTED[0](function, args, kwargs)
    return run(handler, function, args, kwargs)


def _selections(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Arguments of unknown length, `x[mask]`: they decide themselves what can be done with them."""
    return (value for value in (*args, *kwargs.values()) if hasattr(type(value), "is_selection"))


def run(handler: Handler, reference: Any, args: Sequence[Any], kwargs: Mapping[str, Any], label: str = "") -> Any:
    """Run an implementation as one call of the user's; `reference` computes the same with NumPy on concrete arrays."""
    tracing = current()
    knowns = _knowns(args, kwargs)
    tracing.enter_call()
    try:
        result = handler(*args, **kwargs)
    except TraceError:
        raise
    except (TypeError, ValueError, IndexError, OverflowError, GraphError) as error:
        problem = f"{label or describe(reference)}: {error}"
        if isinstance(error, ComplexDtypeError):
            raise trace_error(problem, kind=NumpyOnlyError) from error
        if tracing.is_outermost_call and _numpy_raises(type(error), reference, args, kwargs):
            raise numpys_error(type(error), problem) from error
        raise trace_error(problem) from error
    finally:
        tracing.leave_call()
    if handler not in ORDERED:
        guess_order(result, args, kwargs)
    if knowns is not None and reference is not None:
        _attach(result, reference, args, kwargs, knowns)
    cell = getattr(result, "cell", None)
    if isinstance(cell, Storage) and cell.has_value:
        tracing.name_result(cell.read())
    return result


def _numpy_raises(kind: type[Exception], reference: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether NumPy raises such an error for zeros in place of the traced arrays, where that is cheap to ask."""
    tracers = list(tracers_in((*args, *kwargs.values())))
    if reference is None or not issubclass(kind, _ASKED) or sum(tracer.size for tracer in tracers) > _ASKED_SIZE:
        return False
    given = concrete((tuple(args), dict(kwargs)), _stand_in)
    try:
        given = copy.deepcopy(given)  # NumPy may write into the caller's own arrays, those of out= first
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reference(*given[0], **given[1])
    except _ASKED as theirs:
        return any(issubclass(kind, base) and isinstance(theirs, base) for base in _ASKED)
    except Exception:  # noqa: BLE001 - whatever NumPy raises, it is not this error
        return False
    return False


def _stand_in(tracer: Any) -> NDArray[Any]:
    known = tracer.known
    return np.zeros(tracer.shape, tracer.dtype) if known is None else known().copy()


def guess_order(result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Note on new arrays that NumPy may have put their elements in another order than C, and which arguments decide."""
    operands = [tracer.cell for tracer in tracers_in((*args, *kwargs.values()))]
    ordered = all(cell.layout.flags.c_contiguous and not cell.storage.order_is_guess for cell in operands)
    inherited = order_of(cell.storage for cell in operands)
    if ordered and not inherited:
        return
    given = {id(cell.storage) for cell in operands}
    for tracer in tracers_in(result):
        storage = tracer.cell.storage
        if id(storage) not in given and depends_on_order(storage.type.shape):
            storage.order_is_guess = storage.order_is_guess or not ordered
            storage.order_from = inherited


def describe(function: Any) -> str:
    """A function as the user writes it: `np.linalg.inv`."""
    module = str(getattr(function, "__module__", "") or "")
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)
    if isinstance(function, np.vectorize):
        return "np.vectorize"
    if isinstance(function, np.ufunc):
        return f"np.{name}" if getattr(np, str(name), None) is function else str(name)
    if module == "numpy" or module.startswith("numpy."):
        public = "linalg." if module.endswith("linalg") else "fft." if "fft" in module else ""
        return f"np.{public}{name}"
    return f"{module}.{name}" if module else str(name)


def tracers_in(value: Any) -> Iterator[Any]:
    """The traced arrays in arguments: directly, or inside tuples, lists, dicts and slices."""
    if hasattr(type(value), "cell"):
        yield value
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[Any]", value):
            yield from tracers_in(item)
    elif isinstance(value, dict):
        for item in cast("dict[Any, Any]", value).values():
            yield from tracers_in(item)
    elif isinstance(value, slice):
        yield from tracers_in((value.start, value.stop, value.step))


def concrete(value: Any, known: Callable[[Any], NDArray[Any]]) -> Any:
    """`value` with every traced array replaced by `known(array)`."""
    if hasattr(type(value), "cell"):
        array = known(value)
        return array[()] if value.is_scalar else array
    if isinstance(value, list | tuple):
        items = [concrete(item, known) for item in cast("Sequence[Any]", value)]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: concrete(item, known) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, slice):
        return slice(*(concrete(item, known) for item in (value.start, value.stop, value.step)))
    return value


def _copied(value: Any) -> Any:
    if isinstance(value, list | tuple):
        items = [_copied(item) for item in cast("Sequence[Any]", value)]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in cast("dict[Any, Any]", value).items()}
    return value


def _knowns(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[int, Known] | None:
    """What is known of each traced argument, by identity; None if one of them is not known."""
    found: dict[int, Known] = {}
    for tracer in tracers_in((*args, *kwargs.values())):
        known = tracer.known
        if known is None:
            return None
        found[id(tracer)] = known
    return found


def _attach(
    result: Any, reference: Any, args: Sequence[Any], kwargs: Mapping[str, Any], knowns: dict[int, Known]
) -> None:
    """Note on fresh results how to compute them."""
    fresh = [t for t in tracers_in(result) if isinstance(t.cell, Storage) and t.cell.version == 0]
    fresh = [t for t in fresh if t.cell.known is None and not t.cell.is_input]
    if not fresh:
        return
    held = _copied(tuple(args)), _copied(dict(kwargs))  # the caller may change its lists later
    memo: list[Any] = []

    def whole() -> Any:
        if not memo:
            given = concrete(held, lambda tracer: knowns[id(tracer)]())
            memo.append(reference(*given[0], **given[1]))
        return memo[0]

    if hasattr(type(result), "cell"):
        result.cell.known = Known(whole, knowns.values())
    elif isinstance(result, tuple | list):
        for position, item in enumerate(cast("Sequence[Any]", result)):
            if any(item is tracer for tracer in fresh):
                item.cell.known = Known(lambda position=position: whole()[position], knowns.values())
