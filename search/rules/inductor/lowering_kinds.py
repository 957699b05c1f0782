"""What Inductor makes of each operation: a pointwise loop, a reduction, a call of a library, or no kernel at all.

Rewrites of the graph that come before are counted in. Products are decomposed, `x @ w + bias` is one library call, and
some results are only reshaped. What PyTorch has one op for and this IR several (a variance, a softmax) is taken as it
stands, op by op.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from functools import cached_property
from typing import Literal

from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.candidate import is_inlined, is_view
from autofuse.fusion.nodeaxes import dot_axes
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass, field
from autofuse.search.rules.graphqueries import stands_alone
from autofuse.search.rules.inductor.iteration_ranges import is_repeated, reduced_extents
from autofuse.search.rules.inductor.lowering_order import by_locality

Backend = Literal["cpp", "triton"]

UNROLLED_BELOW = 8
"""Reductions of fewer elements become arithmetic (torch/_inductor/config.py, unroll_reductions_threshold)."""
WINDOWS_UNROLLED_BELOW = 25
"""The same for windows (lowering.py, the pooling functions patch the threshold)."""
LARGEST_WINDOW = 25
"""Windows of more elements are library calls (lowering.py, should_fallback_max_pool_with_indices, avg_pool2d)."""
SMALL_OUTER_PRODUCT = 32
"""On CPU an outer product of operands with no more elements is a multiplication (decomposition.py, mm)."""


class Kind(Enum):
    """What the scheduler gets of an operation."""

    POINTWISE = "pointwise"
    """A function of the index that readers may compute themselves."""
    REDUCTION = "reduction"
    """A loop nest with reduced loops; always a buffer."""
    EXTERN = "extern"
    """A call: all its operands are buffers, and nothing fuses with it."""
    NO_KERNEL = "no kernel"
    """A concatenation, whose operands are written where it wants them."""


@dataclass(frozen=True, eq=False)
class Program:
    """The graph as Inductor's lowering walks it."""

    atoms: AtomGraph
    backend: Backend
    aliases: frozenset[Node] = frozenset()
    """Views that the program returns: the same memory as what they show."""
    additions: Mapping[Node, Node] = field(default_factory=dict[Node, Node])
    """Products to the addition that is part of their call."""

    @property
    def graph(self) -> Graph:
        return self.atoms.graph

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """What the outputs need, in the order of lowering; constants that every reader repeats not included."""
        live: set[Node] = set()
        todo: list[Value] = list(self.graph.outputs)
        while todo:
            node = self.graph.producers.get(todo.pop())
            if node is not None and node not in live:
                live.add(node)
                todo += self.graph.reads(node)
        nodes = [n for n in self.graph.nodes if n in live and (n in self.atoms.atom_of or self.passes(n))]
        return by_locality(self.graph, nodes)

    @cached_property
    def outputs(self) -> frozenset[Value]:
        return frozenset(self.graph.outputs)

    def passes(self, node: Node) -> bool:
        """Whether a node is a view of a value that somebody else stores or computes."""
        return is_view(node) and (node not in self.atoms.atom_of or node in self.aliases)

    def source(self, value: Value) -> Value:
        """What lies behind the views of a value."""
        while (node := self.graph.producers.get(value)) is not None and self.passes(node):
            value = node.inputs[0]
        return value

    def maker(self, value: Value) -> Node | None:
        """The operation that makes a value, through views; None for inputs and stored constants."""
        node = self.graph.producers.get(self.source(value))
        return node if node in self.atoms.atom_of else None

    def sources(self, node: Node) -> tuple[Value, ...]:
        """What a node reads, looked at through views; constants that it repeats itself not included."""
        found = dict.fromkeys(self.source(value) for value in self.graph.reads(node))
        return tuple(value for value in found if not self.is_leaf(value))

    def is_leaf(self, value: Value) -> bool:
        """Whether every reader makes a value's elements from nothing."""
        node = self.graph.producers.get(value)
        return node is not None and is_inlined(node) and node not in self.atoms.atom_of

    def users(self, value: Value) -> tuple[Node, ...]:
        """The live nodes that read a value directly, views among them."""
        return tuple(node for node in self.graph.users[value] if node in self._live)

    def fan_out(self, value: Value) -> int:
        """The readers of a value; that it is returned counts as one."""
        return len(self.users(value)) + (value in self.outputs)

    def uses(self, value: Value) -> tuple[Node | None, ...]:
        """The readers of a value; None stands for the caller."""
        return (*self.users(value), *((None,) if value in self.outputs else ()))

    def is_pointwise_use(self, user: Node | None, others: tuple[str, ...] = ()) -> bool:
        """Whether a reader is elementwise or one of `others`; views are looked through (utils.py, is_pointwise_use)."""
        if user is None:
            return False
        if self.passes(user):
            return all(self.is_pointwise_use(reader, others) for reader in self.uses(user.output))
        return role_of(user) is Role.ELEMENTWISE or user.op in others

    @cached_property
    def _live(self) -> frozenset[Node]:
        return frozenset(self.nodes)

    # ---- kinds ---------------------------------------------------------------------------------------------------

    def is_handed_on(self, node: Node) -> bool:
        """Whether a result of the program is a mere view, as far as strides can describe it."""
        if not is_view(node) or node not in self.atoms.atom_of or self.is_forced(node):
            return False
        views: list[str] = []
        view: Node | None = node
        while view is not None and is_view(view):
            if view.op != "reshape" or _long(view.output) != _long(view.inputs[0]):
                views.insert(0, view.op)
            view = self.graph.producers.get(view.inputs[0])
        moved = next((number for number, op in enumerate(views) if op != "reshape"), len(views))
        return all(op in ("transpose", "slice", "broadcast_in_dim") for op in views[moved:])

    def is_forced(self, node: Node) -> bool:
        """Whether a rule of the user gives a node company: such a kernel is left as it is."""
        return len(self.atoms.atom_of[node].nodes) > 1

    def is_plain_call(self, node: Node) -> bool:
        """Whether a node is a call by itself, not because of a rule of the user."""
        return not self.is_forced(node) and self.kind(node) is Kind.EXTERN

    def kind(self, node: Node) -> Kind:
        """What is made of a node, views and concatenations of a GPU (see `realise`) not considered."""
        if self.is_forced(node) or stands_alone(node) or node in self.additions.values():
            return Kind.EXTERN
        match role_of(node):
            case Role.CONVOLUTION:
                return Kind.EXTERN
            case Role.DOT:
                return _of_product(node, self.backend)
            case Role.REDUCE | Role.ARG_REDUCE:
                return self._of_reduction(node, reduced_extents(node), UNROLLED_BELOW)
            case Role.SCAN | Role.WINDOW:
                return self._of_window(node)
            case Role.JOIN:
                return self._of_concatenation(node)
            case _:
                return Kind.POINTWISE

    def _of_reduction(self, node: Node, extents: tuple[int, ...], unrolled_below: int) -> Kind:
        """ir.Reduction.create: small reductions are unrolled; on CPU not if the result is one element."""
        count = math.prod(extents)
        many = node.output.type.size != 1 or self.backend == "triton"
        return Kind.POINTWISE if count <= 1 or (count < unrolled_below and many) else Kind.REDUCTION

    def _of_window(self, node: Node) -> Kind:
        """Running reductions are calls on CPU, as are large windows everywhere."""
        if node.op == "cumulative":
            return Kind.REDUCTION if self.backend == "triton" else Kind.EXTERN
        extents = tuple(node.attrs["window_dimensions"])
        if math.prod(extents) > LARGEST_WINDOW:
            return Kind.EXTERN
        return self._of_reduction(node, extents, WINDOWS_UNROLLED_BELOW)

    def _of_concatenation(self, node: Node) -> Kind:
        """Of one operand, once or repeated, a copy (decomposition.py, cat); bytes are left to the library on CPU."""
        if is_repeated(node):
            return Kind.POINTWISE
        if self.backend == "cpp" and node.output.type.dtype.bits == 8 and node.output.type.dtype.is_integer:
            return Kind.EXTERN
        return Kind.NO_KERNEL


