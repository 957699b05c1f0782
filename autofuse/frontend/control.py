"""Loops and branches that stay in the graph: `cond`, `while_loop`, with the signatures of jax.lax.

Under trace the functions given become regions of a `while` or `if` node; they may read arrays of the enclosing function
but not write into them. Outside a trace they run as ordinary Python over NumPy arrays, so a function that uses them is
still an ordinary function. Loops whose iterations are counted stand in `countedloops`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autofuse.frontend.bounds import none_yet
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer, convert, result_dtype
from autofuse.frontend.regions import (
    Region,
    as_results,
    begun,
    copied,
    is_number,
    own,
    require_functions,
    require_structure,
    require_types,
)
from autofuse.frontend.tracecontext import CallScope, Checks, current, is_active
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir import dtypes, tree
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """`true_fun(*operands)` if the scalar `pred` holds, else `false_fun(*operands)`; only one of them is computed.

    Both must return the same structure, shapes and dtypes; Python numbers take the other side's dtype. A `pred` that is
    known while tracing chooses the branch at once. Raises TraceError that names the result that differs.
    """
    require_functions("cond", true_fun, false_fun)
    if not isinstance(pred, TracerArray) or pred.known is not None:
        return own(true_fun(*operands) if bool(pred) else false_fun(*operands))
    if pred.shape != ():
        raise trace_error(f"cond needs a scalar condition, got shape {pred.shape}", "np.where for elementwise choice")
    with CallScope():
        sides = [Region("cond", ()) for _ in range(2)]
        results = [side.run(lambda _, f=f: f(*operands)) for side, f in zip(sides, (true_fun, false_fun), strict=True)]
        if results[0].tree != results[1].tree:
            raise trace_error("the branches of cond return different structures", "return the same nest from both")
        pairs = zip(*(result.leaves for result in results), strict=True)
        targets = [_common(a, b, i) for i, (a, b) in enumerate(pairs)]
        first, second = (len(side.checks) for side in sides)
        seen = (sides[0].numbers(0, second), sides[1].numbers(first, 0))
        regions = [
            side.finish([*side.converted(result.values, targets), *numbers])
            for side, result, numbers in zip(sides, results, seen, strict=True)
        ]
        condition = convert(pred.value, np.dtype(np.bool_))
        values = current().builder.emit_many("if", (condition,), regions=regions)
        if first or second:
            *values, numbers = values
            current().checks.append(Checks((*sides[0].checks, *sides[1].checks), numbers))
        return tree.unflatten(results[0].tree, [fresh(value) for value in values])


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """`val = init_val; while cond_fun(val): val = body_fun(val)`; returns `val`.

    The body must return the structure, shapes and dtypes it is given; a Python number in `init_val` takes the dtype
    that the body returns for it. Raises TraceError that names the part of the state that differs.
    """
    require_functions("while_loop", cond_fun, body_fun)
    if not is_active():
        state = copied(init_val)
        while cond_fun(state):
            state = body_fun(state)
        return as_results(state)
    with CallScope():
        state, structure = begun(lambda given: body_fun(given[0]), init_val)
        types_ = [array.cell.type for array in state]
        body, condition = (Region(name, types_, repeats=True) for name in ("body", "condition"))
        result = body.run(lambda leaves: body_fun(tree.unflatten(structure, leaves)))
        require_structure(result.tree, structure)
        require_types(structure, state, result.values)
        holds = condition.run(lambda leaves: cond_fun(tree.unflatten(structure, leaves)))
        if [value.shape for value in holds.values] != [()]:
            raise trace_error("the condition of while_loop must be one scalar", "reduce it: np.any(...) or np.all(...)")
        body.check_keys(result.values)
        seen = _carried_checks(body, condition, len(state))
        regions = (
            condition.finish(condition.converted(holds.values, [TensorType((), dtypes.BOOL)])),
            body.finish([*body.converted(result.values, types_), *seen]),
        )
        start = [none_yet(len(body.checks))] if seen else []
        outputs = current().builder.emit_many("while", [*(array.value for array in state), *start], regions=regions)
        if seen:
            *outputs, numbers = outputs
            current().checks.append(Checks(body.checks, numbers))
        return tree.unflatten(structure, [fresh(value) for value in outputs])


def _carried_checks(body: Region, condition: Region, parts: int) -> Sequence[Value]:
    """One more part of a loop's state, where indices of its body are checked: the least numbers of all rounds."""
    if condition.checks:
        raise trace_error(
            "an index in the condition of a loop cannot be checked",
            "index in the body, and pass the element on in the state; or leave out check_bounds=True",
        )
    if body.checks:
        condition.bounds_input(len(body.checks), parts)
    return body.carried_numbers(parts)


def _common(a: Any, b: Any, position: int) -> TensorType:
    """The type of a result of two branches."""
    first, second = as_tracer(a), as_tracer(b)
    if first.shape == second.shape and (first.dtype == second.dtype or is_number(a) or is_number(b)):
        return TensorType(first.shape, dtypes.from_numpy(result_dtype(a, b)))
    raise trace_error(
        f"result {position} of cond is {first.cell.type} in one branch and {second.cell.type} in the other",
        "make shapes and dtypes equal, by .astype or np.broadcast_to",
    )
