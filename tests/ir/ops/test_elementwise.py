"""Scalar semantics: exhaustive over 8-bit integers against Python's, edges of floats by hand, conversions by table."""

import math

import numpy as np
import pytest
import scipy.special

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U32, U64
from autofuse.ir.ops import randombits
from autofuse.ir.optable import lookup
from autofuse.ir.types import TensorType, parse_type

INF, NAN = math.inf, math.nan


def apply(op, *operands, **attrs):
    """Evaluate an op on arrays after inferring its type; checks that the two agree."""
    entry = lookup(op)
    arrays = [np.asarray(x) for x in operands]
    types = [parse_type(f"{dtypes.from_numpy(x.dtype)}[{','.join(map(str, x.shape))}]") for x in arrays]
    (expected,) = entry.infer(types, attrs, ())
    (result,) = entry.evaluate(arrays, attrs, ())
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype.numpy
    return result


def all_pairs(dtype):
    limits = np.iinfo(dtype.numpy)
    values = np.arange(limits.min, limits.max + 1).astype(dtype.numpy)
    x, y = np.meshgrid(values, values, indexing="ij")
    return x.reshape(-1), y.reshape(-1)


def wrapped(number, dtype):
    """A Python integer modulo the dtype's range."""
    low = 0 if dtype.kind == "uint" else -(1 << (dtype.bits - 1))
    return (number - low) % (1 << dtype.bits) + low


def py_divide(a, b, dtype):
    if b == 0:
        return wrapped(-1, dtype)
    quotient = abs(a) // abs(b)
    return wrapped(quotient if (a < 0) == (b < 0) else -quotient, dtype)


def py_remainder(a, b, dtype):
    return a if b == 0 else int(math.copysign(1, a)) * (abs(a) % abs(b))


def py_power(a, b, dtype):
    if b >= 0:
        return wrapped(pow(a, b, 1 << dtype.bits), dtype)
    return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)


def py_shift(op):
    def shift(a, b, dtype):
        inside = 0 <= b < dtype.bits
        if op == "shift_left":
            return wrapped(a << b, dtype) if inside else 0
        if op == "shift_right_logical":
            return wrapped((a % (1 << dtype.bits)) >> b, dtype) if inside else 0
        signed = a if a < (1 << (dtype.bits - 1)) else a - (1 << dtype.bits)
        return wrapped(signed >> (b if inside else dtype.bits), dtype)

    return shift


INTEGER_OPS = {
    "add": lambda a, b, t: wrapped(a + b, t),
    "subtract": lambda a, b, t: wrapped(a - b, t),
    "multiply": lambda a, b, t: wrapped(a * b, t),
    "divide": py_divide,
    "remainder": py_remainder,
    "power": py_power,
    "maximum": lambda a, b, t: max(a, b),
    "minimum": lambda a, b, t: min(a, b),
    "and": lambda a, b, t: wrapped(a & b, t),
    "or": lambda a, b, t: wrapped(a | b, t),
    "xor": lambda a, b, t: wrapped(a ^ b, t),
    "shift_left": py_shift("shift_left"),
    "shift_right_logical": py_shift("shift_right_logical"),
    "shift_right_arithmetic": py_shift("shift_right_arithmetic"),
}


