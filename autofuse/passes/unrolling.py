"""Loops of stencils with several iterations in one, so that a kernel can do more than one step between two barriers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import ClassVar

from autofuse.fusion.loops import refusal
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.passes.copies import copied_node, copied_region
from autofuse.passes.editing import new_node
from autofuse.passes.loopediting import Loop, Row, with_loops


@dataclass(frozen=True, slots=True)
class UnrollLoops:
    """Does several iterations in each iteration of a loop that is no kernel and whose body has elementwise work only.

    Iterations that are left over are a loop behind it. A loop that is unrolled says so in its attribute `unrolled`, and
    is not unrolled again. Exact: the same scalars are computed, in the same order.
    """

    times: int
    """Iterations that become one."""
    name: ClassVar[str] = "unrolled-loops"

    def apply(self, graph: Graph) -> Graph:
        """The graph with longer iterations; the same object if there is no such loop."""
        return with_loops(graph, partial(_unroll, self.times))


def _unroll(times: int, loop: Loop, _: Collection[Value]) -> None:
    if loop.length is None or loop.length < 2 * times or loop.unrolled is not None or not loop.carries:
        return
    if any(not _is_plain(node) for node in loop.nodes) or refusal(loop.node) is None:
        return
    left = loop.length % times
    parts = _split_off(loop, left) if left else []
    _join_iterations(loop, times)
    for whole, both in parts:
        loop.after("concatenate", *both, output=whole, dimension=0)


def _is_plain(node: Node) -> bool:
    role = role_of(node)
    return role is Role.ELEMENTWISE or role.moves or role.is_leaf


def _split_off(loop: Loop, left: int) -> list[tuple[Value, tuple[Value, Value]]]:
    """Give the last iterations to a loop of their own, behind this one. What is stacked, and the parts it comes in."""
    assert loop.length is not None
    done = loop.length - left
    first, last = (slice(left, loop.length), slice(0, left)) if loop.reverse else (slice(0, done), slice(done, None))
    state = [Value(loop.names.fresh(carry.last.name), carry.last.type) for carry in loop.carries]
    rest = [_slice(loop, row.array, last) for row in loop.rows]
    parts = [_stacked(loop, stack.stacked, length) for stack in loop.stacks for length in (done, left)]
    attrs = {"length": left, "carries": len(loop.carries), "reverse": loop.reverse}
    results = (*(carry.last for carry in loop.carries), *parts[1::2])
    body = copied_region(loop.node.regions[0], {}, loop.names)
    loop.put_after(Node("scan", (*state, *rest), results, attrs, (body,), loop.node.location))
    joined: list[tuple[Value, tuple[Value, Value]]] = []
    for stack, main, tail in zip(loop.stacks, parts[::2], parts[1::2], strict=True):
        joined.append((stack.stacked, (tail, main) if loop.reverse else (main, tail)))
        stack.stacked = main
    for carry, value in zip(loop.carries, state, strict=True):
        carry.last = value
    for row in loop.rows:
        row.array = _slice(loop, row.array, first)
    loop.length = done
    return joined


def _slice(loop: Loop, array: Value, rows: slice) -> Value:
    shape = array.type.shape
    start, stop, _ = rows.indices(shape[0])
    return loop.before(
        "slice",
        array,
        start_indices=(start, *(0 for _ in shape[1:])),
        limit_indices=(stop, *shape[1:]),
        strides=(1,) * len(shape),
    )


def _stacked(loop: Loop, like: Value, length: int) -> Value:
    return Value(loop.names.fresh(like.name), TensorType((length, *like.type.shape[1:]), like.type.dtype))


def _join_iterations(loop: Loop, times: int) -> None:
    """One iteration in place of so many."""
    assert loop.length is not None
    chunks = [_chunk(loop, row, times) for row in loop.rows]
    original, loop.nodes = list(loop.nodes), []
    state = {carry.given: carry.given for carry in loop.carries}
    made: list[list[Value]] = [[] for _ in loop.stacks]
    for number in range(times):
        place = times - 1 - number if loop.reverse else number
        to: dict[Value, Value] = dict(state)
        for row, chunk in zip(loop.rows, chunks, strict=True):
            to[row.row] = _at(loop, chunk.row, place)
        loop.nodes.extend(copied_node(node, to, loop.names) for node in original)
        for stack, rows in zip(loop.stacks, made, strict=True):
            rows.append(to.get(stack.row, stack.row))
        state = {carry.given: to.get(carry.next, carry.next) for carry in loop.carries}
    for carry in loop.carries:
        carry.next = state[carry.given]
    for stack, rows in zip(loop.stacks, made, strict=True):
        shape = stack.stacked.type.shape
        stack.row = _joined(loop, rows[::-1] if loop.reverse else rows)
        whole, stack.stacked = stack.stacked, _stacked(loop, stack.stacked, loop.length // times)
        stack.stacked = Value(stack.stacked.name, TensorType((shape[0] // times, times, *shape[1:]), whole.type.dtype))
        loop.after("reshape", stack.stacked, output=whole, shape=shape)
    loop.rows = chunks
    loop.length //= times
    loop.unrolled = times
    loop.changed = True


def _chunk(loop: Loop, row: Row, times: int) -> Row:
    """The rows of as many iterations at once."""
    count, *shape = row.array.type.shape
    array = loop.before("reshape", row.array, shape=(count // times, times, *shape))
    return Row(array, Value(loop.names.fresh(row.row.name), TensorType((times, *shape), row.row.type.dtype)))


def _at(loop: Loop, chunk: Value, place: int) -> Value:
    """One of the rows that an iteration gets."""
    _, *shape = chunk.type.shape
    starts, limits = (place, *(0 for _ in shape)), (place + 1, *shape)
    taken = _add(loop, "slice", chunk, start_indices=starts, limit_indices=limits, strides=(1,) * len(starts))
    return _add(loop, "reshape", taken, shape=tuple(shape))


def _joined(loop: Loop, rows: Sequence[Value]) -> Value:
    """The rows of several iterations, one behind the other."""
    parts = [_add(loop, "reshape", row, shape=(1, *row.type.shape)) for row in rows]
    return _add(loop, "concatenate", *parts, dimension=0)


def _add(loop: Loop, op: str, *inputs: Value, **attrs: object) -> Value:
    """A node of the body behind those that are there."""
    node = new_node(loop.names, op, inputs, attrs, location=loop.node.location)
    loop.nodes.append(node)
    return node.output
