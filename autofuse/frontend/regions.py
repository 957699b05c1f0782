"""Nested traces that become regions of a node, and the state that they are given and return.

State is any nest of tuples, lists, dicts of arrays; Python numbers in it become arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from autofuse.frontend.bounds import joined, none_yet
from autofuse.frontend.cells import Storage
from autofuse.frontend.forks import Fork
from autofuse.frontend.keyuse import check_carried
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer, convert
from autofuse.frontend.tracecontext import Tracing, active, current
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir import dtypes, tree
from autofuse.ir.contracts import BoundsCheck
from autofuse.ir.graph import Graph, Value
from autofuse.ir.graphbuilder import free_values
from autofuse.ir.substitution import replaced, substituted_node
from autofuse.ir.tree import Tree
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import replace


class Result:
    """What a function returned in a region."""

    def __init__(self, returned: Any) -> None:
        self.leaves, structure = tree.flatten(returned, is_leaf)
        self.tree = plain(structure)
        self.values = [as_tracer(leaf) for leaf in self.leaves]


class Region:
    """A nested trace that becomes a region."""

    def __init__(
        self, name: str, inputs: Sequence[TensorType], *, repeats: bool = False, fork: Fork | None = None
    ) -> None:
        self._name = name
        self._tracing = Tracing(name, parent=current(), repeats=repeats, fork=fork)
        self._inputs = [self._tracing.input(type_, f"{name}_{i}") for i, type_ in enumerate(inputs)]

    def entered(self) -> AbstractContextManager[Tracing]:
        """While open, what is traced is the region's."""
        return active(self._tracing)

    @property
    def is_current(self) -> bool:
        """Whether what is traced now is the region's, and no inner one's."""
        return current() is self._tracing

    def owns(self, array: TracerArray) -> bool:
        """Whether an array was made in the region."""
        return self.has(array.cell.storage)

    def has(self, storage: Storage) -> bool:
        """Whether an array's memory was made in the region."""
        return storage.owner is self._tracing

    def made(self, value: Value) -> bool:
        """Whether a value was computed in the region."""
        return self._tracing.builder.producer(value) is not None

    def knows(self, value: Value) -> bool:
        """Whether a value is the region's: computed in it, or one of its inputs."""
        return self.made(value) or any(value is given for given in self._tracing.builder.inputs)

    def input(self, type_: TensorType) -> Value:
        """One more input."""
        return self._tracing.input(type_, self._name)

    def run(self, function: Callable[[list[Any]], Any]) -> Result:
        """Trace `function` on the region's inputs."""
        with active(self._tracing):
            return Result(function([fresh(value) for value in self._inputs]))

    def check_keys(self, state: Sequence[TracerArray]) -> None:
        """Warn of keys that a loop's body draws from and returns as they came.

        `state`: what its first inputs become.
        """
        with active(self._tracing):
            returned = [array.value for array in state]
            check_carried(self._tracing, zip(self._inputs, returned, strict=False))

    @property
    def checks(self) -> tuple[BoundsCheck, ...]:
        """What was recorded of indices in the region."""
        return tuple(check for found in self._tracing.checks for check in found.checks)

    def numbers(self, before: int, after: int) -> list[Value]:
        """The numbers of its checks, between those of others that see no index here; [] where there are none at all."""
        if not before + len(self.checks) + after:
            return []
        with active(self._tracing):
            others = [none_yet(count) if count else None for count in (before, after)]
            parts = [others[0], *(found.numbers for found in self._tracing.checks), others[1]]
            return [joined([part for part in parts if part is not None])]

    def bounds_input(self, checks: int, at: int) -> Value:
        """One more input, number `at`: what so many checks saw."""
        return self._tracing.input(TensorType((2 * checks,), dtypes.I64), "bounds", at)

    def carried_numbers(self, at: int) -> list[Value]:
        """One more part of a loop's state, input number `at`, where indices in its body are checked.

        It is the least numbers of all iterations; [] where no index is checked.
        """
        if not self.checks:
            return []
        seen = self.bounds_input(len(self.checks), at)
        (numbers,) = self.numbers(0, 0)
        with active(self._tracing):
            return [current().emit("minimum", (seen, numbers))]

    def converted(self, results: Sequence[TracerArray], types_: Sequence[TensorType]) -> list[Value]:
        """Results in the region as values of these types' dtypes."""
        with active(self._tracing):
            return [convert(r.value, t.dtype.numpy) for r, t in zip(results, types_, strict=True)]

    def finish(self, outputs: Sequence[Value]) -> Graph:
        """The region, with these of its values as its results."""
        return self._tracing.finish(outputs)

    def finish_with(self, inputs: Sequence[Value], outputs: Sequence[Value], to: Mapping[Value, Value]) -> Graph:
        """The region with these inputs and results. `to`: what takes the place of values that it reads."""
        recorded = self._tracing.finish(outputs)
        nodes = [node for node in recorded.nodes if not all(value in to for value in node.outputs)]
        made = tuple(substituted_node(node, to) for node in nodes)
        results = replaced(recorded.outputs, to)
        return Graph(recorded.name, tuple(inputs), made, results, free_values(inputs, made, results))