@pytest.mark.parametrize("dtype", [I8, U8], ids=str)
@pytest.mark.parametrize("op", INTEGER_OPS)
def test_binary_integers_exhaustively(op, dtype):
    x, y = all_pairs(dtype)
    reference = INTEGER_OPS[op]
    expected = [reference(a, b, dtype) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    np.testing.assert_array_equal(apply(op, x, y), np.array(expected, dtype.numpy))


@pytest.mark.parametrize("dtype", [I8, dtypes.I16, I32, I64, U8, dtypes.U16, U32, U64], ids=str)
def test_integer_edges_of_every_width(dtype):
    limits = np.iinfo(dtype.numpy)
    edges = [limits.min, limits.min + 1, 0, 1, 2, 7, limits.max - 1, limits.max]
    edges += [-1, -2] if dtype.kind == "int" else []
    x, y = (v.reshape(-1) for v in np.meshgrid(np.array(edges, dtype.numpy), np.array(edges, dtype.numpy)))
    for op, reference in INTEGER_OPS.items():
        expected = [reference(a, b, dtype) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        np.testing.assert_array_equal(apply(op, x, y), np.array(expected, dtype.numpy), err_msg=op)


UNARY_INTEGER = {
    "abs": lambda a, t: wrapped(abs(a), t),
    "negate": lambda a, t: wrapped(-a, t),
    "sign": lambda a, t: (a > 0) - (a < 0),
    "not": lambda a, t: wrapped(~a, t),
    "popcnt": lambda a, t: (a % (1 << t.bits)).bit_count(),
    "count_leading_zeros": lambda a, t: t.bits - (a % (1 << t.bits)).bit_length(),
}


@pytest.mark.parametrize("dtype", [I8, U8, dtypes.I16, dtypes.U16], ids=str)
@pytest.mark.parametrize("op", UNARY_INTEGER)
def test_unary_integers_exhaustively(op, dtype):
    limits = np.iinfo(dtype.numpy)
    x = np.arange(limits.min, limits.max + 1).astype(dtype.numpy)
    expected = [UNARY_INTEGER[op](a, dtype) for a in x.tolist()]
    np.testing.assert_array_equal(apply(op, x), np.array(expected, dtype.numpy))


def test_wide_bit_counts():
    x = np.array([0, 1, -1, 2**62, -(2**63)], np.int64)
    assert apply("popcnt", x).tolist() == [0, 1, 64, 1, 1]
    assert apply("count_leading_zeros", x).tolist() == [64, 63, 0, 1, 0]


BOOL_TABLE = {
    "add": [False, True, True, True],
    "multiply": [False, False, False, True],
    "maximum": [False, True, True, True],
    "minimum": [False, False, False, True],
    "and": [False, False, False, True],
    "or": [False, True, True, True],
    "xor": [False, True, True, False],
}


@pytest.mark.parametrize("op", BOOL_TABLE)
def test_bool_truth_tables(op):
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert apply(op, x, y).tolist() == BOOL_TABLE[op]


def test_not_of_bool():
    assert apply("not", np.array([False, True])).tolist() == [True, False]


def _rsqrt(x):
    return 1 / math.sqrt(x) if x else INF


UNARY_FLOAT = {
    "abs": (math.fabs, [(-0.0, 0.0), (-INF, INF), (NAN, NAN)]),
    "negate": (lambda x: -x, [(0.0, -0.0), (INF, -INF)]),
    "sign": (lambda x: math.copysign(1, x) if x else x, [(-0.0, -0.0), (0.0, 0.0), (-INF, -1.0), (NAN, NAN)]),
    "exp": (math.exp, [(-INF, 0.0), (INF, INF), (NAN, NAN), (0.0, 1.0)]),
    "exp2": (lambda x: 2.0**x, [(-INF, 0.0), (3.0, 8.0)]),
    "expm1": (math.expm1, [(-INF, -1.0), (-0.0, -0.0)]),
    "log": (math.log, [(0.0, -INF), (-1.0, NAN), (INF, INF), (1.0, 0.0)]),
    "log2": (math.log2, [(0.0, -INF), (8.0, 3.0)]),
    "log1p": (math.log1p, [(-1.0, -INF), (-2.0, NAN), (-0.0, -0.0)]),
    "sqrt": (math.sqrt, [(-0.0, -0.0), (-1.0, NAN), (INF, INF), (4.0, 2.0)]),
    "rsqrt": (_rsqrt, [(0.0, INF), (-1.0, NAN), (INF, 0.0), (4.0, 0.5)]),
    "cbrt": (lambda x: math.copysign(abs(x) ** (1 / 3), x), [(-8.0, -2.0), (-0.0, -0.0), (-INF, -INF)]),
    "tanh": (math.tanh, [(INF, 1.0), (-INF, -1.0), (-0.0, -0.0)]),
    "sin": (math.sin, [(INF, NAN), (-0.0, -0.0)]),
    "cos": (math.cos, [(INF, NAN), (0.0, 1.0)]),
    "tan": (math.tan, [(INF, NAN), (-0.0, -0.0)]),
    "logistic": (lambda x: 1 / (1 + math.exp(-x)), [(INF, 1.0), (-INF, 0.0), (0.0, 0.5), (NAN, NAN)]),
    "erf": (math.erf, [(INF, 1.0), (-INF, -1.0), (-0.0, -0.0)]),
    "erf_inv": (scipy.special.erfinv, [(1.0, INF), (-1.0, -INF), (2.0, NAN), (-INF, NAN), (NAN, NAN), (-0.0, -0.0)]),
    "floor": (math.floor, [(-0.5, -1.0), (INF, INF), (-0.0, -0.0), (NAN, NAN)]),
    "ceil": (math.ceil, [(-0.5, -0.0), (INF, INF), (NAN, NAN)]),
    "round_nearest_even": (round, [(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, -0.0), (INF, INF), (NAN, NAN)]),
    "round_nearest_afz": (
        lambda x: math.copysign(math.floor(abs(x) + 0.5), x),
        [(0.5, 1.0), (1.5, 2.0), (2.5, 3.0), (-0.5, -1.0), (-2.5, -3.0), (-0.25, -0.0), (INF, INF), (NAN, NAN)],
    ),
}
ULPS = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-21, "f64": 2.0**-50}
"""One ulp of f16 and bf16, which are rounded once from f32; 4 ulp of f32 and f64, whose functions are the C library"""


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
@pytest.mark.parametrize("op", UNARY_FLOAT)
def test_unary_floats(op, dtype):
    reference, edges = UNARY_FLOAT[op]
    positive = op in ("log", "log2", "sqrt", "rsqrt")
    x = np.linspace(0.1 if positive else -4, 4, 57).astype(dtype.numpy)
    x = np.maximum(x, x.dtype.type(-0.75)) if op == "log1p" else x
    x = np.linspace(-0.96875, 0.96875, 32).astype(dtype.numpy) if op == "erf_inv" else x  # beyond, its formula is off
    expected = np.array([reference(float(v)) for v in x])
    np.testing.assert_allclose(apply(op, x).astype(np.float64), expected, rtol=ULPS[dtype.name], atol=1e-300)
    given = np.array([a for a, _ in edges], dtype.numpy)
    wanted = np.array([b for _, b in edges], dtype.numpy)
    result = apply(op, given)
    np.testing.assert_array_equal(result.astype(np.float64), wanted.astype(np.float64))
    known = ~np.isnan(wanted.astype(np.float64))
    np.testing.assert_array_equal(np.signbit(result)[known], np.signbit(wanted)[known])


BINARY_FLOAT = [
    ("divide", 1.0, 0.0, INF),
    ("divide", -1.0, 0.0, -INF),
    ("divide", 0.0, 0.0, NAN),
    ("remainder", 5.5, 2.0, 1.5),
    ("remainder", -5.5, 2.0, -1.5),
    ("remainder", 5.5, -2.0, 1.5),
    ("remainder", 1.0, 0.0, NAN),
    ("remainder", INF, 2.0, NAN),
    ("remainder", 1.0, INF, 1.0),
    ("maximum", NAN, 1.0, NAN),
    ("maximum", 1.0, NAN, NAN),
    ("minimum", NAN, -INF, NAN),
    ("minimum", 1.0, 2.0, 1.0),
    ("power", 2.0, 10.0, 1024.0),
    ("power", 0.0, 0.0, 1.0),
    ("power", NAN, 0.0, 1.0),
    ("power", -8.0, 1 / 3, NAN),
    ("power", 0.0, -1.0, INF),
    ("atan2", 0.0, -1.0, math.pi),
    ("atan2", -1.0, 0.0, -math.pi / 2),
    ("add", INF, -INF, NAN),
    ("subtract", 1.0, 3.0, -2.0),
    ("multiply", 0.0, INF, NAN),
]


@pytest.mark.parametrize(("op", "x", "y", "expected"), BINARY_FLOAT)
@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
def test_binary_floats(op, x, y, expected, dtype):
    result = apply(op, np.array([x], dtype.numpy), np.array([y], dtype.numpy))
    np.testing.assert_array_equal(result.astype(np.float64), np.array([expected], dtype.numpy).astype(np.float64))


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_sixteen_bit_floats_round_once_after_each_op(dtype):
    rng = np.random.default_rng(3)
    x, y = (rng.normal(size=500).astype(dtype.numpy) for _ in range(2))
    for op, exact in (("add", np.add), ("multiply", np.multiply), ("divide", np.divide)):
        expected = exact(x.astype(np.float32), y.astype(np.float32)).astype(dtype.numpy)
        np.testing.assert_array_equal(apply(op, x, y), expected, err_msg=op)


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64, I32, U8, BOOL], ids=str)
def test_compare_and_select(dtype):
    x, y = (np.array(v, dtype.numpy) for v in ([0, 1, 1, 0], [1, 0, 1, 0]))
    table = {"EQ": "..xx", "NE": "xx..", "LT": "x...", "LE": "x.xx", "GT": ".x..", "GE": ".xxx"}
    for direction, marks in table.items():
        holds = apply("compare", x, y, direction=direction)
        assert holds.tolist() == [mark == "x" for mark in marks]
        chosen = apply("select", holds, x, y)
        np.testing.assert_array_equal(chosen, np.where(holds, x, y))


