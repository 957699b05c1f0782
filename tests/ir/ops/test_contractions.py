"""dot_general and convolution against einsum and a loop over output elements."""

import itertools

import numpy as np
import pytest

from autofuse.errors import GraphError
from autofuse.ir.dtypes import BF16, F16
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.optable import lookup
from autofuse.ir.types import of_array, parse_type


def apply(op, *arrays, **attrs):
    builder = GraphBuilder("g")
    values = [builder.input(of_array(x)) for x in arrays]
    return interpret(builder.finish([builder.emit(op, values, **attrs)]), *arrays)[0]


def dims(lb=(), rb=(), lc=(), rc=()):
    return {
        "lhs_batching_dimensions": lb,
        "rhs_batching_dimensions": rb,
        "lhs_contracting_dimensions": lc,
        "rhs_contracting_dimensions": rc,
    }


CASES = [
    ((3, 4), (4, 5), dims(lc=(1,), rc=(0,)), "ik,kj->ij"),
    ((3, 4), (5, 4), dims(lc=(1,), rc=(1,)), "ik,jk->ij"),
    ((4, 3), (5, 4), dims(lc=(0,), rc=(1,)), "ki,jk->ij"),
    ((2, 3, 4), (2, 4, 5), dims((0,), (0,), (2,), (1,)), "bik,bkj->bij"),
    ((3, 2, 4), (4, 5, 2), dims((1,), (2,), (2,), (0,)), "ibk,kjb->bij"),
    ((2, 3, 4, 5), (3, 5, 6, 2), dims((0, 1), (3, 0), (3,), (1,)), "abik,bkja->abij"),
    ((3, 4, 5), (5, 4, 2), dims(lc=(1, 2), rc=(1, 0)), "iab,baj->ij"),
    ((4,), (4,), dims(lc=(0,), rc=(0,)), "k,k->"),
    ((3,), (4,), dims(), "i,j->ij"),
    ((2, 3), (2, 3), dims((0,), (0,), (1,), (1,)), "bk,bk->b"),
    ((3, 0), (0, 2), dims(lc=(1,), rc=(0,)), "ik,kj->ij"),
]


@pytest.mark.parametrize(("lhs", "rhs", "attrs", "spec"), CASES, ids=[c[3] for c in CASES])
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint8])
def test_dot_general(lhs, rhs, attrs, spec, dtype):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 9, shape).astype(dtype) for shape in (lhs, rhs))
    expected = np.einsum(spec, x.astype(np.int64), y.astype(np.int64)).astype(dtype)
    np.testing.assert_array_equal(apply("dot_general", x, y, **attrs), expected)


def test_dot_of_bool_is_the_or_of_ands():
    x, y = np.array([[True, False], [False, False]]), np.array([[True, True], [True, False]])
    assert apply("dot_general", x, y, **dims(lc=(1,), rc=(0,))).tolist() == [[True, True], [False, False]]


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_sixteen_bit_dots_accumulate_in_f32(dtype):
    x = np.full((1, 4096), 2.0**-8, dtype.numpy)
    x[0, 0] = 1
    result = apply("dot_general", x, np.ones((4096, 1), dtype.numpy), **dims(lc=(1,), rc=(0,)))
    assert result.dtype == dtype.numpy
    assert result[0, 0] == np.float32(1 + 4095 * 2.0**-8).astype(dtype.numpy)


def test_dot_flops():
    types = [parse_type("f32[3,4]"), parse_type("f32[4,5]")]
    attrs = dims(lc=(1,), rc=(0,))
    assert lookup("dot_general").flops(types, lookup("dot_general").infer(types, attrs, ()), attrs) == 2 * 3 * 4 * 5


@pytest.mark.parametrize(
    ("lhs", "rhs", "attrs", "message"),
    [
        ("f32[2,3]", "f64[3,2]", dims(lc=(1,), rc=(0,)), "operand rhs must have dtype f32"),
        ("f32[2,3]", "f32[4,2]", dims(lc=(1,), rc=(0,)), r"contracting dimensions must agree.*\(3,\).*\(4,\)"),
        ("f32[2,3]", "f32[3,2]", dims(lc=(1,), rc=()), "contracting dimensions must agree in number"),
        ("f32[2,3]", "f32[3,2]", dims((0,), (0,), (1,), (1,)), "batching dimensions must agree"),
        ("f32[2,3]", "f32[3,2]", dims((1,), (0,), (1,), (0,)), "must not repeat a dimension"),
        ("f32[2,3]", "f32[3,2]", dims(lc=(2,), rc=(0,)), "must be a dimension of lhs"),
    ],
)
def test_dot_errors(lhs, rhs, attrs, message):
    with pytest.raises(GraphError, match=message):
        lookup("dot_general").infer([parse_type(lhs), parse_type(rhs)], attrs, ())


