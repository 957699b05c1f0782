"""Loops that run a number of times: `fori_loop` and `scan`, with the signatures of jax.lax.

Under trace they become a `scan` node whose body is traced once. What `control` says of regions holds here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np

from autofuse.frontend.bounds import none_yet
from autofuse.frontend.control import while_loop
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.regions import (
    Region,
    as_results,
    begun,
    copied,
    is_leaf,
    require_functions,
    require_structure,
    require_types,
)
from autofuse.frontend.tracecontext import CallScope, Checks, current, is_active
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir import dtypes, tree
from autofuse.ir.tree import Tree
from autofuse.ir.types import TensorType

_I64 = np.dtype(np.int64)

Step = Callable[[Any, list[Any]], Any]
"""From the state and a row of each sequence to a pair: the next state, and what is stacked."""


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """`val = init_val; for i in range(lower, upper): val = body_fun(i, val)`; returns `val`. Bounds may be traced."""
    require_functions("fori_loop", body_fun)
    lower, upper = (_whole("fori_loop", "a bound", value) for value in (lower, upper))
    if not is_active():
        state = copied(init_val)
        for i in range(int(lower), int(upper)):
            state = body_fun(i, state)
        return as_results(state)
    with CallScope():
        first, last = as_tracer(lower).astype(_I64), as_tracer(upper).astype(_I64)
        if first.known is not None and last.known is not None:
            count = max(0, int(last) - int(first))
            numbers = fresh(current().emit("iota", (), shape=(count,), dtype=dtypes.I64, iota_dimension=0))
            counter = numbers if int(first) == 0 else numbers + first
            state, _ = _counted(lambda val, row: (body_fun(row[0], val), None), init_val, [counter], count)
            return state
        _, result = while_loop(lambda s: s[0] < last, lambda s: (s[0] + 1, body_fun(s[0], s[1])), (first, init_val))
        return result


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: Any = None,
    reverse: bool = False,
    unroll: int = 1,
) -> tuple[Any, Any]:
    """`for x in xs: carry, y = f(carry, x)`; returns the last carry and the stacked `y`s.

    `xs` is any nest of arrays with one leading extent, or None with `length`. `unroll` is accepted and left to the
    compiler. A `length` that only the run knows is one plan for all: then there are no `xs`, and nothing is stacked.
    Raises TraceError for unequal extents, a carry that changes its type, or a function that returns no pair.
    """
    del unroll
    require_functions("scan", f)
    if isinstance(length, TracerArray) and length.known is None:
        return _scan_of_unknown_length(f, init, xs, length, reverse)
    arrays, structure = tree.flatten(xs, is_leaf)
    if not all(map(np.ndim, arrays)):
        raise trace_error("scan needs arrays to go through, got a number among xs", "length=n, or np.full(n, number)")
    length = None if length is None else int(_whole("scan", "its length", length))
    lengths = {len(array) for array in arrays} | ({length} if length is not None else set[int]())
    if len(lengths) != 1:
        found = str(sorted(lengths)) if lengths else "neither arrays among xs nor a length"
        raise trace_error(f"scan needs one length, got {found}", "xs of equal leading extents, or length=n")
    (count,) = lengths
    if count < 0:
        raise trace_error(f"scan needs a length of at least 0, got {count}", "length=n")
    if not is_active():
        return _scan_now(f, copied(init), arrays, structure, range(count)[:: -1 if reverse else 1])
    with CallScope():
        sources = [as_tracer(array) for array in arrays]
        return _counted(lambda carry, rows: f(carry, tree.unflatten(structure, rows)), init, sources, count, reverse)


def _whole(loop: str, what: str, value: Any) -> Any:
    """A bound that is a whole number, traced or not. Raises TraceError for any other."""
    if isinstance(value, TracerArray) and value.shape == () and value.dtype.kind in "iub":
        return value
    try:
        return index(value)
    except TypeError:
        raise trace_error(
            f"{loop} needs a whole number as {what}, got {value!r:.80}", "a Python int, or one of NumPy's"
        ) from None


def _scan_of_unknown_length(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, length: TracerArray, reverse: bool
) -> tuple[Any, Any]:
    """A scan whose number of iterations the run knows: what is stacked would have a shape that data decide."""
    if length.shape or length.dtype.kind not in "iu":
        raise trace_error(f"scan needs an integer as its length, got {length!r:.80}", "length=n")
    if tree.flatten(xs, is_leaf)[0]:
        raise trace_error(
            "scan needs xs of a leading extent that is known; its length is a traced value",
            "xs=None, and rows by number: af.fori_loop(0, n, lambda i, carry: f(carry, xs[i]), init)",
        )
    del reverse  # iterations are alike

    def step(_: Any, carry: Any) -> Any:
        carry, y = _pair(f(carry, xs))
        if tree.flatten(y, is_leaf)[0]:
            raise trace_error(
                "scan cannot stack what a number of iterations gives that is a traced value",
                "return carry, None; or write it into an array of the carry, out[i] = y, that is long enough",
            )
        return carry

    return fori_loop(0, length, step, init), xs


def _counted(
    step: Step, initial: Any, sources: Sequence[TracerArray], count: int, reverse: bool = False
) -> tuple[Any, Any]:
    """A loop of `count` iterations over the rows of `sources`: the last state, and what was stacked."""
    rows = [TensorType(source.shape[1:], source.cell.type.dtype) for source in sources]
    state, structure = begun(lambda given: _pair(step(*given))[0], initial, rows)
    types_ = [array.cell.type for array in state]
    size = len(state)
    body = Region("body", [*types_, *rows], repeats=True)
    result = body.run(lambda leaves: _pair(step(tree.unflatten(structure, leaves[:size]), leaves[size:])))
    assert isinstance(result.tree, tree.Branch)
    carried, stacked = result.tree.children
    require_structure(carried, structure)
    after, made = result.values[:size], result.values[size:]
    require_types(structure, state, after)
    if not count:
        none = [current().splat(0, row.dtype, (0, *row.shape)) for row in made]
        return _returned(structure, [array.value for array in state], stacked, none)
    body.check_keys(after)
    seen = body.carried_numbers(size)
    region = body.finish([*body.converted(after, types_), *seen, *body.converted(made, [r.cell.type for r in made])])
    start = [none_yet(len(body.checks))] if seen else []
    operands = [*(array.value for array in state), *start, *(source.value for source in sources)]
    outputs = (
        current().builder.emit_many(
            "scan", operands, regions=(region,), length=count, carries=size + len(start), reverse=reverse
        )
        if region.outputs
        else ()
    )
    current().checks.extend(Checks(body.checks, numbers) for numbers in outputs[size : size + len(start)])
    return _returned(structure, outputs[:size], stacked, outputs[size + len(start) :])


def _returned(structure: Tree, state: Sequence[Any], stacked: Tree, rows: Sequence[Any]) -> tuple[Any, Any]:
    last = tree.unflatten(structure, [fresh(value) for value in state])
    return last, tree.unflatten(stacked, [fresh(value, is_scalar=False) for value in rows])


def _pair(returned: Any) -> tuple[Any, Any]:
    """What a step returned. Raises TraceError unless it is a pair."""
    if not isinstance(returned, tuple) or len(returned) != 2:  # pyright: ignore[reportUnknownArgumentType]
        raise trace_error(
            f"the function of scan must return a pair, the next carry and what is stacked; got {returned!r:.80}",
            "return carry, None if nothing is stacked",
        )
    return returned  # pyright: ignore[reportUnknownVariableType]


def _scan_now(
    f: Callable[[Any, Any], tuple[Any, Any]], carry: Any, arrays: Sequence[Any], structure: Tree, order: range
) -> tuple[Any, Any]:
    """`scan` outside a trace."""
    if not order:
        return as_results(carry), _no_rows(f, copied(carry), arrays, structure)
    rows: dict[int, list[Any]] = {}
    y_tree: Tree = tree.Static(None)
    for i in order:
        carry, y = _pair(f(carry, tree.unflatten(structure, [array[i] for array in arrays])))
        rows[i], y_tree = tree.flatten(y, is_leaf)
    stacked = [_stacked(column) for column in zip(*(rows[i] for i in sorted(rows)), strict=True)]
    return as_results(carry), tree.unflatten(y_tree, stacked)


def _stacked(rows: Sequence[Any]) -> Any:
    shapes = sorted({np.shape(row) for row in rows})
    if len(shapes) > 1:
        raise trace_error(
            f"what the function of scan returns to be stacked has the shapes {shapes[0]} and {shapes[1]}",
            "keep shape and dtype of the state: start from an array of the final shape",
        )
    return np.stack(rows)


def _no_rows(f: Callable[[Any, Any], tuple[Any, Any]], carry: Any, arrays: Sequence[Any], structure: Tree) -> Any:
    """What a scan of no iteration stacks: no rows of what the function returns, seen on a row of zeros."""
    zeros = [np.zeros_like(array, shape=array.shape[1:])[()] for array in map(np.asarray, arrays)]
    with np.errstate(all="ignore"):
        _, y = _pair(f(carry, tree.unflatten(structure, zeros)))
    leaves, y_tree = tree.flatten(y, is_leaf)
    return tree.unflatten(y_tree, [np.stack([leaf])[:0] for leaf in leaves])
