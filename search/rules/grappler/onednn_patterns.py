"""The patterns of Grappler's remapper that only oneDNN's kernels have: block A of `Remapper::Optimize`.

They come before those of `remapper_patterns.py` at each operation. Norms and gelu have modules of their own. Of other
versions, and not modelled: GRU cells, hard swish, comparisons with a cast, and dilated convolutions written as
SpaceToBatch and BatchToSpace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofuse.ir.dtypes import BF16, F32
from autofuse.search.rules.graphqueries import Use
from autofuse.search.rules.grappler.gelu_pattern import gelu
from autofuse.search.rules.grappler.norm_patterns import instance_norm, instance_norm_with_activation, layer_norm
from autofuse.search.rules.grappler.op_graph import Op, OpGraph
from autofuse.search.rules.grappler.remapper_patterns import (
    ADDITIONS,
    CONV2D,
    CONV3D,
    DEPTHWISE,
    RECTIFIERS,
    Match,
    biased,
    fused_match,
    is_same,
    normalised,
    sides,
)

_CONVOLUTIONS = (CONV2D, CONV3D)
_FLOATS = (F32, BF16)
_NO_ACTIVATIONS = {"BiasAdd", "FusedBatchNorm", "Add"}


def contraction_with_bias_and_sum(graph: OpGraph, op: Op) -> Match | None:
    """A3: contraction, bias, and an addition of equal shapes; or an AddN of two."""
    if op.kind not in (*ADDITIONS, "AddN") or len(op.inputs) != 2:
        return None
    if op.kind != "AddN" and graph.shape(op.inputs[0]) != graph.shape(op.inputs[1]):
        return None
    for use in op.inputs:
        bias = graph.maker(use)
        contraction = None if bias is None or not graph.used_once(bias) else biased(graph, bias, "onednn")
        if bias is not None and contraction is not None and contraction.kind != DEPTHWISE:
            return fused_match(contraction, (bias, contraction), "BiasAdd", "Add")
    return None


def contraction_with_bias_sum_and_activation(graph: OpGraph, op: Op) -> Match | None:
    """A1: convolution, bias, addition, activation. Who else reads the sum is not asked."""
    if op.kind not in (*RECTIFIERS, "LeakyRelu"):
        return None
    total = graph.maker(op.inputs[0])
    found = None if total is None else contraction_with_bias_and_sum(graph, total)
    if total is None or found is None or found.parts[-1].kind not in _CONVOLUTIONS:
        return None
    return Match(found.kind, (total, *found.parts), (*found.fused, op.kind))


def convolution_with_late_activation(graph: OpGraph, op: Op) -> Match | None:
    """A2: a fused convolution without an activation, then LeakyRelu or Mish."""
    if op.kind not in ("LeakyRelu", "_MklFusedMish"):
        return None
    fused = graph.maker(op.inputs[0], *(f"_Fused{kind}" for kind in _CONVOLUTIONS))
    if fused is None or not graph.used_once(fused) or not set(fused.fused[-1:]) & _NO_ACTIVATIONS:
        return None
    return Match(fused.kind, (fused,), (*fused.fused, op.kind))


def padded_convolution(graph: OpGraph, op: Op) -> Match | None:
    """A4: Pad, Conv3D, fused or not."""
    pad = graph.maker(op.inputs[0], "Pad") if op.kind in (CONV3D, f"_Fused{CONV3D}") else None
    if pad is None or op.dtype not in _FLOATS or not graph.used_once(pad):
        return None
    return Match(f"_Fused{CONV3D}", (pad,), op.fused)


def mish(graph: OpGraph, op: Op) -> Match | None:
    """A5: tanh(softplus(x)) * x."""
    for use, x in sides(op) if op.kind == "Mul" and op.dtype in _FLOATS else ():
        tanh = graph.maker(use, "Tanh")
        softplus = None if tanh is None else graph.maker(tanh.inputs[0], "Softplus")
        if tanh is None or softplus is None or not is_same(softplus.inputs[0], x):
            continue
        if graph.is_closed(op, (tanh, softplus)):
            return Match("_MklFusedMish", (tanh, softplus), inputs=(x,))
    return None


def batch_product_with_scale_and_sum(graph: OpGraph, op: Op) -> Match | None:
    """A6: a batch of products, scaled by a number, plus a mask: (x @ y) * s + t, or x @ (y * s) + t."""
    for use, mask in sides(op) if op.kind in ADDITIONS and op.dtype in _FLOATS else ():
        parts = _scaled_product(graph, use)
        if parts and _is_mask(mask) and op.output.type.rank == 4 and graph.is_closed(op, parts):
            return Match("_FusedBatchMatMulV2", parts, ("Mul", "Add"))
    return None


def _scaled_product(graph: OpGraph, use: Use) -> tuple[Op, ...]:
    """The operations of a batch of products with a scale, the last one first; () if it is no such thing."""
    scale = graph.maker(use, "Mul")
    if scale is not None:
        product = next((graph.maker(y, "BatchMatMulV2") for y, s in sides(scale) if s.source.type.size == 1), None)
        return () if product is None else (scale, product)
    product = graph.maker(use, "BatchMatMulV2")
    scale = None if product is None else graph.maker(product.inputs[1], "Mul")
    if product is None or scale is None or not any(graph.number(factor) is not None for factor in scale.inputs):
        return ()
    return (product, scale)


def _is_mask(use: Use) -> bool:
    """Whether an operand has the same elements for all heads, its second axis of four."""
    return use.source.type.rank == 4 and use.source.type.shape[1] == 1


def convolution_with_swish(graph: OpGraph, op: Op) -> Match | None:
    """A7: Conv2D, bias or batch norm, times its own sigmoid."""
    for use, y in sides(op) if op.kind == "Mul" else ():
        sigmoid, bias = graph.maker(use, "Sigmoid"), graph.maker(y)
        if sigmoid is None or bias is None or not is_same(sigmoid.inputs[0], y):
            continue
        contraction = biased(graph, bias, "onednn") if bias.kind == "BiasAdd" else normalised(graph, bias, "onednn")
        if contraction is None or contraction.kind != CONV2D or not graph.is_closed(op, (sigmoid, bias)):
            continue
        first = "BiasAdd" if bias.kind == "BiasAdd" else "FusedBatchNorm"
        return fused_match(contraction, (sigmoid, bias, contraction), first, "_MklSwish")
    return None


def leaky_maximum(graph: OpGraph, op: Op) -> Match | None:
    """A8: maximum(a * x, x) with a >= 0."""
    for use, x in sides(op) if op.kind == "Maximum" else ():
        scaled = graph.maker(use, "Mul")
        if scaled is None or not graph.is_closed(op, (scaled,)):
            continue
        slopes = [graph.number(slope) for y, slope in sides(scaled) if is_same(y, x)]
        if any(slope is not None and slope >= 0 for slope in slopes):
            return Match("LeakyRelu", (scaled,), inputs=(x,))
    return None


def swish(graph: OpGraph, op: Op) -> Match | None:
    """A9: sigmoid(x) * x."""
    for use, x in sides(op) if op.kind == "Mul" and op.dtype in _FLOATS else ():
        sigmoid = graph.maker(use, "Sigmoid")
        if sigmoid is not None and is_same(sigmoid.inputs[0], x) and graph.is_closed(op, (sigmoid,)):
            return Match("_MklSwish", (sigmoid,), inputs=(x,))
    return None


BLOCK_A: Sequence[Callable[[OpGraph, Op], Match | None]] = (
    contraction_with_bias_sum_and_activation,
    convolution_with_late_activation,
    contraction_with_bias_and_sum,
    padded_convolution,
    mish,
    batch_product_with_scale_and_sum,
    convolution_with_swish,
    leaky_maximum,
    swish,
    layer_norm,
    instance_norm_with_activation,
    instance_norm,
    gelu,
)
"""A1 to A12, and B1, which other CPU builds do not have."""
