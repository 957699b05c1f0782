"""The patterns of Grappler's remapper (tensorflow/core/grappler/optimizers/remapper.cc), in its order.

A pattern is a function of an operation, its root, which is its last. It finds the operations that go into one kernel
with the root, or none. The order of trial at one root is that of `Remapper::Optimize`; the first that is found is
taken. Letters and numbers in the docstrings give the place in that order. Block A is in `onednn_patterns.py`.

Operands of commutative operations are tried in both orders. Not modelled are patterns for operations that are no float
work or no inference (hashes, gradients), side inputs, and devices of GPUs. Nor is FindFusedBatchNorm, which splits a
batch norm with known statistics: that reaches us folded, as products and sums with constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from autofuse.ir.dtypes import BF16, F32, F64, DType
from autofuse.ir.graph import Node
from autofuse.lazydataclass import dataclass
from autofuse.search.rules.graphqueries import Use
from autofuse.search.rules.grappler.op_graph import Op, OpGraph

Build = Literal["onednn", "eigen"]
"""Whose CPU kernels run: oneDNN's (`IsMKLEnabled()`, the default of recent servers), or Eigen's."""


@dataclass(frozen=True, slots=True)
class Match:
    """What one kernel computes together with a pattern's root."""

    kind: str
    parts: tuple[Op, ...]
    fused: tuple[str, ...] = ()
    inputs: tuple[Use, ...] | None = None
    """The data inputs of what is made; by default all that its parts read from outside."""


Finder = Callable[[OpGraph, Op, Build], Match | None]
"""Finds a pattern by its root."""

MATMUL, CONV2D, CONV3D, DEPTHWISE = CONTRACTIONS = ("MatMul", "Conv2D", "Conv3D", "DepthwiseConv2dNative")
CONV1D = "Conv1D"
"""A Conv2D whose result is squeezed."""
DTYPES: Mapping[tuple[Build, str], tuple[DType, ...]] = {
    ("eigen", MATMUL): (F32,),
    ("eigen", CONV2D): (F32, F64),
    ("eigen", CONV1D): (F32, F64),
    **{("onednn", kind): (F32, BF16) for kind in (*CONTRACTIONS, CONV1D)},
}
"""What contractions fuse in (IsCpuCompatibleDataType); others never."""
RECTIFIERS = ("Relu", "Relu6", "Elu")
ACTIVATIONS: Mapping[tuple[Build, str], tuple[str, ...]] = {
    ("eigen", MATMUL): (*RECTIFIERS, "LeakyRelu"),
    ("eigen", CONV2D): (*RECTIFIERS, "LeakyRelu"),
    ("onednn", MATMUL): (*RECTIFIERS, "LeakyRelu", "Tanh", "Sigmoid"),
    ("onednn", CONV2D): (*RECTIFIERS, "LeakyRelu"),
    ("onednn", CONV3D): (*RECTIFIERS, "LeakyRelu"),
    ("onednn", DEPTHWISE): RECTIFIERS,
}
"""What may follow a contraction and its bias (FindContractionWithBiasAndActivation)."""
BATCH_NORM_ACTIVATIONS: Mapping[Build, tuple[str, ...]] = {
    "eigen": (*RECTIFIERS, "LeakyRelu"),
    "onednn": (*RECTIFIERS, "LeakyRelu", "Tanh"),
}
"""What may follow a Conv2D and its batch norm (FindConv2DWithBatchNormAndActivation)."""
ADDITIONS = ("AddV2", "Add")


# ---- contractions ------------------------------------------------------------------------------------------------


def is_eligible(op: Op, build: Build) -> bool:
    """Whether a contraction's dtype and format are those of a fused kernel (IsCpuCompatible...)."""
    if op.dtype not in DTYPES.get((build, op.kind), ()):
        return False
    if op.kind == MATMUL:
        return op.dtype == F32 or not is_transposed(op.root)
    return is_channels_last(op) or (build == "onednn" and _format(op) == _channels_first(op))


def is_transposed(product: Node) -> bool:
    """Whether a MatMul reads its left matrix transposed (transpose_a)."""
    return product.attrs["lhs_contracting_dimensions"] == (0,)


def is_channels_last(op: Op) -> bool:
    """Whether a convolution reads and writes NHWC, or what corresponds; a MatMul always does."""
    rank = op.output.type.rank
    return op.kind == MATMUL or _format(op) == ((0, rank - 1, *range(1, rank - 1)),) * 2


def _format(op: Op) -> tuple[tuple[int, ...], ...]:
    """Batch, channel and spatial axes of a convolution's input, and of its output."""
    attrs = op.root.attrs
    return tuple(
        (attrs[f"{side}_batch_dimension"], attrs[f"{side}_feature_dimension"], *attrs[f"{side}_spatial_dimensions"])
        for side in ("input", "output")
    )


def _channels_first(op: Op) -> tuple[tuple[int, ...], ...]:
    return (tuple(range(op.output.type.rank)),) * 2


