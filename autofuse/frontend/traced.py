"""Tracing: an ordinary NumPy function and its arguments become a Graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, get_args

import numpy as np

from autofuse.errors import ArgumentError, GraphError, NumpyOnlyError, TraceError
from autofuse.frontend import generators, implementations, proxy
from autofuse.frontend.bounds import joined
from autofuse.frontend.cells import Storage, of_array
from autofuse.frontend.forks import CannotRollError
from autofuse.frontend.location import raised_in, refusals, trace_error
from autofuse.frontend.methods import Method, Reader
from autofuse.frontend.outside import place_of
from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.selection import MaskedSelection
from autofuse.frontend.spec import Spec
from autofuse.frontend.tracecontext import OnUnsupported, Tracing, active
from autofuse.frontend.tracer import TracerArray
from autofuse.ir import tree, types
from autofuse.ir.contracts import BoundsCheck, check_contiguous
from autofuse.ir.contracts import check_bounds as verify_bounds
from autofuse.ir.devicearrays import is_device_array, type_of_device_array
from autofuse.ir.dtypes import ComplexDtypeError
from autofuse.ir.graph import Graph, Value
from autofuse.ir.parameters import bound, call_in_order, leaves_of_call, names_of
from autofuse.ir.tree import Tree
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

implementations.load()


@dataclass(frozen=True)
class Traced:
    """A traced function: its graph, and how arguments and results map to it."""

    graph: Graph
    """One input per array among the arguments, in order. Outputs: the returned arrays in order, then, where there are
    `bounds`, the numbers that tell whether they were kept, then the final values of the arguments that the function
    wrote into."""
    in_tree: Tree
    """Structure of the argument tuple; Python numbers and strings are static parts of it."""
    out_tree: Tree
    """Structure of what the function returns."""
    writebacks: tuple[tuple[int, int], ...]
    """(graph input, graph output): the caller's array to be overwritten, and the value it gets."""
    parameters: tuple[str, ...]
    """The function's parameters that were given (`autofuse.ir.parameters`)."""
    values: tuple[Any, ...]
    """Their values, as they were given."""
    contiguous: tuple[int, ...] = ()
    """Graph inputs that must be C-contiguous: in another memory order NumPy would compute something else of them."""
    bounds: tuple[BoundsCheck, ...] = ()
    """What indices must keep to, where they are to be checked (`autofuse.ir.contracts.check_bounds`)."""
    left_to_numpy: tuple[str, ...] = ()
    """Calls that run through NumPy, with their lines."""
    loops: tuple[str, ...] = ()
    """What became of Python's loops and branches, with their lines."""

    @property
    def results(self) -> int:
        """How many of the graph's outputs are returned; the rest are write-backs."""
        return tree.count_leaves(self.out_tree)

    @property
    def notes(self) -> tuple[str, ...]:
        """Which calls run through NumPy, and what became of loops, in words, for a plan's notes."""
        calls = ", ".join(dict.fromkeys(self.left_to_numpy))
        left = (f"calls left to NumPy, fused with nothing: {calls}",) if calls else ()
        return (*left, *self.loops)

    def flatten(self, args: tuple[Any, ...], kwargs: Mapping[str, Any] = MappingProxyType({})) -> list[Any]:
        """The arrays among call arguments, in graph input order. Raises ArgumentError naming the one that differs."""
        return leaves_of_call(self.graph.name, self.parameters, self.in_tree, args, kwargs)

    def unflatten(self, outputs: tuple[Any, ...] | list[Any]) -> Any:
        """What the function returns, from the graph's outputs. Scalars are NumPy scalars where NumPy has them.

        Raises OutOfBoundsError for an index that was to be checked and is out of bounds.
        """
        if self.bounds:
            verify_bounds(self.bounds, np.asarray(outputs[self.results]))
        returned = list(outputs[: self.results])
        for position, (_, leaf) in enumerate(tree.leaf_items(self.out_tree)):
            if leaf.scalar:
                returned[position] = np.asarray(returned[position])[()]
        return tree.unflatten(self.out_tree, returned)


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
        tracers = _input_tracers(tracing, leaves, in_tree, parameters)
        arguments = list(tree.unflatten(generators.opened(in_tree), tracers))
        for position in held:
            arguments[position] = _constant_argument(values[position])
        rewriter = proxy.Rewriter(roll=roll)
        rewriter.see_through(arguments)
        rewriter.outside.hold_arguments(dict(zip(names_of(parameters), arguments, strict=True)))
        with rewriter.outside.watched(fn, title, rewriter.assigned_globals):
            if isinstance(fn, Method):
                reader = Reader(fn, rewriter, lambda leaf, path: _input(tracing, leaf, path))
                returned = _run(reader.function, parameters, arguments)
                reader.finish()
                tracers += reader.tracers
                parameters, values, leaves, in_tree = fn.with_arrays(parameters, values, leaves, in_tree)
            else:
                returned = _run(rewriter.wrap_function(fn), parameters, arguments)
        inputs = [tracer.cell.storage for tracer in tracers]
        outputs, out_tree = _outputs(returned, fn)
        writebacks = [(i, storage.read()) for i, storage in enumerate(inputs) if storage.version]
        _check_overlap(leaves, [i for i, _ in writebacks])
        bounds = tuple(check for found in tracing.checks for check in found.checks)
        if bounds:
            outputs.append(joined([found.numbers for found in tracing.checks]))
        pairs = tuple((i, len(outputs) + k) for k, (i, _) in enumerate(writebacks))
        graph = tracing.finish([*outputs, *(value for _, value in writebacks)])
        contiguous = tuple(i for i, storage in enumerate(inputs) if storage.order_matters)
        check_contiguous(leaves, _paths(in_tree, parameters), contiguous)
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


