"""Layer norm and instance norm as oneDNN's kernels take them (FindMklLayerNorm, FindInstanceNorm of remapper.cc).

Layer norm is found as Keras calls it (FusedBatchNormV3 in training mode, times gamma, plus beta) and in two ways of
writing it out; an instance norm only written out. Not modelled: a third way that some versions know.
"""

from __future__ import annotations

from autofuse.ir.dtypes import F32
from autofuse.lazydataclass import dataclass
from autofuse.search.rules.graphqueries import Use
from autofuse.search.rules.grappler.op_graph import Op, OpGraph
from autofuse.search.rules.grappler.remapper_patterns import ADDITIONS, Match, is_same, sides

LAYER_RANKS = (2, 3)
"""Ranks of x at which a norm over the last axis is a layer norm."""
INSTANCE_AXES = {4: ((1, 2), (2, 3)), 5: ((1, 2, 3), (2, 3, 4))}
"""By rank of x, the axes of an instance norm: all spatial ones, channels last or first."""
_INSTANCE_ACTIVATIONS = ("Relu", "LeakyRelu")


@dataclass(frozen=True, slots=True)
class _Norm:
    """A normalisation that is written out."""

    rank: int
    axes: tuple[int, ...]
    gamma: Use
    beta: Use
    parts: tuple[Op, ...]

    @property
    def is_layer_norm(self) -> bool:
        """Whether it is over the last axis of few."""
        return self.rank in LAYER_RANKS and self.axes == (self.rank - 1,)

    @property
    def is_instance_norm(self) -> bool:
        """Whether it is over the spatial axes of images."""
        return self.axes in INSTANCE_AXES.get(self.rank, ())


def layer_norm(graph: OpGraph, op: Op) -> Match | None:
    """A10: a layer norm with gamma and beta."""
    called = _called_norm(graph, op)
    if called is not None:
        return called
    norm = _written_norm(graph, op)
    return Match("_MklLayerNorm", norm.parts) if norm is not None and norm.is_layer_norm else None


def instance_norm(graph: OpGraph, op: Op) -> Match | None:
    """A12: an instance norm."""
    norm = _written_norm(graph, op) if op.dtype == F32 else None
    if norm is None or not norm.is_instance_norm or norm.gamma.source.type.size != norm.beta.source.type.size:
        return None
    return Match("_MklFusedInstanceNorm", norm.parts)


def instance_norm_with_activation(graph: OpGraph, op: Op) -> Match | None:
    """A11: an instance norm, then Relu or LeakyRelu."""
    last = graph.maker(op.inputs[0], *ADDITIONS) if op.kind in _INSTANCE_ACTIVATIONS else None
    norm = None if last is None or not graph.used_once(last) else instance_norm(graph, last)
    return None if last is None or norm is None else Match(norm.kind, (last, *norm.parts), (op.kind,))


def _called_norm(graph: OpGraph, op: Op) -> Match | None:
    """Keras' layer norm: beta + gamma * FusedBatchNormV3(x)."""
    for use, _ in sides(op) if op.kind in ADDITIONS else ():
        scaled = graph.maker(use, "Mul")
        if scaled is None:
            continue
        for factor, _ in sides(scaled):
            norm = graph.maker(factor, "FusedBatchNormTraining")
            if norm is None or not graph.is_closed(op, (scaled, norm)):
                continue
            rank = norm.output.type.rank
            if rank in LAYER_RANKS and norm.axes == (rank - 1,):
                return Match("_MklLayerNorm", (scaled, norm))
    return None


def _written_norm(graph: OpGraph, op: Op) -> _Norm | None:
    """A norm that ends in an addition, in either of the two ways, if nothing else reads what lies inside."""
    for use, other in sides(op) if op.kind in ADDITIONS else ():
        norm = _by_difference(graph, use, other) or _by_scale(graph, use, other)
        if norm is not None and graph.is_closed(op, norm.parts):
            return norm
    return None


def _by_difference(graph: OpGraph, use: Use, beta: Use) -> _Norm | None:
    """(x - m) * rsqrt(v + epsilon) * gamma + beta."""
    scaled = graph.maker(use, "Mul")
    for inner, gamma in sides(scaled) if scaled is not None else ():
        product = graph.maker(inner, "Mul")
        for left, right in sides(product) if product is not None else ():
            centred, root = graph.maker(left, "Sub"), _root(graph, right)
            if scaled is None or product is None or centred is None or root is None:
                continue
            if is_same(centred.inputs[0], root.x) and _is_mean(graph, centred.inputs[1], root.mean):
                parts = (scaled, product, centred, *root.parts)
                return _Norm(centred.output.type.rank, root.mean.axes, gamma, beta, parts)
    return None


def _by_scale(graph: OpGraph, use: Use, other: Use) -> _Norm | None:
    """A sum x * d + (beta - d * m) with d = rsqrt(v + epsilon) * gamma; gamma and beta are constants."""
    product, shift = graph.maker(use, "Mul"), graph.maker(other, "Sub")
    moved = None if shift is None else graph.maker(shift.inputs[1], "Mul")
    if product is None or shift is None or moved is None or not graph.is_constant(shift.inputs[0]):
        return None
    for x, scale in sides(product):
        scaled = graph.maker(scale, "Mul")
        for factor, gamma in sides(scaled) if scaled is not None else ():
            root = _root(graph, factor)
            if scaled is None or root is None or not is_same(x, root.x) or not graph.is_constant(gamma):
                continue
            if any(is_same(d, scale) and _is_mean(graph, m, root.mean) for d, m in sides(moved)):
                parts = (product, shift, moved, scaled, *root.parts)
                return _Norm(product.output.type.rank, root.mean.axes, gamma, shift.inputs[0], parts)
    return None


@dataclass(frozen=True, slots=True)
class _Root:
    """rsqrt(mean((x - m)**2) + epsilon) with m the mean of x."""

    x: Use
    mean: Op
    parts: tuple[Op, ...]


def _root(graph: OpGraph, use: Use) -> _Root | None:
    rsqrt = graph.behind(use, "Rsqrt")
    total = None if rsqrt is None else graph.maker(rsqrt.inputs[0], *ADDITIONS)
    if rsqrt is None or total is None:
        return None
    for value, epsilon in sides(total):
        second = graph.maker(value, "Mean")
        square = None if second is None else graph.maker(second.inputs[0], "SquaredDifference")
        if second is None or square is None or graph.number(epsilon) is None:
            continue
        first = graph.behind(square.inputs[1], "Mean")
        if first is None or first.axes != second.axes or not is_same(first.inputs[0], square.inputs[0]):
            return None
        if _is_kept(use, first) and _is_kept(square.inputs[1], first):
            return _Root(square.inputs[0], first, (rsqrt, total, second, square, first))
    return None


def _is_mean(graph: OpGraph, use: Use, mean: Op) -> bool:
    """Whether an operand is a mean, repeated in place."""
    return graph.behind(use) is mean and _is_kept(use, mean)


def _is_kept(use: Use, mean: Op) -> bool:
    """Whether an operand repeats what a mean makes in the place of the axes it reduced, as if these had been kept."""
    if len(use.views) != 1:
        return False
    (view,) = use.views
    return view.attrs["broadcast_dimensions"] == tuple(
        axis for axis in range(view.output.type.rank) if axis not in mean.axes
    )
