"""Calls of ufuncs: dtype resolution, broadcasting, `out=` and `where=`; and the ufunc methods."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from autofuse.frontend.cells import order_of
from autofuse.frontend.dispatch import FUNCTIONS, ORDERED, UNSUPPORTED, call, guess_order
from autofuse.frontend.layouts import depends_on_order, layout_like
from autofuse.frontend.promotion import (
    as_tracer,
    broadcast,
    convert,
    dtype_of,
    is_weak,
    known_weak,
    shape_of,
    spread,
    static_number,
)
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh, write
from autofuse.frontend.ufunc_rules import RULES, apply
from autofuse.ir.graph import Value

METHODS: dict[str, Callable[..., Any]] = {}
"""Ufunc method (`reduce`, `accumulate`, ...) -> implementation (ufunc, *args, **kwargs)."""
GENERALIZED: dict[str, Callable[..., Any]] = {}
"""Ufuncs over subarrays (`matmul`, ...) -> implementation (ufunc, *args, **kwargs)."""

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}


def dispatch_ufunc(ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """A ufunc or one of its methods was called on traced arrays."""
    if method == "__call__":
        if ufunc.__name__ in GENERALIZED:
            return GENERALIZED[ufunc.__name__](ufunc, *inputs, **kwargs)
        if ufunc.__name__ in RULES:
            return elementwise(ufunc, *inputs, **kwargs)
    elif method in METHODS and ufunc.__name__ in RULES:
        result = METHODS[method](ufunc, *inputs, **kwargs)
        guess_order(result, inputs, kwargs)
        return result
    target = ufunc if method == "__call__" else getattr(ufunc, method)
    return UNSUPPORTED[0](target, inputs, kwargs)


FUNCTIONS["ufunc"] = dispatch_ufunc
ORDERED.add(dispatch_ufunc)


def elementwise(
    ufunc: np.ufunc,
    *operands: Any,
    out: Any = None,
    where: Any = True,
    casting: str = "same_kind",
    order: str = "K",
    dtype: Any = None,
    signature: Any = None,
    subok: bool = True,
) -> Any:
    """Call an elementwise ufunc. Where `where` is false and there is no `out`, the result is 0 (NumPy: anything)."""
    del order, subok
    if len(operands) > ufunc.nin:
        out, operands = tuple(operands[ufunc.nin :]), operands[: ufunc.nin]
    outs = out_arrays(out, ufunc.nout)
    given = [None if o is None else o.dtype for o in outs]
    _checked_by_numpy(ufunc, operands, given, dtype, casting, signature)
    constant = _out_of_range_comparison(ufunc, operands)
    if constant is not None:
        return finish(constant, outs[0], where, f"np.{ufunc.__name__}(out=)")
    loop = resolve(ufunc, operands, given, dtype, casting, signature)
    shape = np.broadcast_shapes(*map(shape_of, operands))
    terms = [
        Term(spread(operand, loop_dtype, shape), static_number(operand))
        for operand, loop_dtype in zip(operands, loop, strict=False)
    ]
    result = apply(ufunc.__name__, *terms)
    results = cast("tuple[Term, ...]", result if isinstance(result, tuple) else (result,))
    finished = [
        finish(convert(term.value, loop[ufunc.nin + i]), outs[i], where, f"np.{ufunc.__name__}(out=)")
        for i, term in enumerate(results)
    ]
    keep_order(finished, outs, [operand for operand in operands if isinstance(operand, TracerArray)])
    return finished[0] if ufunc.nout == 1 else tuple(finished)


def keep_order(results: Sequence[TracerArray], outs: Sequence[Any], operands: Sequence[TracerArray]) -> None:
    """Note the memory order NumPy gives to new results, that of the operands: it decides what a reshape aliases."""
    guessed = any(operand.cell.storage.order_is_guess for operand in operands)
    inherited = order_of(operand.cell.storage for operand in operands)
    for result, out in zip(results, outs, strict=True):
        if out is None:
            result.cell.storage.order_is_guess = guessed
            result.cell.storage.order_from = inherited if depends_on_order(result.shape) else frozenset()
            layout = layout_like([operand.cell.layout for operand in operands], result.shape)
            if layout is not None:
                result.cell.layout = layout


def out_arrays(out: Any, count: int) -> tuple[TracerArray | None, ...]:
    """`out=` as one traced array, or None, for each result."""
    given: tuple[Any, ...] = cast("tuple[Any, ...]", out) if isinstance(out, tuple) else (out,)
    padded = (*given, *(None,) * (count - len(given)))
    return tuple(None if array is None else as_tracer(array) for array in padded)


def resolve(
    ufunc: np.ufunc,
    operands: Sequence[Any],
    outs: Sequence[np.dtype[Any] | None],
    dtype: Any = None,
    casting: str = "same_kind",
    signature: Any = None,
) -> tuple[np.dtype[Any], ...]:
    """The dtypes of the loop NumPy would run, operands then results. Raises TypeError where NumPy does."""
    if dtype is not None and signature is None:
        signature = (None,) * ufunc.nin + (np.dtype(dtype),) * ufunc.nout
    weak = all(map(is_weak, operands))
    kinds: Any = (*(as_tracer(operand).dtype if weak else dtype_of(operand) for operand in operands), *outs)
    extra: dict[str, Any] = {} if signature is None else {"signature": signature}
    loop = ufunc.resolve_dtypes(kinds, casting=cast("Any", casting), **extra)
    return tuple(loop)


def _checked_by_numpy(
    ufunc: np.ufunc,
    operands: Sequence[Any],
    outs: Sequence[np.dtype[Any] | None],
    dtype: Any,
    casting: str,
    signature: Any,
) -> None:
    """Run the call on empty arrays: raises what NumPy raises, for casts and for Python numbers that do not fit."""
    empty: list[Any] = [known_weak(o) if is_weak(o) else np.empty(0, as_tracer(o).dtype) for o in operands]
    if all(map(is_weak, operands)):
        empty = [np.empty(0, as_tracer(operand).dtype) for operand in operands]
    options: dict[str, Any] = {} if dtype is None else {"dtype": dtype}
    options |= {} if signature is None else {"signature": signature}
    with np.errstate(all="ignore"):
        ufunc(*empty, out=tuple(o and np.empty(0, o) for o in outs), casting=cast("Any", casting), **options)


def finish(value: Value, out: TracerArray | None, where: Any, what: str) -> TracerArray:
    """The result array of a call: `out` written, or a new one; elements outside `where` keep `out`'s value."""
    if where is not True:
        value = _masked(value, out, as_tracer(where))
    if out is None:
        return fresh(value)
    if np.broadcast_shapes(out.shape, value.type.shape) != out.shape:
        raise ValueError(f"non-broadcastable output operand with shape {out.shape}; required {value.type.shape}")
    write(out, broadcast(convert(value, out.dtype), out.shape), what)
    return out