def test_nan_compares_unequal_only():
    x = np.array([NAN, 1.0], np.float32)
    for direction in ("EQ", "LT", "LE", "GT", "GE"):
        assert not apply("compare", x, x[::-1], direction=direction).any()
    assert apply("compare", x, x[::-1], direction="NE").all()


def test_unsigned_compare():
    assert apply("compare", np.array([2**63], np.uint64), np.array([1], np.uint64), direction="GT").all()


def test_clamp_lets_max_win_and_propagates_nan():
    low, x, high = (np.array(v, np.float32) for v in ([0, 0, 3, NAN], [-1, 5, 2, 1], [1, 1, 1, 2]))
    np.testing.assert_array_equal(apply("clamp", low, x, high), np.array([0, 1, 1, NAN], np.float32))


def test_is_finite():
    x = np.array([1, INF, -INF, NAN, 0], np.float16)
    assert apply("is_finite", x).tolist() == [True, False, False, False, True]


CONVERSIONS = [
    (F32, I32, 2.9, 2),
    (F32, I32, -2.9, -2),
    (F32, I32, NAN, 0),
    (F32, I32, INF, 2**31 - 1),
    (F32, I32, -INF, -(2**31)),
    (F32, I32, 3e9, 2**31 - 1),
    (F32, I8, 127.9, 127),
    (F32, I8, 128.0, 127),
    (F32, I8, -128.9, -128),
    (F32, U8, -0.9, 0),
    (F32, U8, -5.0, 0),
    (F32, U8, 255.9, 255),
    (F32, U8, 300.0, 255),
    (F64, I64, 2.0**63, 2**63 - 1),
    (F64, I64, -(2.0**63), -(2**63)),
    (F64, U64, 2.0**64, 2**64 - 1),
    (F64, U64, 2.0**63, 2**63),
    (F64, U64, -1.0, 0),
    (F64, I32, 2147483647.5, 2**31 - 1),
    (F16, I8, 1000.0, 127),
    (BF16, I32, 3.5, 3),
    (BF16, U32, -3.5, 0),
    (I32, I8, 257, 1),
    (I32, I8, 128, -128),
    (I32, U8, -1, 255),
    (I64, U32, -1, 2**32 - 1),
    (U32, I32, 2**32 - 1, -1),
    (I8, U64, -1, 2**64 - 1),
    (F32, BOOL, 0.5, True),
    (F32, BOOL, -0.0, False),
    (F32, BOOL, NAN, True),
    (I32, BOOL, 256, True),
    (BOOL, F32, True, 1.0),
    (BOOL, I8, True, 1),
    (F64, F32, 1e300, INF),
    (F32, F16, 65520.0, INF),
    (F32, F16, 2049.0, 2048.0),
    (F32, BF16, 257.0, 256.0),
    (F32, BF16, 259.0, 260.0),
    (I32, F32, 2**24 + 1, 2.0**24),
    (I64, F64, 2**53 + 1, 2.0**53),
    (U64, F32, 2**64 - 1, 2.0**64),
    (I32, BF16, 259, 260.0),
    (F16, BF16, 1.0009765625, 1.0),
]


