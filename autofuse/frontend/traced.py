"""Tracing: an ordinary NumPy function and its arguments become a Graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, get_args

import numpy as np

from autofuse.errors import ArgumentError, NumpyOnlyError, TraceError
from autofuse.frontend import generators, implementations, proxy
from autofuse.frontend.bounds import joined
from autofuse.frontend.cells import of_array
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.location import raised_in, refusals, trace_error
from autofuse.frontend.methods import Method, Reader
from autofuse.frontend.outside import place_of
from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.selection import MaskedSelection
from autofuse.frontend.tracecontext import OnUnsupported, Tracing, active
from autofuse.frontend.tracedprogram import Traced, check_overlap, input_tracer, input_tracers, is_array, paths_of
from autofuse.frontend.tracer import TracerArray
from autofuse.ir import tree, types
from autofuse.ir.contracts import check_contiguous
from autofuse.ir.dtypes import ComplexDtypeError
from autofuse.ir.graph import Value
from autofuse.ir.parameters import bound, call_in_order, names_of
from autofuse.ir.tree import Tree

implementations.load()


def trace(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] = MappingProxyType({}),
    static: Collection[int | str] | None = None,
    name: str | None = None,
    on_unsupported: OnUnsupported = "numpy",
    check_bounds: bool = False,
    roll: bool = True,
) -> Traced:
    """Record what `fn(*args, **kwargs)` computes as a graph.

    Arrays, NumPy scalars and specs among the arguments (nested in tuples, lists, dicts, namedtuples, dataclasses)
    become graph inputs. Python `int`, `float`, `bool`, `str`, None and dtypes are constants of this trace, numbers with
    NEP 50's weak types; a call with another value needs another trace.

    `static` names further arguments (position or parameter name) to hold constant: an array of indices that Python
    loops over, say; the tree keeps its digest. `name` is the name of the graph, by default the function's. Arguments
    are taken to be C-contiguous and not to overlap. `on_unsupported`: what becomes of calls that have no implementation
    here, "numpy", "eager" or "error": see `autofuse.frontend.eager`. With `check_bounds`, the graph has one more
    output, which tells whether indices that are known only at run time were in bounds.

    With `roll`, Python's loops of many iterations become loops of the graph, and `if` and `while` on traced values its
    branches and loops, where the source allows that (`autofuse.frontend.rolling`); else each iteration is traced, and
    Python cannot branch on a traced value.

    Of a `Method`, the arrays that it reads of its object are one more argument, a dict, by name.

    Raises TraceError, naming line and remedy, for what cannot be traced, NumpyOnlyError where NumPy can run the
    function; ArgumentError for an argument of another kind.
    """
    if on_unsupported not in get_args(OnUnsupported):
        raise ArgumentError(f'on_unsupported={on_unsupported!r:.80}: give "numpy", "eager" or "error"')
    parameters, values = bound(fn, args, kwargs)
    held = _static_positions(static, names_of(parameters))
    leaves, in_tree = tree.flatten(tuple(tree.hold(a) if i in held else a for i, a in enumerate(values)), is_array)
    title = name or getattr(fn, "__name__", None) or type(fn).__name__
    tracing = Tracing(title, on_unsupported=on_unsupported, check_bounds=check_bounds)
    with active(tracing):
        tracers = input_tracers(tracing, leaves, in_tree, parameters)
        arguments = list(tree.unflatten(generators.opened(in_tree), tracers))
        for position in held:
            arguments[position] = _constant_argument(values[position])
        rewriter = proxy.Rewriter(roll=roll)
        rewriter.see_through(arguments)
        rewriter.outside.hold_arguments(dict(zip(names_of(parameters), arguments, strict=True)))
        with rewriter.outside.watched(fn, title, rewriter.assigned_globals):
            if isinstance(fn, Method):
                reader = Reader(fn, rewriter, lambda leaf, path: input_tracer(tracing, leaf, path))
                returned = _run(reader.function, parameters, arguments)
                reader.finish()
                tracers += reader.tracers
                parameters, values, leaves, in_tree = fn.with_arrays(parameters, values, leaves, in_tree)
            else:
                returned = _run(rewriter.wrap_function(fn), parameters, arguments)
        inputs = [tracer.cell.storage for tracer in tracers]
        outputs, out_tree = _outputs(returned, fn)
        writebacks = [(i, storage.read()) for i, storage in enumerate(inputs) if storage.version]
        check_overlap(leaves, [i for i, _ in writebacks])
        bounds = tuple(check for found in tracing.checks for check in found.checks)
        if bounds:
            outputs.append(joined([found.numbers for found in tracing.checks]))
        pairs = tuple((i, len(outputs) + k) for k, (i, _) in enumerate(writebacks))
        graph = tracing.finish([*outputs, *(value for _, value in writebacks)])
        contiguous = tuple(i for i, storage in enumerate(inputs) if storage.order_matters)
        check_contiguous(leaves, paths_of(in_tree, parameters), contiguous)
    left = tuple(tracing.left_to_numpy)
    ordered = sorted(tracing.loop_notes.items(), key=lambda note: (note[0].file, note[0].line))
    notes = tuple(f"Python at {location}: {what}" for location, what in ordered)
    return Traced(graph, in_tree, out_tree, pairs, parameters, values, contiguous, bounds, left, notes)


def _run(fn: Callable[..., Any], parameters: tuple[str, ...], arguments: list[Any]) -> Any:
    with refusals() as refused:
        try:
            returned = call_in_order(fn, parameters, arguments)
        except TraceError:
            raise
        except CannotRollError as error:
            instead = "leave out int(), so that NumPy computes; or pass the number as a Python int"
            raise trace_error(f"this cannot be traced: {error.reason}", instead, at=raised_in(error)) from error
        except Exception as error:
            # the function, or NumPy (`a[0] = traced`), raised an error of its own because of one that it caught
            if refused:
                raise refused[0] from error
            raise
    if refused:  # the function caught it, and went on in another way than NumPy would
        raise refused[0]
    return returned


def _constant_argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        types.require_plain(value)
        return TracerArray(of_array(value.copy(), "it is a static argument"))
    return value


def _outputs(returned: Any, fn: Callable[..., Any]) -> tuple[list[Value], Tree]:
    try:
        leaves, out_tree = tree.flatten(returned, _is_result)
    except ArgumentError as error:
        raise TraceError(f"the traced function returns something that is not an array: {error}") from error
    for leaf in leaves:
        if isinstance(leaf, MaskedSelection):
            raise leaf.unsupported("returning it")
        if isinstance(leaf, TracerArray) and leaf.absent is not None:
            problem, instead = "what is returned may be None, as data decide", "return a number and a flag, or np.nan"
            raise trace_error(problem, instead, at=place_of(fn))
    try:
        return [as_tracer(leaf).value for leaf in leaves], out_tree
    except TypeError as error:
        raise TraceError(f"a result of the traced function {error}") from error
    except ComplexDtypeError as error:
        raise NumpyOnlyError(f"the traced function returns complex numbers: {error}") from error


def _is_result(value: Any) -> bool:
    return isinstance(value, TracerArray | np.ndarray | np.generic | MaskedSelection)


def _static_positions(static: Collection[int | str] | None, parameters: tuple[str, ...]) -> set[int]:
    found: set[int] = set()
    for item in static or ():
        if isinstance(item, str) and item in parameters:
            found.add(parameters.index(item))
        elif isinstance(item, int) and -len(parameters) <= item < len(parameters):
            found.add(item % len(parameters))
        else:
            raise ArgumentError(
                f"static names an argument by position or parameter name; got {item!r:.80}, of {parameters}"
            )
    return found
