"""The API reading of normalisations: Keras' batch norm at inference and its layer norm.

Keras computes a layer norm by FusedBatchNormV3 in training mode, with the rows as channels, and multiplies by gamma and
adds beta itself; the operation read here ends before those. It does so only for single precision and for epsilons that
FusedBatchNormV3 takes as they are (`LayerNormalization._fused_can_be_used`).
"""

from __future__ import annotations

from autofuse.ir.dtypes import BF16, F16, F32
from autofuse.ir.graph import Node, Value
from autofuse.lazydataclass import dataclass, field
from autofuse.search.rules.grappler.node_matcher import MOST_FACTORS, Composite, NodeMatcher

LEAST_EPSILON = 1.001e-5
"""FusedBatchNormV3 raises smaller ones to this: below it Keras (2.x, LayerNormalization) writes a layer norm out."""
BATCH_NORM_DTYPES = (BF16, F16, F32)
"""Those of FusedBatchNormV3."""
_HELD = 1 - 1e-6
"""What is left of a number that single precision holds."""
BATCH_NORM_RANK = 4
"""Rank of the images that Keras' BatchNormalization passes to FusedBatchNormV3."""


@dataclass(frozen=True, slots=True)
class _Root:
    """rsqrt(variance + epsilon), or sqrt of it below a fraction."""

    variance: Value
    epsilon: float
    nodes: tuple[Node, ...]


def _inverse_root(matcher: NodeMatcher, value: Value, *, divides: bool) -> _Root | None:
    """How a factor (or, if it `divides`, a divisor) is made from a variance."""
    nodes: list[Node] = []
    if not divides:
        inverse = matcher.behind(value, "rsqrt", "divide")
        if inverse is None:
            return None
        nodes.append(inverse)
        if inverse.op == "divide" and matcher.number(inverse.inputs[0]) != 1:
            return None
        value = inverse.inputs[-1]
    if not nodes or nodes[0].op == "divide":
        root = matcher.behind(value, "sqrt")
        if root is None:
            return None
        nodes.append(root)
        (value,) = root.inputs
    total = matcher.behind(value, "add")
    if total is None:
        return None
    return next((_Root(x, epsilon, (*nodes, total)) for x, epsilon in matcher.sides(total)), None)


@dataclass(slots=True)
class _Factors:
    """The factors of a product, with the products and quotients that make it."""

    matcher: NodeMatcher
    nodes: list[Node] = field(default_factory=list[Node])
    found: list[tuple[Value, bool]] = field(default_factory=list[tuple[Value, bool]])
    """Each factor, and whether it divides."""

    def take_apart(self, product: Value) -> bool:
        """Find the factors, also of vectors that are repeated along all axes but the last; whether they are few."""
        todo = [product]
        while todo:
            if len(self.found) + len(todo) > MOST_FACTORS:
                return False
            value = todo.pop()
            node = self.matcher.node(value, "multiply", "divide")
            if node is None and self.matcher.is_vector(value, value.type.rank - 1):
                node = self.matcher.behind(value, "multiply")
            if node is None or self.matcher.number(node.inputs[0]) is not None:
                self.found.append((value, False))
                continue
            self.nodes.append(node)
            todo.append(node.inputs[0])
            if node.op == "divide":
                self.found.append((node.inputs[1], True))
            else:
                todo.append(node.inputs[1])
        return True


def batch_norm(matcher: NodeMatcher, node: Node) -> Composite | None:
    """(x - mean) * rsqrt(variance + epsilon) * scale + offset, in any order: vectors over the last axis of images."""
    if node.output.type.rank != BATCH_NORM_RANK or node.output.type.dtype not in BATCH_NORM_DTYPES:
        return None
    for product, offset in (node.inputs, node.inputs[::-1]):
        found = _normalised(matcher, product) if matcher.is_vector(offset, BATCH_NORM_RANK - 1) else None
        if found is not None:
            return Composite(found.kind, (node, *found.nodes), (*found.inputs, offset))
    return None


def _normalised(matcher: NodeMatcher, product: Value) -> Composite | None:
    """A batch norm before its offset; a scale of one may be left out."""
    factors = _Factors(matcher)
    if not factors.take_apart(product):
        return None
    centres: list[Node] = []
    roots: list[_Root] = []
    scales: list[Value] = []
    for value, divides in factors.found:
        root, centre = _inverse_root(matcher, value, divides=divides), matcher.node(value, "subtract")
        if root is not None and matcher.is_vector(value, value.type.rank - 1):
            roots.append(root)
        elif centre is not None and not divides and _is_centred(matcher, centre):
            centres.append(centre)
        elif divides or not matcher.is_vector(value, value.type.rank - 1):
            return None
        else:
            scales.append(value)
    if (len(centres), len(roots)) != (1, 1) or len(scales) > 1:
        return None
    (centre,), (root,) = centres, roots
    nodes = (*factors.nodes, centre, *root.nodes)
    return Composite("FusedBatchNormV3", nodes, (*centre.inputs, root.variance, *scales))


def _is_centred(matcher: NodeMatcher, node: Node) -> bool:
    """Whether a vector over the last axis that is not the mean of x itself is subtracted from images x."""
    x, mean = node.inputs
    if x.type.rank != BATCH_NORM_RANK or not matcher.is_vector(mean, BATCH_NORM_RANK - 1):
        return False
    own = matcher.mean(mean)
    return own is None or own.x is not x


def layer_norm(matcher: NodeMatcher, node: Node) -> Composite | None:
    """(x - mean) * rsqrt(variance + epsilon) over the last axes, of both its own."""
    left, right = node.inputs
    divides = node.op == "divide"
    for centred, scale in ((left, right),) if divides else ((left, right), (right, left)):
        root = _inverse_root(matcher, scale, divides=divides)
        moments = None if root is None else _moments(matcher, centred, scale, root.variance)
        if root is None or moments is None or root.epsilon < LEAST_EPSILON * _HELD or node.output.type.dtype != F32:
            continue
        return Composite(moments.kind, (node, *root.nodes, *moments.nodes), moments.inputs, moments.axes)
    return None


def _moments(matcher: NodeMatcher, centred: Value, scale: Value, variance: Value) -> Composite | None:
    """The difference x - mean and the mean of its square, over the same last axes, repeated in place in the scale."""
    difference, second = matcher.node(centred, "subtract"), matcher.mean(variance)
    first = None if difference is None else matcher.mean(difference.inputs[1])
    square = None if second is None else matcher.node(second.x, "multiply")
    if difference is None or first is None or second is None or square is None:
        return None
    again = matcher.node(square.inputs[0], "subtract")
    if square.inputs[0] is not square.inputs[1] or again is None or again.inputs != difference.inputs:
        return None
    rank = difference.output.type.rank
    is_last = first.axes == tuple(range(rank - len(first.axes), rank))
    if first.x is not difference.inputs[0] or first.axes != second.axes or not is_last:
        return None
    if not matcher.is_in_place(difference.inputs[1], first.reduction) or not matcher.is_in_place(
        scale, second.reduction
    ):
        return None
    nodes = dict.fromkeys((difference, again, square, *first.nodes, *second.nodes))
    return Composite("FusedBatchNormTraining", tuple(nodes), (first.x,), first.axes)
