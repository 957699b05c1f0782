"""Scalar opcodes against NumPy where it defines the answer, and against the documented edges where it does not."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.errors import BackendError, GraphError
from autofuse.ir import dtypes, optable
from autofuse.ir.dtypes import BOOL, F32, F64, I32, I64, DType
from autofuse.ir.oprecord import ElementwiseOp
from autofuse.ir.types import TensorType
from autofuse.targets.cpu import scalars
from autofuse.targets.cpu.llvmtext import FunctionText

# the inputs hold NaNs and overflows on purpose
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SIGNED = [d for d in dtypes.ALL if d.kind == "int"]
UNSIGNED = [d for d in dtypes.ALL if d.kind == "uint"]
INTEGERS = [*SIGNED, *UNSIGNED]
FLOATS = [d for d in dtypes.ALL if d.is_float]
LANES = (1, 8)


def integer_pairs(dtype: DType):
    info = np.iinfo(dtype.numpy)
    edges = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2, 0, 1, 2, 3, 7, 10, 100]
    if dtype.kind == "int":
        edges += [-1, -2, -3, -7, -100]
    random = np.random.default_rng(1).integers(info.min, info.max, 24, dtype=dtype.numpy, endpoint=True)
    values = np.concatenate([np.array(edges, dtype.numpy), random])
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


def floats(dtype: DType):
    """Random bit patterns (every kind of value) and the special ones."""
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 1 << dtype.bits, 400, dtype=np.uint64).astype(f"u{dtype.itemsize}").view(dtype.numpy)
    tame = rng.normal(size=200).astype(dtype.numpy)
    special = [
        0.0,
        -0.0,
        1,
        -1,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        np.inf,
        -np.inf,
        np.nan,
        300.7,
        -300.7,
        65504,
        3e9,
        1e30,
        -2,
    ]
    with np.errstate(all="ignore"):
        return np.concatenate([bits, tame, np.array(special).astype(dtype.numpy)])


def float_pairs(dtype: DType):
    values = floats(dtype)[::7]
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


def assert_same(actual, expected):
    """Equal values, signs of zeros and NaNs; the payload of a NaN is free."""
    assert actual.dtype == expected.dtype
    if actual.dtype.kind not in "fV" and "float" not in str(actual.dtype):
        np.testing.assert_array_equal(actual, expected)
        return
    with np.errstate(invalid="ignore"):  # signalling NaNs among the random patterns
        a, e = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(a, e)
    number = ~np.isnan(e)
    np.testing.assert_array_equal(np.signbit(a[number]), np.signbit(e[number]))


def exact_divide(a, b, dtype: DType):
    """The documented semantics with Python integers."""
    wrap = (1 << dtype.bits) - 1
    quotient = [
        -1 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a, b, strict=True)
    ]
    rest = [x if y == 0 else x - q * y for x, y, q in zip(a, b, quotient, strict=True)]
    unsigned = f"u{dtype.itemsize}"
    return tuple(np.array([v & wrap for v in values], unsigned).view(dtype.numpy) for values in (quotient, rest))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division_never_traps(run_map, dtype, lanes):
    a, b = integer_pairs(dtype)
    quotient, rest = exact_divide(a.tolist(), b.tolist(), dtype)
    np.testing.assert_array_equal(run_map("divide", a, b, lanes=lanes), quotient)
    np.testing.assert_array_equal(run_map("remainder", a, b, lanes=lanes), rest)


def test_integer_division_by_a_constant_takes_the_same_values(compile_kernel):
    a, _ = integer_pairs(I32)
    for divisor in (0, 7, -1):

        def emit(fn: FunctionText, operands, lanes, divisor=divisor):
            value = scalars.emit_constant(I32, divisor, lanes)
            return scalars.emit_map(fn, "divide", [operands[0], value], [I32, I32], I32, lanes)

        expected, _ = exact_divide(a.tolist(), [divisor] * len(a), I32)
        np.testing.assert_array_equal(compile_kernel(emit, [I32], I32, 8)(a), expected)


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_arithmetic_wraps_as_in_numpy(run_map, op, dtype):
    a, b = integer_pairs(dtype)
    name = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}.get(op, op)
    np.testing.assert_array_equal(run_map(op, a, b), getattr(np, name)(a, b))


@pytest.mark.parametrize("op", ["negate", "abs", "sign", "not"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_unary(run_map, op, dtype):
    a = integer_pairs(dtype)[0][:64]
    name = {"negate": "negative", "not": "invert"}.get(op, op)
    np.testing.assert_array_equal(run_map(op, a), getattr(np, name)(a))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_bit_counts(run_map, dtype):
    a = integer_pairs(dtype)[0][:64]
    patterns = [int(x) & ((1 << dtype.bits) - 1) for x in a]
    np.testing.assert_array_equal(run_map("popcnt", a), [p.bit_count() for p in patterns])
    expected = np.array([dtype.bits - p.bit_length() for p in patterns])
    np.testing.assert_array_equal(run_map("count_leading_zeros", a), expected)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_by_the_width_or_more(run_map, dtype):
    x, amount = integer_pairs(dtype)
    wrap, bits = (1 << dtype.bits) - 1, dtype.bits
    counts = [c if 0 <= c < bits else bits for c in amount.tolist()]

    def pattern(values):
        return np.array([v & wrap for v in values], f"u{dtype.itemsize}").view(dtype.numpy)

    values = x.tolist()
    left = pattern(v << c for v, c in zip(values, counts, strict=True))
    logical = pattern((v & wrap) >> c for v, c in zip(values, counts, strict=True))
    signed = x.view(f"i{dtype.itemsize}").tolist()
    arithmetic = pattern(v >> c for v, c in zip(signed, counts, strict=True))
    np.testing.assert_array_equal(run_map("shift_left", x, amount), left)
    np.testing.assert_array_equal(run_map("shift_right_logical", x, amount), logical)
    np.testing.assert_array_equal(run_map("shift_right_arithmetic", x, amount), arithmetic)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", [dtypes.I8, I32, dtypes.U16, I64], ids=str)
def test_integer_power(run_map, dtype, lanes):
    base, exponent = integer_pairs(dtype)
    wrap = (1 << dtype.bits) - 1

    def exact(x, n):
        if n >= 0:
            return pow(x, n, wrap + 1)
        return {1: 1, -1: -1 if n % 2 else 1}.get(x, 0) & wrap

    expected = [exact(x, n) for x, n in zip(base.tolist(), exponent.tolist(), strict=True)]
    expected = np.array(expected, f"u{dtype.itemsize}").view(dtype.numpy)
    np.testing.assert_array_equal(run_map("power", base, exponent, lanes=lanes), expected)


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "maximum", "minimum"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_arithmetic_has_numpys_bits(run_map, op, dtype):
    a, b = float_pairs(dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, op)(a, b)
    actual = run_map(op, a, b)
    if op in ("maximum", "minimum"):  # NumPy's choice between zeros of two signs depends on its vector path
        np.testing.assert_array_equal(actual.astype(float), expected.astype(float))
    else:
        assert_same(actual, expected)


@pytest.mark.parametrize("op", ["sqrt", "floor", "ceil", "round_nearest_even", "negate", "abs", "sign", "is_finite"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_unary_has_numpys_bits(run_map, op, dtype):
    x = floats(dtype)
    name = {"round_nearest_even": "rint", "negate": "negative", "is_finite": "isfinite"}.get(op, op)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x)
    if op == "sign":  # keeps the sign of a zero, which np.sign drops
        expected = np.where(x == 0, x, expected)
    assert_same(run_map(op, x, result=BOOL if op == "is_finite" else None), expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_round_half_away_from_zero(run_map, dtype):
    x = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 0.25, -0.25, 100, np.inf, np.nan], dtype.numpy)
    expected = np.array([1, 2, 3, -1, -3, 0, -0.0, 100, np.inf, np.nan], dtype.numpy)
    assert_same(run_map("round_nearest_afz", x), expected)


def test_round_half_away_keeps_the_largest_below_half(run_map):
    x = np.array([np.nextafter(np.float32(0.5), np.float32(0)), 8388609.0, -4503599627370495.5], np.float32)
    assert run_map("round_nearest_afz", x).tolist() == [0.0, 8388609.0, -4503599627370496.0]


ORDERS = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}


@pytest.mark.parametrize("op", ORDERS)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_comparisons_as_in_numpy(run_map, op, dtype):
    if dtype.kind == "bool":
        a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    else:
        a, b = float_pairs(dtype) if dtype.is_float else integer_pairs(dtype)
    np.testing.assert_array_equal(run_map(op, a, b, result=BOOL), getattr(np, ORDERS[op])(a, b))


@pytest.mark.parametrize("dtype", [F32, I32, dtypes.U8, dtypes.BF16], ids=str)
def test_clamp_and_select(run_map, dtype):
    x = floats(dtype) if dtype.is_float else integer_pairs(dtype)[0]
    low, high = np.full(len(x), 3, dtype.numpy), np.full(len(x), 90, dtype.numpy)
    np.testing.assert_array_equal(run_map("clamp", low, x, high).astype(float), np.clip(x, low, high).astype(float))
    chosen = x < high
    np.testing.assert_array_equal(
        run_map("select", chosen, x, high, result=dtype).astype(float), np.where(chosen, x, high).astype(float)
    )


BOOL_OPS = {"add": "or", "multiply": "and", "subtract": "xor", "maximum": "or", "minimum": "and"}


@pytest.mark.parametrize("op", ["and", "or", "xor", *BOOL_OPS])
@pytest.mark.parametrize("lanes", LANES)
def test_bool_arithmetic(run_map, op, lanes):
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    expected = getattr(np, f"logical_{BOOL_OPS.get(op, op)}")(a, b)
    np.testing.assert_array_equal(run_map(op, a, b, lanes=lanes), expected)
    np.testing.assert_array_equal(run_map("not", a, lanes=lanes), ~a)


def expected_conversion(x, source: DType, target: DType):
    """NumPy's cast, but saturating with NaN -> 0 from float to integer."""
    if not (source.is_float and target.is_integer):
        with np.errstate(all="ignore"):
            return x.astype(target.numpy)
    info = np.iinfo(target.numpy)
    values = x.astype(np.float64).tolist()
    limited = [0 if v != v else info.max if v > info.max else info.min if v < info.min else int(v) for v in values]
    return np.array(limited, target.numpy)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("source", dtypes.ALL, ids=str)