@pytest.mark.parametrize(("source", "target", "value", "expected"), CONVERSIONS)
def test_convert(source, target, value, expected):
    result = apply("convert", np.array([value], source.numpy), dtype=target)
    np.testing.assert_array_equal(result, np.array([expected], target.numpy))


@pytest.mark.parametrize("source", dtypes.ALL, ids=str)
@pytest.mark.parametrize("target", dtypes.ALL, ids=str)
def test_small_integers_convert_exactly_between_all_dtypes(source, target):
    x = np.array([0, 1, 1, 0], source.numpy)
    np.testing.assert_array_equal(apply("convert", x, dtype=target), np.array([0, 1, 1, 0], target.numpy))


def test_f64_to_bf16_rounds_through_f32():
    tie = 1 + 2.0**-8 + 2.0**-40
    assert float(apply("convert", np.array([tie]), dtype=BF16)[0]) == 1.0


def test_bitcast_convert():
    x = np.array([1.0, -0.0, NAN], np.float32)
    assert apply("bitcast_convert", x, dtype=U32).tolist() == [0x3F800000, 0x80000000, 0x7FC00000]
    np.testing.assert_array_equal(apply("bitcast_convert", x.view(np.int32), dtype=F32), x)


@pytest.mark.parametrize(
    ("op", "operands", "attrs", "message"),
    [
        ("add", ["f32[2]", "f32[3]"], {}, r"add: operand y must be f32\[2\] like operand x, got f32\[3\]"),
        ("add", ["f32[2]", "f64[2]"], {}, r"operand y must be f32\[2\]"),
        ("exp", ["i32[2]"], {}, r"exp: operand x must have a float or complex dtype, got i32\[2\]"),
        ("subtract", ["bool[]", "bool[]"], {}, "subtract: operand x must have a float, integer or complex dtype"),
        ("and", ["f32[]", "f32[]"], {}, "and: operand x must have an integer dtype or bool"),
        ("shift_left", ["bool[]", "bool[]"], {}, "shift_left: operand x must have an integer dtype"),
        ("popcnt", ["bool[]"], {}, "popcnt: operand x must have an integer dtype"),
        ("is_finite", ["i32[]"], {}, "is_finite: operand x must have a float dtype"),
        ("select", ["bool[]", "f32[2]", "f32[2]"], {}, r"select: operand pred must be bool\[2\]"),
        ("select", ["i32[2]", "f32[2]", "f32[2]"], {}, r"select: operand pred must be bool\[2\].*got i32\[2\]"),
        ("select", ["bool[2]", "f32[2]", "f64[2]"], {}, "select: operand on_false must be f32"),
        ("clamp", ["f32[]", "f32[2]", "f32[2]"], {}, r"clamp: operand x must be f32\[\] like operand min"),
        ("compare", ["f32[2]", "i32[2]"], {"direction": "LT"}, "compare: operand y must be f32"),
        ("bitcast_convert", ["f32[]"], {"dtype": F64}, "must be 32 bits wide like operand x"),
        ("bitcast_convert", ["bool[]"], {"dtype": U8}, "not mix bool with numbers"),
    ],
)
def test_inference_errors(op, operands, attrs, message):
    with pytest.raises(GraphError, match=message):
        lookup(op).infer([parse_type(t) for t in operands], attrs, ())


