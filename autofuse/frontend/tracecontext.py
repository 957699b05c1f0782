"""The trace under way: where traced operations emit their nodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from autofuse.errors import TraceError
from autofuse.frontend import finishing
from autofuse.frontend.drawnkeys import DrawnKeys
from autofuse.frontend.forks import Fork
from autofuse.frontend.location import assigned_name, location_of, user_frame
from autofuse.ir import dtypes
from autofuse.ir.contracts import BoundsCheck
from autofuse.ir.graph import Attrs, Graph, Location, Node, Value
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

_ACTIVE = threading.local()

OnUnsupported = Literal["numpy", "eager", "error"]
"""What becomes of what cannot be traced: see `autofuse.frontend.eager`."""


@dataclass(frozen=True, slots=True)
class Checks:
    """Indices that a call is to check."""

    checks: tuple[BoundsCheck, ...]
    numbers: Value
    """`i64[2 n]`: for each check the least index and the least complement of one (`autofuse.frontend.bounds`)."""


class Tracing:
    """One graph being recorded. A nested Tracing records a region; it may read values of the enclosing ones."""

    def __init__(
        self,
        name: str,
        *,
        parent: Tracing | None = None,
        on_unsupported: OnUnsupported = "error",
        check_bounds: bool = False,
        repeats: bool = False,
        fork: Fork | None = None,
    ) -> None:
        self.builder = GraphBuilder(name)
        self.parent = parent
        self.fork = fork
        """Of a region that may write into arrays of the enclosing ones: the arrays as it sees them."""
        self.repeats = repeats
        """Whether it is a region that runs once in every iteration of a loop."""
        self.drawn_keys = DrawnKeys(None if parent is None else parent.drawn_keys)
        self.on_unsupported: OnUnsupported = parent.on_unsupported if parent is not None else on_unsupported
        """What becomes of calls that have no implementation here."""
        self.left_to_numpy: list[str] = parent.left_to_numpy if parent is not None else []
        """Calls that run through NumPy, as the user wrote them, with their lines; one list for all regions."""
        self.check_bounds = check_bounds if parent is None else parent.check_bounds
        """Whether indices that are known only at run time leave something to check."""
        self.loop_notes: dict[Location, str] = parent.loop_notes if parent is not None else {}
        """By the line: what became of a Python loop or branch; one for all regions."""
        self.caught: list[Callable[[], Any]] = parent.caught if parent is not None else []
        """What handlers around catch (`caughterrors`); one list for all regions."""
        self.checks: list[Checks] = []
        self.samples: dict[Value, Any] = {}
        """Concrete arrays of the inputs, where known; `eager` runs unsupported calls on them to learn result types."""
        self._scalars: dict[tuple[Any, ...], Value] = {}
        self._asked: list[Value] = []
        self._names: dict[Value, str] = {}
        self._emitted: dict[Value, tuple[str, tuple[Value, ...], Attrs]] = {}
        self._depth = 0

    def emit(self, op: str, inputs: Sequence[Value] = (), **attrs: Any) -> Value:
        """Add a node with one result."""
        value = self.builder.emit(op, inputs, **attrs)
        self._emitted[value] = (op, tuple(inputs), attrs)
        return value

    def adopt(self, node: Node, inputs: Sequence[Value], regions: Sequence[Graph] = ()) -> tuple[Value, ...]:
        """Add a node of another graph; see `GraphBuilder.adopt`."""
        outputs = self.builder.adopt(node, inputs, regions)
        if len(outputs) == 1 and not regions:
            self._emitted[outputs[0]] = (node.op, tuple(inputs), node.attrs)
        return outputs

    def take_over(self, nodes: Collection[Node]) -> None:
        """Add nodes that read values of this trace, as they are; see `GraphBuilder.take_over`."""
        self.builder.take_over(nodes)
        for node in nodes:
            if len(node.outputs) == 1 and not node.regions:
                self._emitted[node.outputs[0]] = (node.op, node.inputs, node.attrs)

    def made_by(self, value: Value) -> tuple[str, tuple[Value, ...], Attrs]:
        """Op, operands and attributes of the node that gives `value`; an empty op for inputs and calls."""
        return self._emitted.get(value, ("", (), {}))

    def same(self, a: Value, b: Value, depth: int = 16) -> bool:
        """Whether two values are, as far as `depth` nodes back, the same computation on the same values."""
        if a is b:
            return True
        first, second = self._emitted.get(a), self._emitted.get(b)
        if first is None or second is None or not depth or first[0] != second[0] or len(first[1]) != len(second[1]):
            return False
        equal_attrs = first[2].keys() == second[2].keys() and all(first[2][k] == second[2][k] for k in first[2])
        return equal_attrs and all(self.same(x, y, depth - 1) for x, y in zip(first[1], second[1], strict=True))

    def scalar(self, value: Any, dtype: np.dtype[Any]) -> Value:
        """A scalar constant, emitted once per value and dtype. Raises OverflowError as NumPy does."""
        with np.errstate(over="ignore"):  # a Python float beyond a narrow dtype is infinity
            array = np.asarray(value, dtype)

        def make() -> Value:
            value = self.builder.constant(array, "constant")
            self._emitted[value] = ("constant", (), {"value": array})
            return value

        return self.once((dtype, array.tobytes()), make)

    def splat(self, value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Value:
        """An array of one repeated value: a scalar constant, broadcast."""
        return self.splat_of(self.scalar(value, dtype), shape)

    def splat_of(self, scalar: Value, shape: tuple[int, ...]) -> Value:
        """A scalar constant, broadcast; emitted once per constant and shape."""
        if not shape:
            return scalar
        return self.once(
            (scalar, shape),
            lambda: self.emit("broadcast_in_dim", (scalar,), shape=shape, broadcast_dimensions=()),
        )

    def once(self, key: tuple[Any, ...], make: Callable[[], Value]) -> Value:
        """The value of a key, made when it is asked for first."""
        found = self._scalars.get(key)
        if found is None:
            found = self._scalars[key] = make()
        return found

    def once_around(self, key: tuple[Any, ...], make: Callable[[], Value]) -> Value:
        """As `once`; a value of an enclosing region is taken, too."""
        around: Tracing | None = self
        while around is not None:
            if key in around._scalars:
                return around._scalars[key]
            around = around.parent
        return self.once(key, make)

    def first_like(self, value: Value) -> Value:
        """The first of the values that this was asked for in the region, and that is the same computation."""
        found = next((other for other in self._asked if self.same(other, value)), value)
        if found is value:
            self._asked.append(value)
        return found

    def rename(self, old: Value, new: Value) -> None:
        """`new` replaces `old` in the user's variable: it takes the variable's name."""
        if old in self._names:
            self._names.setdefault(new, self._names[old])

    def suggest(self, value: Value, name: str) -> None:
        """Name `value` after the user's variable, unless it already has such a name."""
        self._names.setdefault(value, name)

    def input(self, type_: TensorType, name: str, at: int | None = None) -> Value:
        """Add a graph input, behind the others or as number `at`."""
        value = self.builder.input(type_, name, at)
        self._names[value] = name
        return value

    def finish(self, outputs: Sequence[Value]) -> Graph:
        """The recorded graph without dead nodes, values named after the user's variables."""
        graph = self.builder.finish(outputs)
        if self.parent is None:
            return finishing.finish(graph, self._names)
        for value, name in self._names.items():  # names are given once, over the whole graph
            self.parent.suggest(value, name)
        return finishing.pruned(graph)

    def enter_call(self) -> None:
        """A call of the user's begins: until `leave_call` its location is given to the nodes emitted."""
        if self._depth == 0:
            self.builder.location = location_of(user_frame())
        self._depth += 1

    def leave_call(self) -> None:
        """The call that began last is done."""
        self._depth -= 1

    @property
    def is_outermost_call(self) -> bool:
        """Whether the call under way is one of the user's, not one that serves another."""
        return self._depth == 1

    def name_result(self, value: Value) -> None:
        """Name the result of the user's call after the variable it is assigned to, if it is."""
        if self._depth == 0:
            name = assigned_name(user_frame())
            if name is not None:
                self.suggest(value, name)


