"""A traced program: its graph with the form of its calls, and how arguments become inputs of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from autofuse.errors import ArgumentError, GraphError, NumpyOnlyError, TraceError
from autofuse.frontend.cells import Storage
from autofuse.frontend.spec import Spec
from autofuse.frontend.tracecontext import Tracing
from autofuse.frontend.tracer import TracerArray
from autofuse.ir import tree, types
from autofuse.ir.contracts import BoundsCheck
from autofuse.ir.contracts import check_bounds as verify_bounds
from autofuse.ir.devicearrays import is_device_array, type_of_device_array
from autofuse.ir.dtypes import ComplexDtypeError
from autofuse.ir.graph import Graph
from autofuse.ir.parameters import leaves_of_call, names_of
from autofuse.ir.tree import Tree
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass


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


def is_array(value: Any) -> bool:
    """Whether an argument becomes a graph input."""
    return isinstance(value, np.ndarray | np.generic | Spec | TracerArray) or is_device_array(value)


def input_tracers(
    tracing: Tracing, leaves: Sequence[Any], in_tree: Tree, parameters: tuple[str, ...]
) -> list[TracerArray]:
    """The arrays among arguments as inputs of the graph, in order."""
    return [input_tracer(tracing, leaf, path) for leaf, path in zip(leaves, paths_of(in_tree, parameters), strict=True)]


def input_tracer(tracing: Tracing, leaf: Any, path: str) -> TracerArray:
    """An array or a spec as an input of the graph."""
    type_ = leaf.type if isinstance(leaf, Spec) else _type_of(leaf, path)
    value = tracing.input(type_, path.replace('"', "").replace("[", "_").replace("]", "").replace(".", "_"))
    if isinstance(leaf, np.ndarray | np.generic):
        tracing.samples[value] = leaf
    storage = Storage(type_, value)
    storage.is_input = True
    storage.order_from = frozenset({storage})
    return TracerArray(storage, is_scalar=isinstance(leaf, np.generic))


def paths_of(in_tree: Tree, parameters: tuple[str, ...]) -> list[str]:
    """What to call each array among the arguments."""
    assert isinstance(in_tree, tree.Branch)
    named = zip(names_of(parameters), in_tree.children, strict=True)
    return [path for name, child in named for path in tree.paths(child, name)]


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


def check_overlap(leaves: Sequence[Any], written: Sequence[int]) -> None:
    """Raises TraceError if an argument that is written into shares memory with another one."""
    for i in written:
        for j, other in enumerate(leaves):
            pair = (leaves[i], other)
            if i != j and all(isinstance(leaf, np.ndarray) for leaf in pair) and np.may_share_memory(*pair):
                raise TraceError(
                    f"arguments number {i} and {j} (counting arrays) share memory and the function writes into one of"
                    " them; pass a copy of the other"
                )