def is_array(value: Any) -> bool:
    """Whether an argument becomes a graph input."""
    return isinstance(value, np.ndarray | np.generic | Spec | TracerArray) or is_device_array(value)


def _input_tracers(
    tracing: Tracing, leaves: list[Any], in_tree: Tree, parameters: tuple[str, ...]
) -> list[TracerArray]:
    return [_input(tracing, leaf, path) for leaf, path in zip(leaves, _paths(in_tree, parameters), strict=True)]


def _input(tracing: Tracing, leaf: Any, path: str) -> TracerArray:
    """An array or a spec as an input of the graph."""
    type_ = leaf.type if isinstance(leaf, Spec) else _type_of(leaf, path)
    value = tracing.input(type_, path.replace('"', "").replace("[", "_").replace("]", "").replace(".", "_"))
    if isinstance(leaf, np.ndarray | np.generic):
        tracing.samples[value] = leaf
    storage = Storage(type_, value)
    storage.is_input = True
    storage.order_from = frozenset({storage})
    return TracerArray(storage, is_scalar=isinstance(leaf, np.generic))


def _paths(in_tree: Tree, parameters: tuple[str, ...]) -> list[str]:
    """What to call each array among the arguments."""
    assert isinstance(in_tree, tree.Branch)
    named = zip(names_of(parameters), in_tree.children, strict=True)
    return [path for name, child in named for path in tree.paths(child, name)]


def _check_overlap(leaves: list[Any], written: list[int]) -> None:
    """Raises TraceError if an argument that is written into shares memory with another one."""
    for i in written:
        for j, other in enumerate(leaves):
            pair = (leaves[i], other)
            if i != j and all(isinstance(leaf, np.ndarray) for leaf in pair) and np.may_share_memory(*pair):
                raise TraceError(
                    f"arguments number {i} and {j} (counting arrays) share memory and the function writes into one of"
                    " them; pass a copy of the other"
                )


def _type_of(leaf: Any, path: str) -> TensorType:
    try:
        if is_device_array(leaf):
            return type_of_device_array(leaf)
        types.require_plain(leaf)
        return types.of_array(np.asarray(leaf))
    except ComplexDtypeError as error:
        raise NumpyOnlyError(f"argument {path}: {error}") from error
    except (GraphError, TypeError) as error:
        raise ArgumentError(f"argument {path}: {error}") from error


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
