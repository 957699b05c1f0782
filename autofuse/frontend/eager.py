"""Calls that cannot be traced: an error that names the nearest supported spelling, or, if asked, a call left to NumPy.

With `trace(..., on_unsupported="eager")` a function without an implementation becomes a `custom_call` node between the
traced ones:

1. The traced arrays among its arguments are the node's operands; everything else is fixed in the target's name, which
   says all that the call is: `numpy.linalg.solve[{"operand":0},{"operand":1}]{}`.
2. Result shapes and dtypes are learned by running it once: the graph recorded so far is interpreted on the sample
   arguments given to `trace` to get the operands. So eager tracing needs arrays, not specs.
3. `autofuse.ir.ops.library_calls` finds the function again in another process, for functions of NumPy and SciPy and
   parameters of theirs that are listed in `library_signatures`. Any other call is registered for this process only, and
   its plan cannot be saved.

Limits: results must be arrays (or a tuple of them) whose shapes do not depend on the data; the function must not write
into its arguments; it cannot stand inside a loop or branch body.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from autofuse.frontend.context import current
from autofuse.frontend.dispatch import FUNCTIONS, UNSUPPORTED, describe, run
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir import types
from autofuse.ir.graph import Graph, Value
from autofuse.ir.interpreter import interpret
from autofuse.ir.ops import library_calls
from autofuse.ir.ops.calls import call_target, register_call
from autofuse.ir.ops.library_calls import Operand, UnnamableError

_INSTEAD = {
    "nonzero": "np.where(condition, a, b), or arithmetic on the mask: the number of results depends on data",
    "flatnonzero": "np.where(condition, a, b), or arithmetic on the mask: the number of results depends on data",
    "argwhere": "np.where(condition, a, b), or arithmetic on the mask: the number of results depends on data",
    "unique": "np.sort(x), or np.bincount(x, minlength=n): the number of results depends on data",
    "compress": "np.where(condition, a, 0)",
    "extract": "np.where(condition, a, 0)",
    "vectorize": "call the function on the whole arrays, with np.where for branches",
}


def unsupported(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A function without an implementation was called on traced arrays."""
    label = describe(function)
    name = label.rpartition(".")[2]
    if name in _INSTEAD:
        raise trace_error(f"{label} cannot be traced", _INSTEAD[name])
    if current().eager:
        return run(lambda *a, **k: _left_to_numpy(function, label, a, k), None, args, kwargs, label)
    raise trace_error(f"{label} cannot be traced", _nearest(name))


UNSUPPORTED.append(unsupported)


def _left_to_numpy(function: Any, label: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Emit a `custom_call` of `function`."""
    operands: list[TracerArray] = []

    def numbered(value: Any) -> Any:
        if isinstance(value, TracerArray | np.ndarray):
            operands.append(as_tracer(value))
            return Operand(len(operands) - 1)
        if isinstance(value, list | tuple):
            items = [numbered(item) for item in cast("Sequence[Any]", value)]
            return items if isinstance(value, list) else tuple(items)
        return value

    fixed_args: list[Any] = [numbered(item) for item in args]
    fixed_kwargs = {key: numbered(item) for key, item in kwargs.items()}
    try:
        module = library_calls.public_module(function)
        target = library_calls.target_name(module, str(getattr(function, "__name__", "")), fixed_args, fixed_kwargs)
    except UnnamableError as error:
        raise trace_error(f"{label} cannot be left to NumPy: {error}", _nearest(label)) from None
    if target.startswith(library_calls.LOCAL):
        register_call(target, library_calls.bound(function, fixed_args, fixed_kwargs), replace=True)
    values = [operand.value for operand in operands]
    sampled = _results(target, label, values)
    types_ = tuple(types.of_array(array) for array in sampled[0])
    outputs = current().builder.emit_many("custom_call", values, call_target_name=target, results=types_)
    current().samples.update(zip(outputs, sampled[0], strict=True))
    results = tuple(fresh(output) for output in outputs)
    return results if sampled[1] else results[0]


def _results(target: str, label: str, operands: Sequence[Value]) -> tuple[list[Any], bool]:
    """What the call returns for the sample arguments, and whether that is a tuple."""
    tracing = current()
    if tracing.parent is not None:
        raise trace_error(f"{label} cannot be left to NumPy inside a loop or branch body", "call it outside")
    recorded = tracing.builder.finish(operands)
    if any(value not in tracing.samples for value in recorded.inputs):
        raise trace_error(
            f"{label} can be left to NumPy only if its result types can be learned by running it",
            "give trace() arrays instead of specs",
        )
    nodes = tuple(node for node in recorded.nodes if not any(output in tracing.samples for output in node.outputs))
    known = Graph(recorded.name, tuple(tracing.samples), nodes, recorded.outputs)
    arrays = interpret(known, *(np.asarray(sample) for sample in tracing.samples.values()))
    returned: Any = call_target(target)(*arrays)
    several = isinstance(returned, tuple | list)
    results = [np.asarray(item) for item in cast("Sequence[Any]", returned if several else [returned])]
    return results, several


def _nearest(name: str) -> str:
    """What is supported under a similar name."""
    known = {describe(function): function for function in FUNCTIONS if callable(function)}
    short = {label.rpartition(".")[2]: label for label in known}
    # names of a few letters resemble each other by chance: `inv` and `min`, `solve` and `convolve`
    near = difflib.get_close_matches(name, short, n=3, cutoff=0.75 if len(name) > 5 else 0.9)
    if near:
        return "near names that can be traced: " + ", ".join(short[item] for item in near)
    return (
        "compose it from elementwise functions, reductions, matmul and indexing; or"
        ' trace(..., on_unsupported="eager") to leave the call to NumPy'
    )