class CallScope:
    """While open, nodes emitted have the location of the user's call that opened it."""

    def __enter__(self) -> None:
        current().enter_call()

    def __exit__(self, *exception: object) -> None:
        current().leave_call()


def is_active() -> bool:
    """Whether a function is being traced in this thread."""
    return bool(_stack())


def current() -> Tracing:
    """The innermost trace under way. Raises TraceError when there is none."""
    stack = _stack()
    if not stack:
        raise TraceError(
            "a traced array was used after its trace ended; do not keep traced arrays in globals or attributes"
        )
    return stack[-1]


def innermost_fork() -> Fork | None:
    """That of the loop or branch that is being traced once; None outside of those."""
    tracing = current() if is_active() else None
    while tracing is not None and tracing.fork is None:
        tracing = tracing.parent
    return None if tracing is None else tracing.fork


def innermost_loop() -> Fork | None:
    """That of the loop that is being traced once; None outside of those."""
    tracing = current() if is_active() else None
    while tracing is not None and (tracing.fork is None or not tracing.fork.is_loop):
        tracing = tracing.parent
    return None if tracing is None else tracing.fork


@contextmanager
def active(tracing: Tracing) -> Generator[Tracing]:
    """Make `tracing` the current one."""
    stack = _stack()
    stack.append(tracing)
    try:
        yield tracing
    finally:
        stack.pop()


def _stack() -> list[Tracing]:
    if not hasattr(_ACTIVE, "stack"):
        _ACTIVE.stack = []
    stack: list[Tracing] = _ACTIVE.stack
    return stack


def supported(dtype: Any) -> np.dtype[Any]:
    """`dtype` as a NumPy dtype that the graph can hold. Raises GraphError for complex, strings, objects."""
    return dtypes.from_numpy(np.dtype(dtype)).numpy