def test_the_opcode_of_an_op_is_its_name_but_for_comparisons():
    assert lookup("tanh").opcodes == ("tanh",)
    assert lookup("compare").opcode({"direction": "LE"}) == "le"
    assert lookup("compare").opcodes == ("eq", "ne", "lt", "le", "gt", "ge")


KEY, COUNTER = (0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3)


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        (KEY, COUNTER, (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_has_the_words_that_its_authors_published(key, counter, words):
    operands = [np.full(3, word, np.uint32) for word in (*key, *counter)]
    first, second, mixed = (apply("threefry2x32", *operands, word=word.upper()) for word in randombits.OPCODES)
    assert (first == words[0]).all()
    assert (second == words[1]).all()
    np.testing.assert_array_equal(mixed, first ^ second)


def test_threefry_takes_words_of_32_bits_alone():
    with pytest.raises(GraphError, match=r"operand key_1 must be of u32, got i32\[3\]; convert it first"):
        lookup("threefry2x32").infer([TensorType((3,), t) for t in (U32, I32, U32, U32)], {}, ())


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0, 0, 0), (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B)),
        (
            (2**64 - 1, 2**64 - 1),
            (2**64 - 1,) * 4,
            (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0),
        ),
    ],
)
def test_philox_has_the_words_that_its_authors_published(key, counter, words):
    operands = [np.full(4, word, np.uint64) for word in (*key, *counter)]
    np.testing.assert_array_equal(apply("philox4x64", *operands, np.arange(4, 8, dtype=np.uint64)), words)


def test_philox_is_numpys():
    key, counter = (np.array(words, np.uint64) for words in ((3, 2**63 + 5), (2**64 - 1, 7, 0, 2**64 - 2)))
    source = np.random.Philox(key=key, counter=counter)
    counters = [np.full(8, word, np.uint64) for word in (3, 2**63 + 5, 0, 8, 0, 2**64 - 2)]
    counters[2][4:] = 1
    found = apply("philox4x64", *counters, np.arange(8, dtype=np.uint64))
    np.testing.assert_array_equal(found, source.random_raw(8))