def layout(lhs, rhs, out, **changes):
    """Dimension numbers from strings such as "NCHW", "OIHW"."""
    spatial = [c for c in lhs if c not in "NC"]
    n = len(spatial)
    return {
        "window_strides": (1,) * n,
        "padding": ((0, 0),) * n,
        "lhs_dilation": (1,) * n,
        "rhs_dilation": (1,) * n,
        "input_batch_dimension": lhs.index("N"),
        "input_feature_dimension": lhs.index("C"),
        "input_spatial_dimensions": tuple(map(lhs.index, spatial)),
        "kernel_input_feature_dimension": rhs.index("I"),
        "kernel_output_feature_dimension": rhs.index("O"),
        "kernel_spatial_dimensions": tuple(map(rhs.index, spatial)),
        "output_batch_dimension": out.index("N"),
        "output_feature_dimension": out.index("C"),
        "output_spatial_dimensions": tuple(map(out.index, spatial)),
        "feature_group_count": 1,
        "batch_group_count": 1,
    } | changes


def convolution_reference(x, w, attrs):
    """The sum for every output element, from the definition."""
    x = x.transpose(
        attrs["input_batch_dimension"], attrs["input_feature_dimension"], *attrs["input_spatial_dimensions"]
    )
    kernel = (attrs["kernel_output_feature_dimension"], attrs["kernel_input_feature_dimension"])
    w = w.transpose(*kernel, *attrs["kernel_spatial_dimensions"])
    groups, batch_groups = attrs["feature_group_count"], attrs["batch_group_count"]
    batch, outs = x.shape[0] // batch_groups, w.shape[0]
    spatial = []
    for d, n in enumerate(x.shape[2:]):
        base = (n - 1) * attrs["lhs_dilation"][d] + 1 + sum(attrs["padding"][d])
        span = (w.shape[2 + d] - 1) * attrs["rhs_dilation"][d] + 1
        spatial.append(max(0, (base - span) // attrs["window_strides"][d] + 1))
    result = np.zeros((batch, outs, *spatial), x.dtype)
    for n, o, *point in np.ndindex(*result.shape):
        feature = o // (outs // groups) * w.shape[1]
        row = o // (outs // batch_groups) * batch + n
        for i, *offset in np.ndindex(*w.shape[1:]):
            where = []
            for d, (p, k) in enumerate(zip(point, offset, strict=True)):
                at = p * attrs["window_strides"][d] + k * attrs["rhs_dilation"][d] - attrs["padding"][d][0]
                step = attrs["lhs_dilation"][d]
                where.append(at // step if at % step == 0 and 0 <= at // step < x.shape[2 + d] else None)
            if None not in where:
                result[(n, o, *point)] += x[(row, feature + i, *where)] * w[(o, i, *offset)]
    out = (attrs["output_batch_dimension"], attrs["output_feature_dimension"], *attrs["output_spatial_dimensions"])
    return result.transpose(np.argsort(out))


CONVOLUTIONS = {
    "plain": ((2, 3, 5, 6), (4, 3, 2, 3), layout("NCHW", "OIHW", "NCHW")),
    "nhwc": ((2, 5, 6, 3), (2, 3, 3, 4), layout("NHWC", "HWIO", "NHWC")),
    "odd layouts": ((6, 2, 3, 5), (3, 2, 4, 3), layout("WNCH", "WHOI", "HCNW")),
    "strides and padding": (
        (1, 2, 5, 4),
        (3, 2, 3, 2),
        layout("NCHW", "OIHW", "NCHW", window_strides=(2, 3), padding=((1, 2), (0, 1))),
    ),
    "negative padding": ((1, 2, 6), (3, 2, 2), layout("NCW", "OIW", "NCW", padding=((-2, -1),))),
    "dilated kernel": ((1, 2, 7), (3, 2, 3), layout("NCW", "OIW", "NCW", rhs_dilation=(2,))),
    "transposed": ((1, 2, 3), (3, 2, 3), layout("NCW", "OIW", "NCW", lhs_dilation=(3,), padding=((2, 2),))),
    "transposed, cut": ((1, 2, 3), (3, 2, 2), layout("NCW", "OIW", "NCW", lhs_dilation=(2,), padding=((-1, 1),))),
    "feature groups": ((2, 6, 4), (4, 3, 2), layout("NCW", "OIW", "NCW", feature_group_count=2)),
    "depthwise": ((1, 4, 4, 3), (3, 3, 1, 8), layout("NCHW", "HWIO", "NHWC", feature_group_count=4)),
    "batch groups": ((4, 3, 5), (6, 3, 2), layout("NCW", "OIW", "NCW", batch_group_count=2)),
    "three dimensions": ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), layout("NCDHW", "OIDHW", "NCDHW")),
    "kernel too large": ((1, 2, 2), (3, 2, 4), layout("NCW", "OIW", "NCW")),
    "no features": ((1, 0, 4), (3, 0, 2), layout("NCW", "OIW", "NCW")),
    "no batch": ((0, 2, 4), (3, 2, 2), layout("NCW", "OIW", "NCW")),
    "no spatial dimensions": ((2, 3), (4, 3), layout("NC", "OI", "NC")),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [np.float64, np.int8])
def test_convolution(case, dtype):
    lhs, rhs, attrs = CONVOLUTIONS[case]
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-9, 10, shape).astype(dtype) for shape in (lhs, rhs))
    with np.errstate(over="ignore"):
        expected = convolution_reference(x, w, attrs)
    np.testing.assert_array_equal(apply("convolution", x, w, **attrs), expected)