def test_conversions(run_map, source, lanes):
    for target in dtypes.ALL:
        if source.kind == "bool":
            x = np.array([True, False, True])
        else:
            x = floats(source) if source.is_float else integer_pairs(source)[1][::41]
        assert_same(run_map("convert", x, result=target, lanes=lanes), expected_conversion(x, source, target))


def test_double_to_half_rounds_once(run_map):
    x = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11 - 2.0**-40, 65519.999999, 2.0**-25 + 2.0**-60, 5e-324, -1e300])
    assert_same(run_map("convert", x, result=dtypes.F16), expected_conversion(x, F64, dtypes.F16))


@pytest.mark.parametrize(
    ("source", "target"), [("f32", "i32"), ("u64", "f64"), ("bf16", "u16"), ("i16", "bf16"), ("f16", "bf16")]
)
def test_bitcasts(run_map, source, target):
    source, target = dtypes.by_name(source), dtypes.by_name(target)
    x = np.arange(40, 140).astype(source.numpy)
    np.testing.assert_array_equal(
        run_map("bitcast_convert", x, result=target).view(f"u{target.itemsize}"), x.view(f"u{target.itemsize}")
    )


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("lanes", LANES)
def test_float_remainder_is_fmod(run_map, dtype, lanes):
    a, b = float_pairs(dtype)
    with np.errstate(all="ignore"):
        assert_same(run_map("remainder", a, b, lanes=lanes), np.fmod(a, b))


