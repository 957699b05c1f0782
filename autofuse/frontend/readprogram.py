"""Tracing of programs that were read: their calls emit graphs, so there is no code of Python's to see through.

`traced.trace` makes the same of one. That module brings with it all that stands for NumPy's functions: a quarter of
what a first call of such a program would import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.tracecontext import OnUnsupported, Tracing, active
from autofuse.frontend.tracedprogram import Traced, check_overlap, input_tracers, is_array
from autofuse.frontend.tracer import TracerArray
from autofuse.ir import tree
from autofuse.ir.parameters import bound, call_in_order


def is_read(fn: Callable[..., Any], args: Sequence[Any]) -> bool:
    """Whether a function is such a program, given arrays and specs alone, by position."""
    return getattr(fn, "emits_graph", False) is True and all(map(is_array, args))


def trace_read(fn: Callable[..., Any], args: Sequence[Any], on_unsupported: OnUnsupported) -> Traced:
    """The graph of a program that was read. `args`, `on_unsupported`, and what it raises: see `traced.trace`."""
    parameters, values = bound(fn, args, {})
    leaves, in_tree = tree.flatten(values, is_array)
    tracing = Tracing(fn.__name__, on_unsupported=on_unsupported)
    with active(tracing):
        tracers = input_tracers(tracing, leaves, in_tree, parameters)
        returned, out_tree = tree.flatten(call_in_order(fn, parameters, tracers), _is_tracer)
        outputs = [as_tracer(leaf).value for leaf in returned]
        inputs = [tracer.cell.storage for tracer in tracers]
        writebacks = [(number, storage.read()) for number, storage in enumerate(inputs) if storage.version]
        check_overlap(leaves, [number for number, _ in writebacks])
        pairs = tuple((number, len(outputs) + place) for place, (number, _) in enumerate(writebacks))
        graph = tracing.finish([*outputs, *(value for _, value in writebacks)])
    left = tuple(tracing.left_to_numpy)
    return Traced(graph, in_tree, out_tree, pairs, parameters, values, left_to_numpy=left)


def _is_tracer(value: Any) -> bool:
    return isinstance(value, TracerArray)
