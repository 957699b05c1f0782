"""Convolutions with channels last by choice: the same results, and chains that transpose at their ends alone."""

import numpy as np
import pytest

from autofuse.ir import dtypes
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.types import TensorType
from autofuse.passes.choices import read_choices
from autofuse.passes.pipeline import can_change, clean
from tests.ir.ops.test_contractions import layout

LAST = read_choices("convolutions=last")
FIRST = ("NCHW", "OIHW", "NCHW")
CASES = {
    "channels first": ((2, 16, 7, 8), (24, 16, 3, 3), FIRST, {"padding": ((1, 1), (1, 0)), "window_strides": (2, 1)}),
    "mixed": ((2, 16, 7, 8), (3, 3, 16, 24), ("NCHW", "HWIO", "NHWC"), {"rhs_dilation": (1, 2)}),
    "a gradient of weights": ((3, 16, 9, 8), (24, 16, 7, 6), ("CNHW", "OIHW", "NCHW"), {}),
    "one dimension": ((2, 16, 80), (24, 16, 5), ("NCW", "OIW", "NCW"), {"padding": ((2, 2),)}),
}


def convolution(builder, x, w, names=FIRST, **options):
    return builder.emit("convolution", [x, w], **layout(*names, **options))


def normal(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [dtypes.F32, dtypes.BF16], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_any_layout(case, dtype):
    lhs, rhs, names, options = CASES[case]
    if names[0] == "CNHW":
        lhs = (lhs[1], lhs[0], *lhs[2:])
    builder = GraphBuilder("convolution")
    x, w = (builder.input(TensorType(shape, dtype), name) for shape, name in ((lhs, "x"), (rhs, "w")))
    graph = builder.finish([convolution(builder, x, w, names, **options)])
    assert can_change(clean(graph), LAST)
    chosen = clean(graph, "strict", LAST)
    (node,) = [node for node in chosen.nodes if node.op == "convolution"]
    assert node.attrs["input_feature_dimension"] == len(lhs) - 1
    arrays = [normal(n, *shape, dtype=dtype.numpy) for n, shape in enumerate((lhs, rhs))]
    (right,), (answer,) = interpret(graph, *arrays), interpret(chosen, *arrays)
    digits = {dtypes.F32: 1e-5, dtypes.BF16: 1e-2}[dtype]
    np.testing.assert_allclose(answer.astype(np.float64), right.astype(np.float64), rtol=digits, atol=30 * digits)


def test_what_has_channels_last_stays():
    builder = GraphBuilder("convolution")
    x, w = (builder.input(TensorType(shape, dtypes.F32)) for shape in ((2, 7, 8, 16), (3, 3, 16, 24)))
    graph = builder.finish([convolution(builder, x, w, ("NHWC", "HWIO", "NHWC"))])
    assert not can_change(clean(graph), LAST)


def chain():
    """Three layers with bias and ReLU, channels first."""
    builder = GraphBuilder("chain")
    x = builder.input(TensorType((1, 16, 9, 10), dtypes.F32), "x")
    y = x
    for number in range(3):
        w = builder.input(TensorType((16, 16, 3, 3), dtypes.F32), f"w{number}")
        b = builder.input(TensorType((16,), dtypes.F32), f"b{number}")
        made = convolution(builder, y, w, padding=((1, 1), (1, 1)))
        shift = builder.emit("broadcast_in_dim", [b], shape=made.type.shape, broadcast_dimensions=(1,))
        zero = builder.constant(np.zeros(made.type.shape, np.float32))
        y = builder.emit("maximum", [builder.emit("add", [made, shift]), zero])
    return builder.finish([y])


def test_a_chain_transposes_at_its_ends_and_stores_its_kernels():
    graph = chain()
    chosen = clean(graph, "strict", LAST)
    arrays = [normal(n, *value.type.shape) * np.float32(0.2) for n, value in enumerate(graph.inputs)]
    np.testing.assert_allclose(*interpret(chosen, *arrays), *interpret(graph, *arrays), rtol=1e-4, atol=1e-5)
    turned = [node.inputs[0].type.shape for node in chosen.nodes if node.op == "transpose"]
    assert sorted(turned) == sorted([(1, 16, 9, 10), *[(16, 16, 3, 3)] * 3, (1, 9, 10, 16)])
    stored = [node.output.type.shape for node in chosen.nodes if node.op == "convert"]
    assert sorted(stored) == sorted([(1, 9, 10, 16), *[(3, 3, 16, 16)] * 3])
