"""Convolutions as sums and as products of matrices, beside the interpreter's of the whole."""

import numpy as np
import pytest

import autofuse as af
from autofuse.ir import dtypes
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.types import TensorType
from autofuse.passes.choices import DEFAULT, read_choices
from autofuse.passes.pipeline import can_change, clean
from tests.ir.ops.test_contractions import layout

NHWC, NCHW, MIXED = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("NCHW", "HWIO", "NHWC")
CASES = {
    "depthwise": ((2, 7, 8, 6), (3, 3, 1, 6), NHWC, {"feature_group_count": 6, "padding": ((1, 1), (1, 0))}),
    "depthwise, channels first": ((2, 6, 7, 8), (6, 1, 3, 2), NCHW, {"feature_group_count": 6}),
    "several outputs": ((1, 4, 4, 3), (3, 3, 1, 8), MIXED, {"feature_group_count": 4, "padding": ((1, 1), (2, 1))}),
    "few features": ((2, 6, 9), (4, 3, 2), ("NCW", "OIW", "NCW"), {"feature_group_count": 2, "window_strides": (2,)}),
    "products": ((2, 7, 8, 32), (3, 3, 8, 16), NHWC, {"feature_group_count": 4, "padding": ((1, 1), (1, 0))}),
    "strided products": (
        (2, 32, 7, 8),
        (32, 8, 3, 3),
        NCHW,
        {"feature_group_count": 4, "window_strides": (2, 1), "rhs_dilation": (1, 2), "padding": ((2, 2), (2, -1))},
    ),
    "products without a window": ((3, 24), (6, 12), ("NC", "IO", "NC"), {"feature_group_count": 4}),
    "a transposed one": ((1, 5, 4, 3), (3, 2, 1, 3), NHWC, {"feature_group_count": 3, "lhs_dilation": (2, 1)}),
    "groups of the batch": ((4, 3, 5), (6, 3, 2), ("NCW", "OIW", "NCW"), {"batch_group_count": 2}),
    "many of the batch": ((6, 5, 6, 7), (5, 2, 7, 9), ("NHWC", "HWIO", "NHWC"), {"batch_group_count": 3}),
}


def grouped(lhs, rhs, names, dtype=dtypes.F32, **options):
    builder = GraphBuilder("grouped")
    operands = [builder.input(TensorType(shape, dtype), name) for shape, name in ((lhs, "x"), (rhs, "w"))]
    return builder.finish([builder.emit("convolution", operands, **layout(*names, **options))])


def has_convolutions(graph):
    return any(node.op == "convolution" for node in graph.nodes)