COMBINERS = {"add": np.add, "multiply": np.multiply, "minimum": np.minimum, "maximum": np.maximum}


@pytest.mark.parametrize("combiner", [*COMBINERS, "and", "or"])
@pytest.mark.parametrize("dtype", [F32, dtypes.F16, dtypes.BF16, I32, dtypes.U8, BOOL], ids=str)
def test_horizontal_reduction_is_the_halving_tree(compile_kernel, combiner, dtype):
    if dtype.is_float and combiner in ("and", "or"):
        with pytest.raises(BackendError, match="needs a bool or integer"):
            scalars.identity(combiner, dtype)
        return

    def emit(fn: FunctionText, operands, lanes):
        total = scalars.emit_horizontal(fn, combiner, operands[0], dtype, lanes)
        total = scalars.emit_combine(fn, combiner, total, scalars.identity(combiner, dtype), dtype, 1)
        return scalars.emit_splat(fn, total, dtype, lanes)

    x = np.random.default_rng(3).integers(0, 3, 8).astype(dtype.numpy)
    combine = COMBINERS.get(combiner) or getattr(np, f"bitwise_{combiner}")
    tree = x
    while len(tree) > 1:
        tree = combine(tree[: len(tree) // 2], tree[len(tree) // 2 :])
    np.testing.assert_array_equal(compile_kernel(emit, [dtype], dtype, 8)(x), np.repeat(tree, 8))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_constants_are_exact(compile_kernel, dtype):
    for value in (0.1, -0.0, np.inf, -np.inf, np.nan, float(np.finfo(np.float32).tiny) / 8):

        def emit(fn, operands, lanes, value=value):
            return scalars.emit_constant(dtype, value, lanes)

        actual = compile_kernel(emit, [dtype], dtype, 4)(np.zeros(4, dtype.numpy))
        assert_same(actual, np.full(4, value).astype(dtype.numpy))


def test_tail_mask_holds_the_first_lanes(compile_kernel):
    def emit(fn, operands, lanes):
        count = fn.emit(f"extractelement <{lanes} x i64> {operands[0]}, i32 0") if lanes > 1 else operands[0]
        return scalars.emit_tail_mask(fn, count, lanes)

    for count in (0, 1, 5, 8, 1000):
        mask = compile_kernel(emit, [I64], BOOL, 8)(np.full(8, count))
        assert mask.tolist() == [lane < count for lane in range(8)]
    assert compile_kernel(emit, [I64], BOOL, 1)(np.array([1, 0])).tolist() == [True, False]


@pytest.mark.parametrize(("op", "dtype"), [("exp", I32), ("divide", BOOL), ("shift_left", F32), ("frobnicate", F32)])
def test_undefined_opcodes_say_so(run_map, op, dtype):
    with pytest.raises(BackendError, match=f"{op}.* is not defined on {dtype}"):
        run_map(op, *[np.ones(1, dtype.numpy)] * (1 if op == "exp" else 2))


LANEWISE = [
    (op.name, {} if op.variant is None else {op.variant: choice})
    for op in optable.all_ops()
    if isinstance(op, ElementwiseOp) and op.name not in ("compare", "convert", "bitcast_convert", "select", "is_finite")
    for choice in ((None,) if op.variant is None else op.attrs[op.variant].choices)
]


def operands_for(dtype: DType, count: int):
    if dtype.kind == "bool":
        values = np.array([False, True])
    else:
        values = floats(dtype)[::23] if dtype.is_float else integer_pairs(dtype)[1][::37]
    most = 60 if count < 3 else 30 if count < 5 else 3
    grids = np.meshgrid(*[values[:most]] * count)
    return [grid.ravel() for grid in grids]


@pytest.mark.parametrize(("name", "attrs"), LANEWISE, ids=lambda part: part if isinstance(part, str) else "")
def test_every_lanewise_op_agrees_with_the_interpreter(run_map, name, attrs):
    op = optable.lookup(name)
    assert isinstance(op, ElementwiseOp)
    for dtype in dtypes.ALL:
        operands = operands_for(dtype, op.arity)
        try:
            op.infer([TensorType(operand.shape, dtype) for operand in operands], attrs, ())
        except GraphError:
            continue  # the op is not defined on this dtype
        (expected,) = op.evaluate(operands, attrs, ())
        actual = run_map(op.opcode(attrs), *operands)
        if not dtype.is_float:
            np.testing.assert_array_equal(actual, expected, err_msg=str(dtype))
            continue
        # two functions within 4 units in the last place of the truth; 16-bit results round the same f32 apart
        unit = 2.0 ** -{"f16": 10, "bf16": 7, "f32": 20, "f64": 49}[dtype.name]
        least = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-146, "f64": 2.0**-1071}[dtype.name]
        with np.errstate(all="ignore"):
            a, e = actual.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_allclose(a, e, rtol=unit, atol=least, err_msg=str(dtype))