def _masked(value: Value, out: TracerArray | None, where: TracerArray) -> Value:
    shape = np.broadcast_shapes(value.type.shape, where.shape, () if out is None else out.shape)
    mask = Term(broadcast(convert(where.value, np.dtype(np.bool_)), shape))
    if out is None:
        return mask.select(Term(broadcast(value, shape)), 0).value
    computed = Term(broadcast(convert(value, out.dtype), shape))
    return mask.select(computed, Term(broadcast(out.value, shape))).value


def _out_of_range_comparison(ufunc: np.ufunc, operands: Sequence[Any]) -> Value | None:
    """An integer array compared with a Python int outside its range: the same answer everywhere, no overflow."""
    if ufunc.__name__ not in _COMPARE:
        return None
    for position, operand in enumerate(operands):
        other = operands[1 - position]
        if type(operand) is not int or is_weak(other):
            continue
        array = as_tracer(other)
        if not np.issubdtype(array.dtype, np.integer):
            return None
        info = np.iinfo(array.dtype)
        if info.min <= operand <= info.max:
            return None
        inside = 0
        pair = (operand, inside) if position == 0 else (inside, operand)
        answer = _COMPARE[ufunc.__name__](*pair)
        return current().splat(answer, np.dtype(np.bool_), array.shape)
    return None


def outer(ufunc: np.ufunc, a: Any, b: Any, **kwargs: Any) -> Any:
    """As `ufunc.outer`."""
    left, right = as_tracer(a), as_tracer(b)
    spread = call(np.reshape, left, left.shape + (1,) * right.ndim)
    return elementwise(ufunc, spread, right, **kwargs)


METHODS["outer"] = outer
