"""Calls that have no implementation here: left to NumPy, one by one or with the whole function, or refused.

What `trace(..., on_unsupported=)` says:

- "numpy" (the default): a call of a listed function of NumPy or SciPy (`autofuse.ir.ops.library_signatures`) becomes a
  `custom_call` node between the traced ones, if its results' types follow from the types of its arguments
  (`autofuse.frontend.resulttypes`). Any other call of NumPy or SciPy, and what no graph does with complex numbers, is a
  NumpyOnlyError: the function can run as it is written, and does for `autofuse.compile`, `tune` and `jit`.
- "eager": result types of the others are learned by running them once, where the graph recorded so far is interpreted
  on the sample arguments given to `trace`. So it takes arrays, not specs, and no loop or branch body.
- "error": refused, with the nearest name that can be traced.

The traced arrays among the arguments are the node's operands; everything else is fixed in the target's name, which says
all that the call is: `numpy.linalg.solve[{"operand":0},{"operand":1}]{}`. Another process finds listed functions by it.
Any other call is registered for this process only, and its plan cannot be saved.

Limits: results must be arrays, or a tuple of them, whose types do not depend on the data; the function must not write
into its arguments. Functions whose number of results depends on data (`np.unique`) are refused in every mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from autofuse.errors import NumpyOnlyError, TraceError
from autofuse.frontend.dispatch import FUNCTIONS, UNSUPPORTED, describe, run
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.resulttypes import Returned, arrays_of, packing, returned_by
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir import types
from autofuse.ir.graph import Graph, Value
from autofuse.ir.interpreter import interpret
from autofuse.ir.ops import library_calls
from autofuse.ir.ops.calls import call_target, register_call
from autofuse.ir.ops.library_calls import Operand, UnnamableError
from autofuse.ir.types import TensorType

_INSTEAD = {
    "nonzero": "np.where(condition, a, b), or arithmetic on the mask: the number of results depends on data",
    "flatnonzero": "np.where(condition, a, b), or arithmetic on the mask: the number of results depends on data",
    "argwhere": "np.where(condition, a, b), or arithmetic on the mask: the number of results depends on data",
    "unique": "np.sort(x), or np.bincount(x, minlength=n): the number of results depends on data",
    "compress": "np.where(condition, a, 0)",
    "extract": "np.where(condition, a, 0)",
    "vectorize": "call the function on the whole arrays, with np.where for branches; or in a loop, out[i] = f(x[i]),"
    " which is compiled, branches and all",
}


def unsupported(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A function without an implementation was called on traced arrays."""
    label = describe(function)
    name = label.rpartition(".")[2]
    if name in _INSTEAD:
        raise trace_error(f"{label} cannot be traced", _INSTEAD[name])
    if current().on_unsupported == "error":
        raise trace_error(f"{label} cannot be traced", _nearest(label))
    return run(lambda *a, **k: _left_to_numpy(function, label, a, k), None, args, kwargs, label)


UNSUPPORTED.append(unsupported)


def numpys_own(function: Any, result: TensorType, *args: Any, **kwargs: Any) -> Any:
    """A call of a listed NumPy function as one node: for what it does faster than anything that kernels are made of.

    `result`: the type of what it returns. The user is not told: this is how the function is implemented.
    """
    target, operands = _named(function, describe(function), args, kwargs)
    values = [operand.value for operand in operands]
    return fresh(current().emit("custom_call", values, call_target_name=target, results=(result,)))


def _left_to_numpy(function: Any, label: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Emit a `custom_call` of `function`."""
    tracing = current()
    eager = tracing.on_unsupported == "eager"
    target, operands = _named(function, label, args, kwargs)
    values = [operand.value for operand in operands]
    known = None
    if not target.startswith(library_calls.LOCAL):
        known = returned_by(target, [value.type for value in values])
    if known is None and not eager:
        raise trace_error(f"{label} cannot be traced", _nearest(label), NumpyOnlyError)
    samples: list[Any] = []
    if known is None:
        known, samples = _sampled(target, label, values)
    outputs = tracing.builder.emit_many("custom_call", values, call_target_name=target, results=known.types)
    tracing.samples.update(zip(outputs, samples, strict=False))
    tracing.left_to_numpy.append(f"{label} at {tracing.builder.location or 'an unknown line'}")
    return known.pack([fresh(output) for output in outputs])


def _named(
    function: Any, label: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, Sequence[TracerArray]]:
    """The target of a call, and its operands."""
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
    module = library_calls.public_module(function)
    try:
        target = library_calls.target_name(module, str(getattr(function, "__name__", "")), fixed_args, fixed_kwargs)
    except UnnamableError as error:
        kind = TraceError if current().on_unsupported == "eager" else NumpyOnlyError
        raise trace_error(f"{label} cannot be left to NumPy: {error}", _nearest(label), kind) from None
    if target.startswith(library_calls.LOCAL) and current().on_unsupported == "eager":
        register_call(target, library_calls.bound(function, fixed_args, fixed_kwargs), replace=True)
    return target, operands


def _sampled(target: str, label: str, operands: Sequence[Value]) -> tuple[Returned, list[Any]]:
    """What the call returns for the sample arguments."""
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
    results = arrays_of(returned)
    return Returned(tuple(types.of_array(array) for array in results), packing(returned)), results


def _nearest(label: str) -> str:
    """What is supported under a similar name of the same module."""
    module, _, name = label.rpartition(".")
    known = {describe(function) for function in FUNCTIONS if callable(function)}
    short = {other.rpartition(".")[2]: other for other in known if other.rpartition(".")[0] == module}
    # names of a few letters resemble each other by chance: `inv` and `min`, `solve` and `convolve`
    from difflib import get_close_matches  # loaded by messages only

    near = get_close_matches(name, short, n=3, cutoff=0.75 if len(name) > 5 else 0.9)
    if near:
        return "near names that can be traced: " + ", ".join(short[item] for item in near)
    return (
        "compose it from elementwise functions, reductions, matmul and indexing; or"
        ' on_unsupported="numpy" or "eager" to leave the call to NumPy'
    )
