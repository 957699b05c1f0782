"""What runs before the remapper and decides which kernels it finds: constant folding and the arithmetic optimizer.

Modelled: ConstantPushDown, AddOpsRewrite, SqrtDivToRsqrtMul, ConvertLog1p, ConvertLogSoftmax, ConvertExpm1,
UnaryOpsComposition and FuseSquaredDiff; `op_names.py` has the renamings. Operations are visited from the last one to
the first, and at each the first stage that applies is taken. Not modelled, since the number of kernels stays the same
and our operations stay as they are: MinimizeBroadcasts and other changes of order (of products, of a maximum and a
monotonic function, of unary operations and a concatenation). Not modelled either, although it saves a kernel: a product
with a constant behind a convolution with a constant filter becomes part of that filter (MulConvPushDown).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autofuse.ir.dtypes import F16, F32, F64, DType
from autofuse.search.rules.grappler.op_graph import Op, OpGraph
from autofuse.search.rules.grappler.sum_trees import rewrite_sum

FAMILIES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("Mul", "RealDiv"), ("Mul", "RealDiv")),
    **dict.fromkeys(("AddV2", "Sub"), ("AddV2", "Sub")),
}
"""Operations whose constants meet (constant_folding.cc, PrepareConstantPushDown)."""
NARROW = (F16, F32, F64)
WIDE = (F32, F64)
COMPOSABLE: Mapping[str, tuple[DType, ...]] = {
    **dict.fromkeys(("Abs", "Ceil", "Cos", "Expm1", "Exp", "Floor", "Log", "Log1p", "Neg", "Reciprocal"), NARROW),
    **dict.fromkeys(("Round", "Rsqrt", "Sigmoid", "Sin", "Sqrt", "Square", "Tanh", "Elu", "Relu", "Relu6"), NARROW),
    "Tan": WIDE,
}
"""Unary operations that one kernel computes in a row (arithmetic_optimizer.cc, UnaryOpsComposition)."""


def simplify(graph: OpGraph) -> None:
    """Constant folding, then the arithmetic optimizer, once over the program."""
    for op in graph.backwards():
        push_constants_down(graph, op)
    for op in graph.backwards():
        for stage in STAGES:
            if stage(graph, op):
                break


def push_constants_down(graph: OpGraph, op: Op | None) -> None:
    """c1 * (c2 * x) is one product; so are quotients, and sums and differences (ConstantPushDown)."""
    while op is not None and (child := _constant_child(graph, op)) is not None:
        kind = FAMILIES[op.kind][0] if op.kind == child.kind == FAMILIES[op.kind][0] else FAMILIES[op.kind][1]
        op = graph.merge(op, (child,), kind)


def _constant_child(graph: OpGraph, op: Op) -> Op | None:
    """An operation of the same family that also has constants only on all sides but one, and no other reader."""
    x = _varying(graph, op)
    if op.kind not in FAMILIES or op.dtype not in WIDE or x is None:
        return None
    child = graph.behind(op.inputs[x], *FAMILIES[op.kind])
    if child is None or child.dtype != op.dtype or not graph.used_once(child):
        return None
    return None if _varying(graph, child) is None else child


def _varying(graph: OpGraph, op: Op) -> int | None:
    """The number of the only input that is not constant."""
    varying = [place for place, use in enumerate(op.inputs) if not graph.is_constant(use)]
    return varying[0] if len(varying) == 1 and len(op.inputs) > 1 else None


def square_root_below(graph: OpGraph, op: Op) -> bool:
    """A quotient x / sqrt(y) is x * rsqrt(y) (SqrtDivToRsqrtMul)."""
    root = graph.behind(op.inputs[1], "Sqrt") if op.kind == "RealDiv" and len(op.inputs) == 2 else None
    if root is None or not graph.used_once(root):
        return False
    graph.rename(root, "Rsqrt")
    graph.rename(op, "Mul")
    return True


def log1p(graph: OpGraph, op: Op) -> bool:
    """log(x + 1) is one operation (ConvertLog1p)."""
    total = graph.maker(op.inputs[0], "AddV2") if op.kind == "Log" else None
    if total is None or all(graph.number(use) != 1 for use in total.inputs):
        return False
    return graph.absorb(op, total, "Log1p") is not None


def log_softmax(graph: OpGraph, op: Op) -> bool:
    """log(softmax(x)) is one operation (ConvertLogSoftmax)."""
    softmax = graph.maker(op.inputs[0], "Softmax") if op.kind == "Log" else None
    return softmax is not None and graph.absorb(op, softmax, "LogSoftmax") is not None


def expm1(graph: OpGraph, op: Op) -> bool:
    """exp(x) - 1 is one operation (ConvertExpm1)."""
    if op.kind != "Sub" or len(op.inputs) != 2 or graph.number(op.inputs[1]) != 1:
        return False
    power = graph.maker(op.inputs[0], "Exp")
    return power is not None and graph.absorb(op, power, "Expm1") is not None


def compose_unary(graph: OpGraph, op: Op) -> bool:
    """A chain of unary operations is one kernel; all but the last have one reader (UnaryOpsComposition)."""
    if not _is_composable(op):
        return False
    chain = [op]
    while (inner := graph.maker(chain[-1].inputs[0])) is not None:
        if not _is_composable(inner) or inner.dtype != op.dtype or not graph.used_once(inner):
            break
        chain.append(inner)
    return len(chain) > 1 and graph.merge(op, chain[1:], "_UnaryOpsComposition") is not None


def _is_composable(op: Op) -> bool:
    return op.dtype in COMPOSABLE.get(op.kind, ())


def squared_difference(graph: OpGraph, op: Op) -> bool:
    """The square of a difference that nobody else reads is one operation (FuseSquaredDiff)."""
    difference = graph.maker(op.inputs[0], "Sub") if op.kind == "Square" else None
    if difference is None or not graph.used_once(difference):
        return False
    return graph.merge(op, (difference,), "SquaredDifference") is not None


Stage = Callable[[OpGraph, Op], bool]
"""Rewrites the program at an operation, or tells that it does not apply."""

STAGES: tuple[Stage, ...] = (
    *(rewrite_sum, square_root_below, log1p, log_softmax, expm1),
    *(compose_unary, squared_difference),
)
"""In the order in which they are tried at an operation."""