def test_sixteen_bit_convolutions_accumulate_in_f32():
    x = np.full((1, 4096, 1), 2.0**-8, np.float16)
    x[0, 0] = 1
    w = np.ones((1, 4096, 1), np.float16)
    result = apply("convolution", x, w, **layout("NCW", "OIW", "NCW"))
    assert result.item() == np.float16(1 + 4095 * 2.0**-8)


PLAIN = layout("NCW", "OIW", "NCW")


@pytest.mark.parametrize(
    ("lhs", "rhs", "changes", "message"),
    [
        ("f32[1,2,3]", "f32[2,2]", {}, "equal ranks"),
        ("f32[1,2,3]", "f64[2,2,2]", {}, "operand rhs must have dtype f32"),
        ("f32[1,2,3]", "f32[2,3,2]", {}, "must have 3 input features.*got 2"),
        ("f32[1,2,3]", "f32[2,2,2]", {"window_strides": (1, 1)}, "window_strides must have 1 entries"),
        ("f32[1,2,3]", "f32[2,2,2]", {"window_strides": (0,)}, "window_strides must have entries >= 1"),
        ("f32[1,2,3]", "f32[2,2,2]", {"input_batch_dimension": 1}, "must not repeat a dimension"),
        ("f32[1,2,3]", "f32[2,2,2]", {"output_feature_dimension": 3}, "must be a dimension of result"),
        ("f32[1,4,3]", "f32[3,2,2]", {"feature_group_count": 2}, "must divide the output features 3"),
        ("f32[3,2,3]", "f32[2,2,2]", {"batch_group_count": 2}, "the batch 3 of lhs"),
        ("f32[2,4,3]", "f32[2,2,2]", {"feature_group_count": 2, "batch_group_count": 2}, "must be 1, got 2 and 2"),
        ("f32[1,2,3]", "f32[2,2,2]", {"feature_group_count": 0}, "feature_group_count must have entries >= 1"),
        ("f32[1,2,3]", "f32[2,2,0]", {}, "extents must have entries >= 1"),
        ("f32[1,2,3]", "f32[2,2,2]", {"padding": ((-2, -2),)}, r"padding\[0\] must not remove more"),
    ],
)
def test_convolution_errors(lhs, rhs, changes, message):
    with pytest.raises(GraphError, match=message):
        lookup("convolution").infer([parse_type(lhs), parse_type(rhs)], PLAIN | changes, ())


def test_convolution_flops():
    types = [parse_type("f32[2,3,8]"), parse_type("f32[4,3,3]")]
    op = lookup("convolution")
    assert op.flops(types, op.infer(types, PLAIN, ()), PLAIN) == 2 * (2 * 4 * 6) * (3 * 3)


def test_all_pairs_of_layouts_agree():
    x, w = np.random.default_rng(1).normal(size=(2, 3, 6)), np.random.default_rng(2).normal(size=(4, 3, 2))
    expected = apply("convolution", x, w, **PLAIN)
    for lhs, rhs, out in itertools.product(("NCW", "NWC", "WNC"), ("OIW", "WIO", "IOW"), ("NCW", "NWC", "CWN")):
        given = [x.transpose(["NCW".index(c) for c in lhs]), w.transpose(["OIW".index(c) for c in rhs])]
        result = apply("convolution", *map(np.ascontiguousarray, given), **layout(lhs, rhs, out))
        back = result.transpose([out.index(c) for c in "NCW"])
        np.testing.assert_allclose(back, expected, rtol=1e-13)