def _long(value: Value) -> list[int]:
    """The extents of the axes that have more than one element."""
    return [extent for extent in value.type.shape if extent != 1]


def is_matrix_product(node: Node) -> bool:
    """Whether a node is a product of two matrices: `aten.mm`."""
    if node.op != "dot_general":
        return False
    axes = dot_axes(node)
    return not axes.lhs_batch and node.inputs[0].type.rank == node.inputs[1].type.rank == 2


def _of_product(node: Node, backend: Backend) -> Kind:
    """Products that decompositions turn into multiplications or sums of them (decomposition.py; `mv` and `dot`)."""
    axes = dot_axes(node)
    lhs, rhs = node.inputs[0].type, node.inputs[1].type
    rows, columns = (math.prod(t.shape[a] for a in free) for t, free in ((lhs, axes.lhs_free), (rhs, axes.rhs_free)))
    depth = math.prod(lhs.shape[axis] for axis in axes.lhs_contracting)
    if axes.lhs_batch:
        outer, inner = depth == 1, rows == columns == 1
    elif rhs.rank == 1:
        outer, inner = not axes.lhs_contracting, True
    else:
        small = backend == "triton" or lhs.size + rhs.size <= SMALL_OUTER_PRODUCT
        outer, inner = depth == 1 and rows != 1 and columns != 1 and small, rows == columns == 1
    if outer:
        return Kind.POINTWISE
    always = rhs.rank == 1 and not axes.lhs_batch
    return Kind.REDUCTION if inner and (always or backend == "cpp") else Kind.EXTERN