def begun(body: Callable[[Any], Any], initial: Any, rows: Sequence[TensorType] = ()) -> tuple[list[TracerArray], Tree]:
    """A loop's state before its first iteration, and the structure of it.

    Python numbers become arrays of the dtype that the body returns for them; only then is the body traced for that.
    `body`: from the state, and a list of the region's inputs that it reads beside (of the types `rows`), to the state.
    """
    leaves, structure = tree.flatten(initial, is_leaf)
    structure = plain(structure)
    if any(map(is_number, leaves)):
        trial = Region("trial", rows)
        came = trial.run(lambda given: body((tree.unflatten(structure, _as_state(leaves)), given)))
        require_structure(came.tree, structure)
        typed = zip(leaves, came.values, strict=True)
        leaves = [value.dtype.type(leaf) if is_number(leaf) else leaf for leaf, value in typed]
    return [as_tracer(leaf) for leaf in leaves], structure


def require_structure(came: Tree, given: Tree) -> None:
    """Raise TraceError if a loop's body returns another structure than it is given."""
    if came != given:
        raise trace_error("a loop body returns another structure than it is given", "return the state's own nest")


def require_types(structure: Tree, before: Sequence[TracerArray], after: Sequence[TracerArray]) -> None:
    """Raise TraceError that names the part of a loop's state whose type the body changes."""
    for path, given, came in zip(tree.paths(structure, "state"), before, after, strict=True):
        if came.cell.type != given.cell.type:
            raise trace_error(
                f"the loop's {path} is {given.cell.type} before the body and {came.cell.type} after it",
                "keep shape and dtype: start from an array of the final type, or .astype in the body",
            )


def is_leaf(value: Any) -> bool:
    """Whether a value is an array or a number of the state."""
    return isinstance(value, TracerArray | np.ndarray | np.generic | int | float | complex)


def is_number(leaf: Any) -> bool:
    """Whether a leaf is a Python number, whose dtype others decide."""
    return type(leaf) in (int, float, complex)


def plain(structure: Tree) -> Tree:
    """A structure without the difference between scalars and 0-d arrays, which loops do not keep."""
    match structure:
        case tree.Branch():
            return replace(structure, children=tuple(map(plain, structure.children)))
        case tree.Leaf():
            return tree.Leaf()
        case _:
            return structure


def require_functions(what: str, *given: Any) -> None:
    """Raise TraceError where a body or a condition is no function."""
    for function in given:
        if not callable(function):
            raise trace_error(f"{what} needs a function, got {function!r:.80}", f"the signature of jax.lax.{what}")


def copied(value: Any) -> Any:
    """State of its own: a body that writes into it changes nothing of the caller's."""
    leaves, structure = tree.flatten(value, is_leaf)
    return tree.unflatten(structure, [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves])


def as_results(state: Any) -> Any:
    """State after a loop: Python numbers as NumPy's, whose dtype counts in what follows, as it does in a trace."""
    leaves, structure = tree.flatten(own(state), is_leaf)
    return tree.unflatten(structure, [np.asarray(leaf)[()] if is_number(leaf) else leaf for leaf in leaves])


def own(value: Any) -> Any:
    """Results as arrays of their own, in C order: what a traced branch or loop gives."""
    leaves, structure = tree.flatten(value, is_leaf)
    held = [leaf.copy() if isinstance(leaf, np.ndarray | TracerArray) else leaf for leaf in leaves]
    return tree.unflatten(structure, held)


def _as_state(leaves: Sequence[Any]) -> list[Any]:
    """Leaves as a body may see them: arrays it can write into; Python numbers as they are."""
    return [leaf if is_number(leaf) else fresh(as_tracer(leaf).value) for leaf in leaves]
