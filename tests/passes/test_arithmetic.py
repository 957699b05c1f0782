"""Each rule on its own: it applies, and under strict numerics every bit stays, on NaN, infinities and signed zeros."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from autofuse.ir import dtypes
from autofuse.ir.interpreter import interpret
from autofuse.passes.arithmetic import SimplifyArithmetic
from autofuse.passes.constant_folding import FoldConstants
from autofuse.passes.conversionrules import holds

FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
SIGNED = ("i8", "i32", "i64")
ALL = (*FLOATS, *INTEGERS)


def _unary(op, **attrs):
    return lambda s, x, y: s.emit(op, [x], **attrs)


def _number(op, number, left=False):
    def build(s, x, y):
        operands = [x, s.splat(number, x)]
        return s.emit(op, operands[::-1] if left else operands)

    return build


def _chain(*steps):
    def build(s, x, y):
        for op, number in steps:
            x = s.emit(op, [x]) if number is None else s.emit(op, [x, s.splat(number, x)])
        return x

    return build


def _of(function):
    return lambda s, x, y: function(lambda op, *v, **a: s.emit(op, v, **a), x, y)


# (name, dtypes, what is written, what is left of it)
STRICT = [
    ("x + -0.", FLOATS, _number("add", -0.0), []),
    ("-0. + x", FLOATS, _number("add", -0.0, left=True), []),
    ("x + 0", INTEGERS, _number("add", 0), []),
    ("x + -y", ALL, _of(lambda e, x, y: e("add", x, e("negate", y))), ["subtract"]),
    ("-x + y", ALL, _of(lambda e, x, y: e("add", e("negate", x), y)), ["subtract"]),
    ("x + 3 + 4", INTEGERS, _chain(("add", 3), ("add", 4)), ["add"]),
    ("x * 3 * 5", INTEGERS, _chain(("multiply", 3), ("multiply", 5)), ["multiply"]),
    ("x - 3 + 4", INTEGERS, _chain(("subtract", 3), ("add", 4)), ["add"]),
    ("x + 3 - 3", INTEGERS, _chain(("add", 3), ("subtract", 3)), []),
    ("bool sum", ("bool",), _of(lambda e, x, y: e("add", x, y)), ["or"]),
    ("bool product", ("bool",), _of(lambda e, x, y: e("multiply", x, y)), ["and"]),
    ("x - 0.", FLOATS, _number("subtract", 0.0), []),
    ("x - 0", INTEGERS, _number("subtract", 0), []),
    ("-0. - x", FLOATS, _number("subtract", -0.0, left=True), ["negate"]),
    ("0 - x", INTEGERS, _number("subtract", 0, left=True), ["negate"]),
    ("x - -y", ALL, _of(lambda e, x, y: e("subtract", x, e("negate", y))), ["add"]),
    ("x - x", INTEGERS, _of(lambda e, x, y: e("subtract", x, x)), []),
    ("x * 1", ALL, _number("multiply", 1), []),
    ("x * -1", (*FLOATS, *SIGNED), _number("multiply", -1), ["negate"]),
    ("x * 0", INTEGERS, _number("multiply", 0), []),
    ("-x * -y", ALL, _of(lambda e, x, y: e("multiply", e("negate", x), e("negate", y))), ["multiply"]),
    ("-x * 3", ALL, _chain(("negate", None), ("multiply", 3)), ["multiply"]),
    ("|x| * |x|", ALL, _of(lambda e, x, y: e("multiply", a := e("abs", x), a)), ["multiply"]),
    ("x * 2 * 4", FLOATS, _chain(("multiply", 2), ("multiply", 4)), ["multiply"]),
    ("x / 1", ALL, _number("divide", 1), []),
    ("x / -1", (*FLOATS, *SIGNED), _number("divide", -1), ["negate"]),
    ("x / 8", FLOATS, _number("divide", 8), ["multiply"]),
    ("x / 2**-100", ("f32", "f64"), _number("divide", 2.0**-100), ["multiply"]),
    ("-x / -y", FLOATS, _of(lambda e, x, y: e("divide", e("negate", x), e("negate", y))), ["divide"]),
    ("-x / 3", FLOATS, _chain(("negate", None), ("divide", 3)), ["divide"]),
    ("x % 1", INTEGERS, _number("remainder", 1), []),
    ("x % -1", SIGNED, _number("remainder", -1), []),
    ("x ** 0", ALL, _number("power", 0), []),
    ("x ** 1", (*FLOATS, *INTEGERS), _number("power", 1), []),
    ("x ** 2", ("f32", "f64", *INTEGERS), _number("power", 2), ["multiply"]),
    ("x ** 3", INTEGERS, _number("power", 3), ["multiply", "multiply"]),
    ("x ** -1", ("f32", "f64"), _number("power", -1), ["divide"]),
    ("x ** .5", ("f32", "f64"), _number("power", 0.5), ["power"]),
    ("--x", ALL, _chain(("negate", None), ("negate", None)), []),
    ("-(x * 3)", ALL, _chain(("multiply", 3), ("negate", None)), ["multiply"]),
    ("-(x - y)", INTEGERS, _of(lambda e, x, y: e("negate", e("subtract", x, y))), ["subtract"]),
    ("~~x", ("bool", *INTEGERS), _chain(("not", None), ("not", None)), []),
    ("~(x != y)", ALL, _of(lambda e, x, y: e("not", e("compare", x, y, direction="NE"))), ["compare"]),
    ("~(x < y)", INTEGERS, _of(lambda e, x, y: e("not", e("compare", x, y, direction="LT"))), ["compare"]),
    ("x & x", ("bool", *INTEGERS), _of(lambda e, x, y: e("and", x, x)), []),
    ("x | x", ("bool", *INTEGERS), _of(lambda e, x, y: e("or", x, x)), []),
    ("x ^ x", ("bool", *INTEGERS), _of(lambda e, x, y: e("xor", x, x)), []),
    ("x & ~x", ("bool", *INTEGERS), _of(lambda e, x, y: e("and", x, e("not", x))), []),
    ("~x | x", ("bool", *INTEGERS), _of(lambda e, x, y: e("or", e("not", x), x)), []),
    *[(f"x {op} 0", ("bool", *INTEGERS), _number(op, 0), []) for op in ("and", "or", "xor")],
    *[(f"x {op} -1", SIGNED, _number(op, -1), ["not"] if op == "xor" else []) for op in ("and", "or", "xor")],
    *[(f"x {op} true", ("bool",), _number(op, True), ["not"] if op == "xor" else []) for op in ("and", "or", "xor")],
    *[(f"{op} by 0", INTEGERS, _number(op, 0), []) for op in ("shift_left", "shift_right_logical")],
    ("arithmetic shift by 0", INTEGERS, _number("shift_right_arithmetic", 0), []),
    *[(f"{op} by 64", INTEGERS, _number(op, 64), []) for op in ("shift_left", "shift_right_logical")],
    ("0 << x", INTEGERS, _number("shift_left", 0, left=True), []),
    *[
        (f"x {d} x", ("bool", *INTEGERS), _of(lambda e, x, y, d=d: e("compare", x, x, direction=d)), [])
        for d in ("EQ", "NE", "LT", "LE", "GT", "GE")
    ],
    *[(f"x {d} x", FLOATS, _of(lambda e, x, y, d=d: e("compare", x, x, direction=d)), []) for d in ("LT", "GT")],
    *[
        (f"x {d} 0", ("u8", "u64"), lambda s, x, y, d=d: s.emit("compare", [x, s.splat(0, x)], direction=d), [])
        for d in ("LT", "GE")
    ],
    ("0 > x", ("u8",), lambda s, x, y: s.emit("compare", [s.splat(0, x), x], direction="GT"), []),
    ("b == true", ("bool",), lambda s, x, y: s.emit("compare", [x, s.splat(True, x)], direction="EQ"), []),
    ("b != true", ("bool",), lambda s, x, y: s.emit("compare", [x, s.splat(True, x)], direction="NE"), ["not"]),
    ("max(x, x)", ALL, _of(lambda e, x, y: e("maximum", x, x)), []),
    ("max(x, -inf)", FLOATS, _number("maximum", -np.inf), []),
    ("min(x, inf)", FLOATS, _number("minimum", np.inf, left=True), []),
    ("max(x, 0)", ("u8", "u32"), _number("maximum", 0), []),
    ("min(x, 0)", ("u8", "u32"), _number("minimum", 0), []),
    ("max(max(x, 1), 1)", ALL, _chain(("maximum", 1), ("maximum", 1)), ["maximum"]),
    ("max(max(x, 1), 2)", ALL, _chain(("maximum", 1), ("maximum", 2)), ["maximum"]),
    ("max(max(x, 2), 1)", ALL, _chain(("maximum", 2), ("maximum", 1)), ["maximum"]),
    ("min(min(x, 2), 1)", ALL, _chain(("minimum", 2), ("minimum", 1)), ["minimum"]),
    ("|-x|", (*FLOATS, *SIGNED), _chain(("negate", None), ("abs", None)), ["abs"]),
    ("||x||", (*FLOATS, *SIGNED), _chain(("abs", None), ("abs", None)), ["abs"]),
    ("|x| of unsigned", ("u8", "u64"), _chain(("abs", None)), []),
    ("|exp(x)|", FLOATS, _chain(("exp", None), ("abs", None)), ["exp"]),
    ("floor(ceil(x))", FLOATS, _chain(("ceil", None), ("floor", None)), ["ceil"]),
    ("round(floor(x))", FLOATS, _chain(("floor", None), ("round_nearest_even", None)), ["floor"]),
    ("convert to itself", ("f32",), _unary("convert", dtype=dtypes.F32), []),
    ("bitcast there and back", ("f32",), _of(lambda e, x, y: e(
        "bitcast_convert", e("bitcast_convert", x, dtype=dtypes.U32), dtype=dtypes.F32)), []),
    ("clamp(-inf, x, 1)", FLOATS, lambda s, x, y: s.emit(
        "clamp", [s.splat(-np.inf, x), x, s.splat(1, x)]), ["minimum"]),
    ("clamp(0, x, inf)", FLOATS, lambda s, x, y: s.emit(
        "clamp", [s.splat(0, x), x, s.splat(np.inf, x)]), ["maximum"]),
    ("clamp(clamp)", ALL, lambda s, x, y: s.emit(
        "clamp", [lo := s.splat(1, x), s.emit("clamp", [lo, x, hi := s.splat(2, x)]), hi]), ["clamp"]),
]  # fmt: skip


def _left(ops, graph):
    return [op for op in ops(graph) if op != "broadcast_in_dim"]


@pytest.mark.parametrize(
    ("build", "expected", "dtype"),
    [pytest.param(build, left, d, id=f"{name}-{d}") for name, names, build, left in STRICT for d in names],
)
def test_a_strict_rule_applies_and_keeps_every_bit(sketch, ops, assert_same, build, expected, dtype):
    x, y = sketch.arg(f"{dtype}[67]"), sketch.arg(f"{dtype}[67]", "y")
    with np.errstate(all="ignore"):
        graph = sketch.finish([build(sketch, x, y)])
    after = SimplifyArithmetic().apply(graph)
    assert _left(ops, after) == expected
    assert_same(graph, after)


# what strict numerics must not touch
KEPT = [
    ("x + 0.", FLOATS, _number("add", 0.0)),
    ("x - -0.", FLOATS, _number("subtract", -0.0)),
    ("0. - x", FLOATS, _number("subtract", 0.0, left=True)),
    ("x * 0.", FLOATS, _number("multiply", 0.0)),
    ("x - x", FLOATS, _of(lambda e, x, y: e("subtract", x, x))),
    ("x / 3", FLOATS, _number("divide", 3)),
    ("x / 0", FLOATS, _number("divide", 0)),
    ("x / 2**127", ("f32",), _number("divide", 2.0**127)),
    ("x * 3 * 5", FLOATS, _chain(("multiply", 3), ("multiply", 5))),
    ("x / 2 / 2", FLOATS, _chain(("multiply", 0.5), ("multiply", 0.5))),
    ("x + 3 + 4", FLOATS, _chain(("add", 3), ("add", 4))),
    ("x ** 2", ("f16", "bf16"), _number("power", 2)),
    ("x ** 3", FLOATS, _number("power", 3)),
    ("x == x", FLOATS, _of(lambda e, x, y: e("compare", x, x, direction="EQ"))),
    ("~(x < y)", FLOATS, _of(lambda e, x, y: e("not", e("compare", x, y, direction="LT")))),
    ("max(x, inf)", FLOATS, _number("maximum", np.inf)),
    ("max(nan)", FLOATS, _chain(("maximum", np.nan), ("maximum", 1))),
    ("x / 2 of integers", INTEGERS, _number("divide", 2)),
    ("-(x - y)", FLOATS, _of(lambda e, x, y: e("negate", e("subtract", x, y)))),
    ("log(1 + x)", FLOATS, _chain(("add", 1), ("log", None))),
]


@pytest.mark.parametrize(
    ("build", "dtype"), [pytest.param(build, d, id=f"{name}-{d}") for name, names, build in KEPT for d in names]
)
def test_strict_leaves_what_could_change_a_bit(sketch, build, dtype):
    x, y = sketch.arg(f"{dtype}[5]"), sketch.arg(f"{dtype}[5]", "y")
    with np.errstate(all="ignore"):
        graph = sketch.finish([build(sketch, x, y)])
    assert SimplifyArithmetic().apply(graph) is graph


FAST = [
    ("x + 0.", _number("add", 0.0), []),
    ("0. - x", _number("subtract", 0.0, left=True), ["negate"]),
    ("x - x", _of(lambda e, x, y: e("subtract", x, x)), []),
    ("x * 0.", _number("multiply", 0.0), []),
    ("x + 3 + 4", _chain(("add", 3), ("add", 4)), ["add"]),
    ("x * 3 - 4 - 5", _chain(("multiply", 3), ("subtract", 4), ("subtract", 5)), ["multiply", "add"]),
    ("x / 3 / 5", _chain(("divide", 3), ("divide", 5)), ["multiply"]),
    ("x / sqrt(y)", _of(lambda e, x, y: e("divide", x, e("sqrt", e("abs", y)))), ["abs", "rsqrt", "multiply"]),
    ("x ** 4", _number("power", 4), ["multiply", "multiply"]),
    ("|x| ** .5", _chain(("abs", None), ("power", 0.5)), ["abs", "sqrt"]),
    ("log(1 + |x|)", _chain(("abs", None), ("add", 1), ("log", None)), ["abs", "log1p"]),
    ("exp(x) - 1", _chain(("exp", None), ("subtract", 1)), ["expm1"]),
]


@pytest.mark.parametrize(("build", "expected"), [pytest.param(b, e, id=name) for name, b, e in FAST])
def test_fast_rules_are_near_on_ordinary_numbers(sketch, ops, build, expected):
    x, y = sketch.arg("f64[67]"), sketch.arg("f64[67]", "y")
    graph = sketch.finish([build(sketch, x, y)])
    after = SimplifyArithmetic("fast").apply(graph)
    assert _left(ops, after) == expected
    arrays = [np.random.default_rng(seed).standard_normal(67) for seed in (1, 2)]
    # a few roundings of f64 apart, absolute near zero
    np.testing.assert_allclose(interpret(after, *arrays)[0], interpret(graph, *arrays)[0], rtol=1e-13, atol=1e-13)


CONVERTIBLE = [d for d in dtypes.ALL if d.bits <= 32 or d.is_float]


@pytest.mark.parametrize("between", CONVERTIBLE, ids=str)
def test_conversions_that_merge_keep_every_bit(sketch, ops, assert_same, between):
    outputs = []
    for source, target in itertools.product(CONVERTIBLE, repeat=2):
        x = sketch.arg(f"{source}[97]")
        outputs.append(sketch.emit("convert", [sketch.emit("convert", [x], dtype=between)], dtype=target))
    graph = sketch.finish(outputs)
    after = SimplifyArithmetic().apply(graph)
    assert ops(after).count("convert") < ops(graph).count("convert")
    assert_same(graph, after)


def test_a_dtype_holds_another_only_if_every_number_survives():
    assert holds(dtypes.I16, dtypes.F32)
    assert holds(dtypes.U8, dtypes.BF16)
    assert holds(dtypes.BOOL, dtypes.F16)
    assert not holds(dtypes.I32, dtypes.F32)
    assert not holds(dtypes.BF16, dtypes.F16)
    assert not holds(dtypes.I8, dtypes.U32)
    assert not holds(dtypes.U64, dtypes.I64)


def test_a_converted_iota_counts_in_the_other_dtype(sketch, ops, assert_same):
    counted = sketch.emit("iota", shape=(300, 2), dtype=dtypes.I64, iota_dimension=0)
    graph = sketch.finish([sketch.emit("convert", [counted], dtype=d) for d in (dtypes.F16, dtypes.BF16, dtypes.I8)])
    after = SimplifyArithmetic().apply(graph)
    assert ops(after) == ["iota"] * 3
    assert_same(graph, after)


def test_an_iota_that_wraps_is_converted_as_it_is(sketch):
    counted = sketch.emit("iota", shape=(300,), dtype=dtypes.I8, iota_dimension=0)
    graph = sketch.finish([sketch.emit("convert", [counted], dtype=dtypes.F32)])
    assert SimplifyArithmetic().apply(graph) is graph


@pytest.mark.parametrize("dtype", ["f32", "i32", "bool"])
def test_choices_that_are_known_are_made(sketch, ops, assert_same, dtype):
    x, y, p = sketch.arg(f"{dtype}[9]"), sketch.arg(f"{dtype}[9]", "y"), sketch.arg("bool[9]", "p")
    true, false = sketch.splat(True, p), sketch.splat(False, p)
    inverse = sketch.emit("not", [p])
    graph = sketch.finish(
        [
            sketch.emit("select", [true, x, y]),
            sketch.emit("select", [false, x, y]),
            sketch.emit("select", [p, x, x]),
            sketch.emit("select", [p, sketch.splat(1, x), sketch.splat(1, y)]),
            sketch.emit("select", [p, true, false]),
            sketch.emit("select", [inverse, x, y], name="swapped"),
            sketch.emit("select", [p, sketch.emit("select", [p, x, y]), y], name="nested"),
            sketch.emit("select", [p, y, sketch.emit("select", [p, x, y])], name="other"),
        ]
    )
    after = SimplifyArithmetic().apply(graph)
    assert _left(ops, after) == ["select", "select"]  # swapped and nested; the other has equal branches
    assert [value.name for value in after.outputs] == [
        "x",
        "y",
        "x",
        after.outputs[3].name,
        "p",
        "swapped",
        "nested",
        "y",
    ]
    assert_same(graph, after)


def test_dropout_in_inference_disappears(sketch, ops):
    x = sketch.arg("f32[8,8]")
    mask = sketch.emit("compare", [sketch.splat(0.3, x), sketch.splat(0.0, x)], direction="GE")
    kept = sketch.emit("convert", [mask], dtype=dtypes.F32)
    scaled = sketch.emit("divide", [sketch.emit("multiply", [x, kept]), sketch.splat(1.0, x)])
    graph = FoldConstants().apply(sketch.finish([sketch.emit("select", [mask, scaled, sketch.splat(0.0, x)])]))
    after = SimplifyArithmetic().apply(graph)
    assert after.outputs == (x,)