@pytest.mark.parametrize("dtype", [dtypes.F32, dtypes.F64, dtypes.BF16, dtypes.I32], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_groups_apart(name, dtype):
    lhs, rhs, names, options = CASES[name]
    graph = grouped(lhs, rhs, names, dtype, **options)
    cleaned = clean(graph)
    assert not has_convolutions(cleaned)
    rng = np.random.default_rng(len(name))
    arrays = [(rng.standard_normal(shape) * 4).astype(dtype.numpy) for shape in (lhs, rhs)]
    (right,), (answer,) = interpret(graph, *arrays), interpret(cleaned, *arrays)
    digits = {dtypes.F32: 1e-5, dtypes.F64: 1e-13, dtypes.BF16: 8e-3}.get(dtype, 0)
    np.testing.assert_allclose(answer.astype(np.float64), right.astype(np.float64), rtol=digits, atol=20 * digits)


PLAIN = {
    "channels last": ((2, 7, 8, 3), (3, 2, 3, 5), NHWC, {"padding": ((1, 1), (1, 0))}),
    "channels first": ((2, 3, 7, 8), (5, 3, 3, 2), NCHW, {"window_strides": (2, 1), "padding": ((2, 1), (0, 0))}),
    "mixed, transposed": ((2, 3, 5, 4), (3, 3, 3, 5), MIXED, {"lhs_dilation": (2, 2), "rhs_dilation": (1, 2)}),
    "one element": ((2, 3, 7, 8), (5, 3, 1, 1), NCHW, {}),
    "no window": ((3, 24), (24, 12), ("NC", "IO", "NC"), {}),
}


@pytest.mark.parametrize("dtype", [dtypes.F32, dtypes.F16, dtypes.I32], ids=str)
@pytest.mark.parametrize("name", PLAIN)
def test_patches_are_multiplied_where_that_is_chosen(name, dtype):
    lhs, rhs, names, options = PLAIN[name]
    graph, choices = grouped(lhs, rhs, names, dtype, **options), read_choices("convolutions=products")
    assert can_change(clean(graph), choices)
    chosen = clean(graph, "strict", choices)
    assert has_convolutions(clean(graph, "strict", DEFAULT))
    assert not has_convolutions(chosen)
    rng = np.random.default_rng(len(name))
    arrays = [(rng.standard_normal(shape) * 4).astype(dtype.numpy) for shape in (lhs, rhs)]
    (right,), (answer,) = interpret(graph, *arrays), interpret(chosen, *arrays)
    digits = {dtypes.F32: 1e-5, dtypes.F16: 2e-3}.get(dtype, 0)
    np.testing.assert_allclose(answer.astype(np.float64), right.astype(np.float64), rtol=digits, atol=20 * digits)


def test_padding_meets_numbers_that_are_none():
    """As in the whole, a padded zero times infinity is NaN."""
    graph = grouped((1, 4, 2), (3, 1, 2), ("NWC", "WIO", "NWC"), feature_group_count=2, padding=((1, 1),))
    x, w = np.ones((1, 4, 2), np.float32), np.full((3, 1, 2), np.inf, np.float32)
    np.testing.assert_array_equal(interpret(clean(graph), x, w)[0], interpret(graph, x, w)[0])


def test_what_stays_a_call():
    assert has_convolutions(clean(grouped((1, 200, 2), (129, 1, 2), ("NWC", "WIO", "NWC"), feature_group_count=2)))
    plain = grouped((1, 9, 2), (3, 2, 4), ("NWC", "WIO", "NWC"))
    assert has_convolutions(clean(plain))


def test_a_depthwise_convolution_is_one_kernel_with_what_is_behind_it():
    pytest.importorskip("jaxlib.mlir.ir", reason="jaxlib reads modules: pip install 'autofuse[jax]'")
    module = """module { func.func public @main(
        %x: tensor<1x9x8x6xf32>, %w: tensor<3x3x1x6xf32>) -> tensor<1x9x8x6xf32> {
        %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
            window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1]}
            {feature_group_count = 6 : i64, batch_group_count = 1 : i64}
            : (tensor<1x9x8x6xf32>, tensor<3x3x1x6xf32>) -> tensor<1x9x8x6xf32>
        %1 = stablehlo.tanh %0 : tensor<1x9x8x6xf32>
        return %1 : tensor<1x9x8x6xf32>
    } }"""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 9, 8, 6), np.float32), rng.standard_normal((3, 3, 1, 6), np.float32)
    function = af.from_stablehlo(module)
    plan = af.compile(function, x, w)
    assert [kernel.kind for kernel in plan.kernels] == ["loop"]
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    right = sum(padded[:, i : i + 9, j : j + 8] * w[i, j, 0] for i in range(3) for j in range(3))
    np.testing.assert_allclose(plan(x, w), np.tanh(right), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(80))
def test_random_groups(seed):
    rng = np.random.default_rng(seed)
    groups, features, made = (int(n) for n in rng.choice([1, 2, 3, 5, 8], 3))
    names, batch = (NHWC, NCHW, MIXED)[seed % 3], int(rng.integers(1, 4))
    by_batch, extents = bool(rng.random() < 0.3), [int(n) for n in rng.integers(3, 9, 2)]
    window = [int(n) for n in rng.integers(1, 4, 2)]
    sizes = {"N": batch * (groups if by_batch else 1), "C": features * (1 if by_batch else groups)}
    sizes |= {"H": extents[0], "W": extents[1]}
    kernel = {"I": features, "O": groups * made, "H": window[0], "W": window[1]}
    options = {
        "batch_group_count" if by_batch else "feature_group_count": groups,
        "window_strides": tuple(int(n) for n in rng.integers(1, 3, 2)),
        "rhs_dilation": tuple(int(n) for n in rng.integers(1, 3, 2)),
        "lhs_dilation": tuple(int(n) for n in rng.integers(1, 3, 2)),
        "padding": tuple((int(a), int(b)) for a, b in rng.integers(-1, 4, (2, 2))),
    }
    lhs, rhs = tuple(sizes[letter] for letter in names[0]), tuple(kernel[letter] for letter in names[1])
    graph = grouped(lhs, rhs, names, **options)
    arrays = [rng.standard_normal(shape, np.float32) for shape in (lhs, rhs)]
    (right,) = interpret(graph, *arrays)
    for choices in (DEFAULT, read_choices("convolutions=products")):
        (answer,) = interpret(clean(graph, "strict", choices), *arrays)
        np.testing.assert_allclose(answer, right, rtol=1e-4, atol=1e-4)
