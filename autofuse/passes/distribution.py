"""What is on no recurrence of a loop, done for all iterations at once: before the loop, or behind it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from autofuse.fusion.candidate import is_permuted
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.passes.batching import Emit, Operand, batched, can_batch
from autofuse.passes.loopediting import Carry, Loop, Row, Stack, reads, with_loops
from autofuse.passes.loopinvariants import Invariants

MOST_BYTES = 1 << 30
"""Arrays that hold something of all iterations, and that the program did not have, take at most so much together."""


@dataclass(frozen=True, slots=True)
class DistributeLoops:
    """Moves products and reductions that no recurrence needs out of the loops that count their iterations.

    - What is computed from rows alone is computed from all rows before the loop: `x[t] @ w` is one product with `w`.
    - What only stacked results need is computed from stacks behind it: `y[t] = h[t] @ w` too.
    - What is only added up over iterations is one sum behind it: `s + a[t].T @ b[t]`, a gradient of weights, is one
      product whose depth has all iterations.

    What is elementwise stays in the loop, but for what lies between what moves: it costs an array of all iterations
    outside, and next to nothing inside. A loop stays whole if its new arrays took more than `MOST_BYTES`. Exact: the
    same scalars are computed; sums are the same sums, in another order.
    """

    name: ClassVar[str] = "distributed-loops"

    def apply(self, graph: Graph) -> Graph:
        """The graph with smaller loops; the same object if nothing could move."""
        return with_loops(with_loops(graph, _take_sums), _distribute)


def _take_sums(loop: Loop, _: Collection[Value]) -> None:
    if loop.length is not None:
        _Sums(loop).move()


def _distribute(loop: Loop, _: Collection[Value]) -> None:
    if loop.length is not None:
        _Before(loop).move()
        _Behind(loop).move()


class _Distribution:
    """What both directions know of a loop."""

    def __init__(self, loop: Loop) -> None:
        assert loop.length is not None
        self.loop, self.length = loop, loop.length
        self.same = Invariants(loop)
        self.arrays = {row.row: row.array for row in loop.rows}
        """By values of the body, what they are in all iterations."""

    def operand(self, value: Value) -> Operand:
        """A value of all iterations, outside of the loop."""
        stacked = self.arrays.get(value)
        return Operand(self.same.outside(value), False) if stacked is None else Operand(stacked, True)

    def compute(self, nodes: Sequence[Node], emit: Emit) -> None:
        """Compute nodes for all iterations."""
        for node in nodes:
            operands = [self.operand(value) for value in node.inputs]
            self.arrays[node.output] = batched(node, operands, self.length, partial(emit, like=node))

    def fits(self, values: Collection[Value]) -> bool:
        """Whether arrays of all iterations of these are not too large."""
        return self.length * sum(value.type.nbytes for value in values) <= MOST_BYTES


class _Before(_Distribution):
    """What depends on rows only."""

    def move(self) -> None:
        nodes, costly = self._moving()
        taken = [value for value in self._read_inside(costly) if value not in self.arrays]
        if not costly or not self.fits({*taken, *_reduced(nodes)}):
            return
        self.compute(nodes, self.loop.before)
        gone = set(costly)
        self.loop.nodes = [node for node in self.loop.nodes if node not in gone]
        stacks = {stack.row for stack in self.loop.stacks}
        self.loop.results.update({s.stacked: self.arrays[s.row] for s in self.loop.stacks if s.row in self.arrays})
        made = {node.output for node in costly}
        self.loop.stacks = [stack for stack in self.loop.stacks if stack.row not in made]
        inside = {value for node in self.loop.nodes for value in reads(node)}
        inside.update(carry.next for carry in self.loop.carries)
        self.loop.rows += [Row(self.arrays[v], v) for v in taken if v in inside or v not in stacks]
        self.loop.changed = True

    def _moving(self) -> tuple[list[Node], list[Node]]:
        """The nodes to compute for all rows, in order, and those of them that the loop needs no more."""
        movable: dict[Value, Node] = {}
        costly: dict[Value, Node] = {}
        for node in self.loop.nodes:
            varying = [value for value in node.inputs if value not in self.same]
            stacked = [value not in self.same for value in node.inputs]
            known = all(value in self.arrays or value in movable for value in varying)
            if node.regions or not varying or not known or len(node.outputs) != 1 or not can_batch(node, stacked):
                continue
            movable[node.output] = node
            if role_of(node).is_reduction_like or any(value in costly for value in varying):
                costly[node.output] = node
        heavy = [node for node in costly.values() if role_of(node).is_reduction_like]
        wanted = _with_ancestors(heavy, movable)
        nodes = [node for node in self.loop.nodes if node in wanted]
        return nodes, [node for node in nodes if node.output in costly]

    def _read_inside(self, moved: Sequence[Node]) -> list[Value]:
        """What the rest of the loop reads of nodes that have moved."""
        gone = set(moved)
        inside = {value for node in self.loop.nodes if node not in gone for value in reads(node)}
        inside.update(carry.next for carry in self.loop.carries)
        inside.update(stack.row for stack in self.loop.stacks)
        return [node.output for node in moved if node.output in inside]


class _Behind(_Distribution):
    """What only stacks need."""

    def move(self) -> None:
        nodes = self._moving()
        if not nodes:
            return
        made = {node.output for node in nodes}
        results = [stack for stack in self.loop.stacks if stack.row in made]
        kept = {stack.row: stack.stacked for stack in self.loop.stacks if stack.row not in made}
        varying = dict.fromkeys(v for node in nodes for v in node.inputs if v not in self.same and v not in made)
        new = [value for value in varying if value not in self.arrays and value not in kept]
        if not self.fits({*new, *_reduced(nodes)}.difference(stack.row for stack in results)):
            return
        for value in new:
            type_ = TensorType((self.length, *value.type.shape), value.type.dtype)
            kept[value] = Value(self.loop.names.fresh(f"{value.name}_all"), type_)
            self.loop.stacks.append(Stack(value, kept[value]))
        self.arrays = {**kept, **self.arrays}
        self.compute(nodes, self.loop.after)
        for stack in results:
            self.loop.results[stack.stacked] = self.arrays[stack.row]
            self.loop.stacks.remove(stack)
        self.loop.changed = True

    def _moving(self) -> list[Node]:
        """The nodes to compute from stacks, in order: products and the like, what follows them, and views they read."""
        nodes = self.loop.nodes
        producers = {value: node for node in nodes for value in node.outputs}
        needed = _with_ancestors([producers[c.next] for c in self.loop.carries if c.next in producers], producers)
        moving: set[Node] = set()
        stuck: set[Value] = set()
        """What is computed from what cannot move."""
        for node in nodes:
            follows = any(value in producers and producers[value] in moving for value in reads(node))
            heavy = role_of(node).is_reduction_like and node not in needed
            if follows or heavy:
                moving.add(node)
        for node in reversed(nodes):
            if node in moving and (not self._can_move(node) or any(value in stuck for value in node.outputs)):
                moving.remove(node)
                stuck.update(reads(node))
        return [node for node in nodes if node in self._with_views(moving, producers)]

    def _can_move(self, node: Node) -> bool:
        stacked = [value not in self.same for value in node.inputs]
        return not node.regions and len(node.outputs) == 1 and any(stacked) and can_batch(node, stacked)

    def _with_views(self, moving: set[Node], producers: dict[Value, Node]) -> set[Node]:
        """The nodes, and the views that they read of what varies."""
        found, todo = set(moving), list(moving)
        while todo:
            for value in todo.pop().inputs:
                node = producers.get(value)
                if node is not None and node not in found and role_of(node).is_view and self._can_move(node):
                    found.add(node)
                    todo.append(node)
        return found


class _Sums(_Distribution):
    """Parts of the state to which each iteration adds a product or a sum, and which nothing else reads."""

    def move(self) -> None:
        for carry in list(self.loop.carries):
            chain = self._added(carry)
            if chain is None:
                continue
            *views, heavy = chain
            kept = {stack.row: stack.stacked for stack in self.loop.stacks}
            new = [v for v in dict.fromkeys(heavy.inputs) if v not in self.arrays and v not in kept]
            if not self.fits(new):
                continue
            for value in new:
                type_ = TensorType((self.length, *value.type.shape), value.type.dtype)
                kept[value] = Value(self.loop.names.fresh(f"{value.name}_all"), type_)
                self.loop.stacks.append(Stack(value, kept[value]))
            total = self._total(heavy, [self.arrays.get(value) or kept[value] for value in heavy.inputs])
            for view in reversed(views):
                others = map(self.same.outside, view.inputs[1:])
                total = self.loop.after(view.op, total, *others, like=view, **view.attrs)
            self.loop.results[carry.last] = self.loop.after("add", carry.initial, total, like=heavy)
            self.loop.drop_carry(carry)

    def _added(self, carry: Carry) -> list[Node] | None:
        """What moves elements, or adds zero; then the product or the sum of which a part of the state is the sum.

        None for another part.
        """
        producers = {value: node for node in self.loop.nodes for value in node.outputs}
        add, dtype = producers.get(carry.next), carry.given.type.dtype
        if add is None or add.op != "add" or add.inputs.count(carry.given) != 1 or dtype.bits < 32:
            return None
        if self._readers(carry.given) != 1 or self._readers(carry.next) != 1:
            return None
        value = next(value for value in add.inputs if value is not carry.given)
        chain: list[Node] = []
        while (node := producers.get(value)) is not None and self._readers(value) == 1:
            chain.append(node)
            if _adds_up(node):
                return chain if all(v not in self.same for v in node.inputs) else None
            if not is_permuted(node) and not self._adds_nothing(node, producers):
                return None
            value = node.inputs[0]
        return None

    def _adds_nothing(self, node: Node, producers: Mapping[Value, Node]) -> bool:
        """Whether a node adds zero, as what a reduction of nothing began with is added."""
        value = node.inputs[-1]
        while (maker := producers.get(value)) is not None and role_of(maker).is_view:
            value = maker.inputs[0]
        is_zero = maker is not None and role_of(maker) is Role.CONSTANT and not maker.attrs["value"].any()
        return node.op == "add" and is_zero and node.inputs[1] in self.same

    def _readers(self, value: Value) -> int:
        """How often a value is read in the body, and handed on by it."""
        handed = [*(carry.next for carry in self.loop.carries), *(stack.row for stack in self.loop.stacks)]
        return sum(value in tuple(reads(node)) for node in self.loop.nodes) + handed.count(value)

    def _total(self, node: Node, operands: Sequence[Value]) -> Value:
        """The sum of a node's results over all iterations."""
        attrs: dict[str, Any] = dict(node.attrs)
        if node.op == "reduce":
            attrs["dimensions"] = (0, *(axis + 1 for axis in attrs["dimensions"]))
        else:
            for side in ("lhs", "rhs"):
                for kind, front in (("batching", ()), ("contracting", (0,))):
                    key = f"{side}_{kind}_dimensions"
                    attrs[key] = (*front, *(axis + 1 for axis in attrs[key]))
        return self.loop.after(node.op, *operands, like=node, **attrs)


def _adds_up(node: Node) -> bool:
    """Whether a node adds up what it reads."""
    return node.op == "dot_general" or (node.op == "reduce" and node.attrs["combiner"] == "add")


def _reduced(nodes: Sequence[Node]) -> list[Value]:
    """What kernels surely write of the results of nodes that move: what is elementwise may fuse."""
    return [node.output for node in nodes if role_of(node).is_reduction_like]


def _with_ancestors(nodes: Sequence[Node], producers: dict[Value, Node]) -> set[Node]:
    """Nodes, and those that they are computed from."""
    found, todo = set(nodes), list(nodes)
    while todo:
        for value in reads(todo.pop()):
            node = producers.get(value)
            if node is not None and node not in found:
                found.add(node)
                todo.append(node)
    return found