def biased(graph: OpGraph, op: Op, build: Build) -> Op | None:
    """The contraction that an operation adds a bias to (FindContractionWithBias)."""
    use = _unbiased(graph, op, build)
    contraction = None if use is None else graph.maker(use, *CONTRACTIONS)
    if contraction is None or not is_eligible(contraction, build) or not graph.used_once(contraction):
        return None
    return contraction


def _unbiased(graph: OpGraph, op: Op, build: Build) -> Use | None:
    """The operand that a bias is added to. oneDNN also takes an addition for one (IsBiasSemanticAdd)."""
    if op.kind == "BiasAdd":
        return op.inputs[0]
    if build != "onednn" or op.kind not in ADDITIONS or len(op.inputs) != 2:
        return None
    for use, bias in (op.inputs, op.inputs[::-1]):
        contraction = graph.maker(use, *CONTRACTIONS)
        if contraction is not None:
            extents, wanted = graph.shape(bias), contraction.output.type.shape
            is_vector = extents[-1:] == wanted[-1:] and all(extent == 1 for extent in extents[:-1])
            return use if is_vector and extents != wanted and is_channels_last(contraction) else None
    return None


def is_same(one: Use, other: Use) -> bool:
    """Whether two operands are one value."""
    return one.source is other.source and one.views == other.views


def sides(op: Op) -> Sequence[tuple[Use, Use]]:
    """The operands of a binary operation, in both orders; nothing for others."""
    if len(op.inputs) != 2:
        return ()
    left, right = op.inputs
    return (left, right), (right, left)


def fused_match(contraction: Op, parts: tuple[Op, ...], *fused: str) -> Match:
    """A contraction with what is computed after it, by its fused name."""
    return Match(f"_Fused{contraction.kind}", parts, fused)


def contraction_with_bias(graph: OpGraph, op: Op, build: Build) -> Match | None:
    """B2: contraction, bias."""
    contraction = biased(graph, op, build)
    return None if contraction is None else fused_match(contraction, (contraction,), "BiasAdd")


def contraction_with_bias_and_activation(graph: OpGraph, op: Op, build: Build) -> Match | None:
    """B3: contraction, bias, activation."""
    bias = graph.maker(op.inputs[0]) if op.inputs else None
    contraction = None if bias is None or not graph.used_once(bias) else biased(graph, bias, build)
    if bias is None or contraction is None or op.kind not in ACTIVATIONS.get((build, contraction.kind), ()):
        return None
    return fused_match(contraction, (bias, contraction), "BiasAdd", op.kind)


def squeezed_convolution_with_bias(graph: OpGraph, op: Op, build: Build) -> Match | None:
    """B4: Conv2D, Squeeze, BiasAdd, which is Keras' Conv1D."""
    contraction = graph.maker(op.inputs[0], CONV1D) if op.kind == "BiasAdd" else None
    if contraction is None or not is_eligible(contraction, build) or not graph.used_once(contraction):
        return None
    return Match("_FusedConv2DSqueezed", (contraction,), ("BiasAdd",))


def normalised(graph: OpGraph, op: Op, build: Build) -> Op | None:
    """The Conv2D that an operation normalises by given statistics (FindConv2DWithBatchNorm)."""
    contraction = graph.maker(op.inputs[0], CONV2D) if op.kind == "FusedBatchNormV3" else None
    if contraction is None or op.dtype == BF16 or not is_eligible(contraction, build):
        return None
    return contraction if graph.used_once(contraction) else None


def convolution_with_batch_norm(graph: OpGraph, op: Op, build: Build) -> Match | None:
    """B5: Conv2D, batch norm."""
    contraction = normalised(graph, op, build)
    return None if contraction is None else fused_match(contraction, (contraction,), "FusedBatchNorm")


def convolution_with_batch_norm_and_activation(graph: OpGraph, op: Op, build: Build) -> Match | None:
    """B6: Conv2D, batch norm, activation."""
    norm = graph.maker(op.inputs[0], "FusedBatchNormV3") if op.kind in BATCH_NORM_ACTIVATIONS[build] else None
    contraction = None if norm is None or not graph.used_once(norm) else normalised(graph, norm, build)
    if norm is None or contraction is None:
        return None
    return fused_match(contraction, (norm, contraction), "FusedBatchNorm", op.kind)


def batch_norm_with_relu(graph: OpGraph, op: Op, build: Build) -> Match | None:
    """B7: batch norm, Relu; not with Eigen's kernels (FindFusedBatchNormEx)."""
    norm = graph.maker(op.inputs[0], "FusedBatchNormV3") if op.kind == "Relu" and build == "onednn" else None
    if norm is None or norm.dtype not in (F32, BF16) or not graph.used_once(norm):
        return None
    return Match("_FusedBatchNormEx", (norm,), ("Relu",))


BLOCK_B: Sequence[Finder] = (
    contraction_with_bias,
    contraction_with_bias_and_activation,
    squeezed_convolution_with_bias,
    convolution_with_batch_norm,
    convolution_with_batch_norm_and_activation,
    batch_norm_with_relu,
)
"""B2 to B7, for every build."""
