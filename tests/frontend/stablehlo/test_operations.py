"""Every operation, one module each, beside NumPy and beside StableHLO's own interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import TraceError
from tests.fixtures.stablehlomodules import module, reference

pytest.importorskip("jaxlib.mlir.ir", reason="jaxlib reads modules: pip install 'autofuse[jax]'")

F = np.array([[-2.5, -1.0, -0.0, 0.0], [0.5, 1.5, np.inf, 3.25], [np.nan, -np.inf, 1e-40, 2.5]], np.float32)
G = np.array([[2.0, -1.0, 0.0, -0.0], [np.nan, 1.5, -3.0, 0.5], [1.0, 2.0, np.inf, -7.5]], np.float32)
SMALL = np.array([[-0.9, -0.25, 0.0, 0.5], [0.75, 0.1, 0.99, -0.6], [0.3, 0.2, -0.05, 0.4]], np.float32)
I = np.array([[-7, 3, 0, -(2**31)], [2**31 - 1, 5, -5, 9], [1, -1, 33, 4]], np.int32)  # noqa: E741
J = np.array([[2, 0, 3, -1], [-1, -3, 5, 2], [31, 32, -1, 1]], np.int32)
U = np.abs(I.astype(np.int64)).astype(np.uint32)
B = F > 0
FT, IT, UT, BT = "tensor<3x4xf32>", "tensor<3x4xi32>", "tensor<3x4xui32>", "tensor<3x4xi1>"


def _erf(x: Any) -> Any:
    from scipy import special

    return special.erf(x)


@dataclass(frozen=True)
class Case:
    """One module: its body, arguments and results, and NumPy's answer where it has one."""

    title: str
    body: str
    arguments: Sequence[Any]
    results: str
    expected: Callable[..., Any] | None = None
    interpreted: bool = True
    """Whether StableHLO's interpreter has the operation, and means the same by it."""


def unary(name: str, x: Any, type_: str, expected: Callable[..., Any] | None = None) -> Case:
    return Case(name, f"%0 = stablehlo.{name} %a : {type_}\nreturn %0 : {type_}", (x,), type_, expected)


def binary(name: str, x: Any, y: Any, type_: str, expected: Callable[..., Any] | None = None) -> Case:
    return Case(name, f"%0 = stablehlo.{name} %a, %b : {type_}\nreturn %0 : {type_}", (x, y), type_, expected)


def call(title: str, line: str, arguments: Sequence[Any], result: str, expected: Any = None, **how: Any) -> Case:
    """One operation with one result."""
    return Case(title, f"%0 = {line}\nreturn %0 : {result}", arguments, result, expected, **how)


CASES = [
    *(
        unary(name, F, FT, function)
        for name, function in (
            *(("abs", np.abs), ("ceil", np.ceil), ("floor", np.floor), ("negate", np.negative), ("sign", np.sign)),
            *(("sqrt", np.sqrt), ("exponential", np.exp), ("tanh", np.tanh), ("cbrt", np.cbrt)),
            *(("round_nearest_even", np.round), ("exponential_minus_one", np.expm1), ("log", np.log)),
            *(("log_plus_one", np.log1p), ("sine", np.sin), ("cosine", np.cos), ("rsqrt", lambda x: 1 / np.sqrt(x))),
            *(("logistic", lambda x: 1 / (1 + np.exp(-x))), ("round_nearest_afz", None), ("tan", np.tan)),
        )
    ),
    *(
        unary(name, I, IT, function)
        for name, function in (
            *(("abs", np.abs), ("negate", np.negative), ("not", np.invert), ("sign", np.sign), ("popcnt", None)),
            ("count_leading_zeros", None),
        )
    ),
    unary("not", B, BT, np.invert),
    *(
        binary(name, F, G, FT, function)
        for name, function in (
            *(("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply), ("divide", np.divide)),
            *(("maximum", np.maximum), ("minimum", np.minimum), ("remainder", np.fmod), ("atan2", np.arctan2)),
            ("power", np.power),
        )
    ),
    *(
        binary(name, I, J, IT, function)
        for name, function in (
            *(("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply), ("maximum", np.maximum)),
            *(("minimum", np.minimum), ("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)),
        )
    ),
    *(
        binary(name, I, np.maximum(np.abs(J), 1), IT)
        for name in ("divide", "remainder", "shift_left", "shift_right_arithmetic", "shift_right_logical")
    ),
    *(binary(name, B, G > 0, BT, np.logical_and if name == "and" else None) for name in ("and", "or", "xor")),
    call("is_finite", f"stablehlo.is_finite %a : ({FT}) -> {BT}", (F,), BT, np.isfinite),
    *(
        call(f"compare {way}", f"stablehlo.compare {way}, %a, %b : ({FT}, {FT}) -> {BT}", (F, G), BT, function)
        for way, function in (("EQ", np.equal), ("NE", np.not_equal), ("LT", np.less), ("GE", np.greater_equal))
    ),
    call(
        "compare total order",
        f"stablehlo.compare LT, %a, %b, TOTALORDER : ({FT}, {FT}) -> {BT}",
        (F, G),
        BT,
        interpreted=False,
        expected=lambda x, y: _total(x) < _total(y),
    ),
    call(
        "compare unsigned",
        f"stablehlo.compare GT, %a, %b, UNSIGNED : ({UT}, {UT}) -> {BT}",
        (U, U[::-1].copy()),
        BT,
        np.greater,
    ),
    call("select", f"stablehlo.select %a, %b, %c : {BT}, {FT}", (B, F, G), FT, np.where),
    call(
        "select by a scalar",
        f"stablehlo.select %a, %b, %c : tensor<i1>, {FT}",
        (np.array(True), F, G),
        FT,
        lambda p, x, y: x,
    ),
    call(
        "clamp by scalars",
        f"stablehlo.clamp %a, %b, %c : (tensor<f32>, {FT}, tensor<f32>) -> {FT}",
        (np.float32(-1), F, np.float32(2)),
        FT,
        lambda low, x, high: np.minimum(np.maximum(x, low), high),
    ),
    call(
        "convert f32 to i32", f"stablehlo.convert %a : ({FT}) -> {IT}", (SMALL * 9,), IT, lambda x: x.astype(np.int32)
    ),
    call("convert i32 to f32", f"stablehlo.convert %a : ({IT}) -> {FT}", (I,), FT, lambda x: x.astype(np.float32)),
    call("convert to bool", f"stablehlo.convert %a : ({IT}) -> {BT}", (I,), BT, lambda x: x != 0),
    call("convert to bf16", f"stablehlo.convert %a : ({FT}) -> tensor<3x4xbf16>", (SMALL,), "tensor<3x4xbf16>"),
    call("bitcast", f"stablehlo.bitcast_convert %a : ({FT}) -> {UT}", (F,), UT, lambda x: x.view(np.uint32)),
    call(
        "bitcast to bytes",
        f"stablehlo.bitcast_convert %a : ({FT}) -> tensor<3x4x4xui8>",
        (F,),
        "tensor<3x4x4xui8>",
        lambda x: x.view(np.uint8).reshape(3, 4, 4),
    ),
    call(
        "bitcast from bytes",
        "stablehlo.bitcast_convert %a : (tensor<3x4xui8>) -> tensor<3xf32>",
        (I.astype(np.uint8),),
        "tensor<3xf32>",
        lambda x: x.view(np.float32).reshape(3),
    ),
    *(
        call(f"reduce_precision {e} {m}", f"stablehlo.reduce_precision %a, format = e{e}m{m} : {FT}", (x,), FT)
        for e, m in ((5, 10), (8, 7), (3, 2), (8, 23), (5, 23), (8, 0))
        for x in (F, np.float32([[1e30, 65520, 65519, 6e-8], [2e-5, 3e-8, -1e-7, -7e4], [0.3, 1.9999999, 7.6, -0.1]]))
    ),
    call("erf", f"chlo.erf %a : {FT} -> {FT}", (F,), FT, _erf, interpreted=False),
    call("square", f"chlo.square %a : {FT} -> {FT}", (F,), FT, np.square, interpreted=False),
    call("CHLO without a rule", f"chlo.sinh %a : {FT} -> {FT}", (SMALL,), FT, np.sinh, interpreted=False),
    call(
        "iota",
        "stablehlo.iota dim = 1 : tensor<3x4xf32>",
        (),
        FT,
        lambda: np.broadcast_to(np.float32([0, 1, 2, 3]), (3, 4)),
    ),
    call(
        "broadcast_in_dim",
        "stablehlo.broadcast_in_dim %a, dims = [2, 0] : (tensor<3x1xf32>) -> tensor<4x2x3xf32>",
        (SMALL[:, :1].copy(),),
        "tensor<4x2x3xf32>",
    ),
    call(
        "transpose",
        f"stablehlo.transpose %a, dims = [1, 0] : ({FT}) -> tensor<4x3xf32>",
        (F,),
        "tensor<4x3xf32>",
        np.transpose,
    ),
    call(
        "reshape",
        f"stablehlo.reshape %a : ({FT}) -> tensor<2x6xf32>",
        (F,),
        "tensor<2x6xf32>",
        lambda x: x.reshape(2, 6),
    ),
    call("reverse", f"stablehlo.reverse %a, dims = [0, 1] : {FT}", (F,), FT, lambda x: x[::-1, ::-1]),
    call(
        "slice",
        f"stablehlo.slice %a [0:3:2, 1:4:2] : ({FT}) -> tensor<2x2xf32>",
        (F,),
        "tensor<2x2xf32>",
        lambda x: x[0:3:2, 1:4:2],
    ),
    call(
        "pad",
        f"stablehlo.pad %a, %b, low = [1, -1], high = [0, 2], interior = [1, 0] :"
        f" ({FT}, tensor<f32>) -> tensor<6x5xf32>",
        (F, np.float32(9)),
        "tensor<6x5xf32>",
    ),
    call(
        "concatenate",
        f"stablehlo.concatenate %a, %b, dim = 0 : ({FT}, {FT}) -> tensor<6x4xf32>",
        (F, G),
        "tensor<6x4xf32>",
        lambda x, y: np.concatenate([x, y]),
    ),
    call(
        "dynamic_slice",
        f"stablehlo.dynamic_slice %a, %b, %c, sizes = [2, 3] : ({FT}, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>",
        (F, np.int32(7), np.int32(-1)),
        "tensor<2x3xf32>",
        lambda x, i, j: x[1:3, 0:3],
    ),
    call(
        "dynamic_update_slice",
        f"stablehlo.dynamic_update_slice %a, %b, %c, %d : ({FT}, tensor<2x2xf32>, tensor<i32>, tensor<i32>) -> {FT}",
        (F, G[:2, :2].copy(), np.int32(1), np.int32(9)),
        FT,
    ),
    call(
        "dot_general",
        "stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1] :"
        " (tensor<2x3x2xf32>, tensor<2x2x4xf32>) -> tensor<2x3x4xf32>",
        (SMALL.reshape(2, 3, 2), np.arange(16, dtype=np.float32).reshape(2, 2, 4)),
        "tensor<2x3x4xf32>",
        np.matmul,
    ),
    call(
        "dot_general of mixed types",
        "stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] :"
        " (tensor<3x4xi8>, tensor<4x2xi8>) -> tensor<3x2xi32>",
        (np.full((3, 4), 100, np.int8), np.full((4, 2), -100, np.int8)),
        "tensor<3x2xi32>",
        lambda x, y: x.astype(np.int32) @ y.astype(np.int32),
    ),
    call(
        "dot",
        "stablehlo.dot %a, %b : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3xf32>",
        (SMALL, np.float32([1, 2, 3, 4])),
        "tensor<3xf32>",
        np.matmul,
        interpreted=False,
    ),
    call("optimization_barrier", f"stablehlo.optimization_barrier %a : {FT}", (F,), FT, lambda x: x),
    call(
        "replica_id", "stablehlo.replica_id : tensor<ui32>", (), "tensor<ui32>", lambda: np.uint32(0), interpreted=False
    ),
    call(
        "get_dimension_size",
        f"stablehlo.get_dimension_size %a, dim = 1 : ({FT}) -> tensor<i32>",
        (F,),
        "tensor<i32>",
        lambda x: np.int32(4),
    ),
    call(
        "custom_call @Sharding",
        f"stablehlo.custom_call @Sharding(%a) : ({FT}) -> {FT}",
        (F,),
        FT,
        lambda x: x,
        interpreted=False,
    ),
]


def _total(x: Any) -> Any:
    bits = x.view(np.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{number}-{case.title.replace(' ', '_')}" for number, case in enumerate(CASES)]
)
def test_an_operation_means_what_the_specification_says(case):
    arguments = [np.asarray(x) for x in case.arguments]
    text = module(case.body, arguments, case.results)
    fn = af.from_stablehlo(text)
    found = np.asarray(fn(*arguments))
    with np.errstate(all="ignore"):
        if case.expected is not None:
            _same(found, np.asarray(case.expected(*arguments)))
        if case.interpreted:
            (theirs,) = reference(text, arguments)
            _same(found, theirs)


def _same(found: Any, expected: Any) -> None:
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=1e-6, atol=1e-12)


CONSTANT = "stablehlo.constant dense<{}> : tensor<{}xi64>"
GATHER = "#stablehlo.gather<offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1>"
CONVOLVED = "tensor<1x3x4x1xf32>"


@pytest.mark.parametrize(
    ("body", "result", "expected"),
    [
        (
            f"%c = {CONSTANT.format(1, 2)}\n%z = {CONSTANT.format(0, 2)}"
            "\n%p = stablehlo.constant dense<7.0> : tensor<f32>"
            f"\n%0 = stablehlo.dynamic_pad %a, %p, %c, %c, %z :"
            f" ({FT}, tensor<f32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<5x6xf32>",
            "tensor<5x6xf32>",
            lambda x: np.pad(x, 1, constant_values=7),
        ),
        (
            f"%c = {CONSTANT.format(1, 2)}\n%e = {CONSTANT.format(3, 2)}"
            f"\n%0 = stablehlo.real_dynamic_slice %a, %c, %e, %c :"
            f" ({FT}, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<2x2xf32>",
            "tensor<2x2xf32>",
            lambda x: x[1:3, 1:3],
        ),
        (
            f"%s = {CONSTANT.format('[1, 4]', 2)}\n%i = stablehlo.constant dense<[[2], [0]]> : tensor<2x1xi64>"
            f'\n%0 = "stablehlo.dynamic_gather"(%a, %i, %s) {{dimension_numbers = {GATHER}}}'
            f" : ({FT}, tensor<2x1xi64>, tensor<2xi64>) -> tensor<2x4xf32>",
            "tensor<2x4xf32>",
            lambda x: x[[2, 0]],
        ),
        (
            f"%p = {CONSTANT.format(1, '2x2')}\n%k = stablehlo.constant dense<1.0> : tensor<3x3x1x1xf32>"
            f"\n%b = stablehlo.reshape %a : ({FT}) -> {CONVOLVED}"
            '\n%c = "stablehlo.dynamic_conv"(%b, %k, %p) {dimension_numbers ='
            " #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64,"
            f" batch_group_count = 1 : i64}} : ({CONVOLVED}, tensor<3x3x1x1xf32>, tensor<2x2xi64>) -> {CONVOLVED}"
            f"\n%0 = stablehlo.reshape %c : ({CONVOLVED}) -> {FT}",
            FT,
            lambda x: np.lib.stride_tricks.sliding_window_view(np.pad(x, 1), (3, 3)).sum((2, 3)),
        ),
    ],
    ids=["pad", "slice", "gather", "convolution"],
)
def test_shapes_that_are_constant_operands(body, result, expected):
    text = module(f"{body}\nreturn %0 : {result}", [SMALL], result)
    _same(np.asarray(af.from_stablehlo(text)(SMALL)), expected(SMALL))


def test_an_operation_with_a_rule_is_kept_where_others_are_written_as_stablehlo():
    body = f"%0 = chlo.erf %a : {FT} -> {FT}\n%1 = chlo.sinh %0 : {FT} -> {FT}\nreturn %1 : {FT}"
    fn = af.from_stablehlo(module(body, [SMALL], FT))
    assert "erf" in {node.op for node in af.trace(fn, *fn.example_specs).nodes}
    np.testing.assert_allclose(fn(SMALL), np.sinh(_erf(SMALL)), rtol=1e-6)


def test_batch_normalisation():
    x, grad = np.arange(24, dtype=np.float32).reshape(4, 3, 2) ** 1.5, SMALL.ravel()[:12].repeat(2).reshape(4, 3, 2)
    scale, offset = np.float32([1, 2, -1]), np.float32([0.5, 0, 3])
    big, small = "tensor<4x3x2xf32>", "tensor<3xf32>"
    how = "<{epsilon = 1.0e-03 : f32, feature_index = 1 : i64}>"
    training = f"""
    %0:3 = "stablehlo.batch_norm_training"(%a, %b, %c) {how} : ({big}, {small}, {small}) -> ({big}, {small}, {small})
    %1 = "stablehlo.batch_norm_inference"(%a, %b, %c, %0#1, %0#2) {how} :
      ({big}, {small}, {small}, {small}, {small}) -> {big}
    %2:3 = "stablehlo.batch_norm_grad"(%a, %b, %0#1, %0#2, %d) {how} :
      ({big}, {small}, {small}, {small}, {big}) -> ({big}, {small}, {small})
    return %0#0, %0#1, %0#2, %1, %2#0, %2#1, %2#2 : {big}, {small}, {small}, {big}, {big}, {small}, {small}"""
    results = f"({big}, {small}, {small}, {big}, {big}, {small}, {small})"
    fn = af.from_stablehlo(module(training, [x, scale, offset, grad], results))
    found = fn(x, scale, offset, grad)
    mean, variance = x.mean((0, 2)), x.var((0, 2))

    def wide(vector):
        return vector[:, None]

    unit = (x - wide(mean)) / np.sqrt(wide(variance) + 1e-3)
    normal = unit * wide(scale) + wide(offset)
    grad_scale, grad_offset = (grad * unit).sum((0, 2)), grad.sum((0, 2))
    inner = 8 * grad - wide(grad_offset) - unit * wide(grad_scale)
    grad_x = wide(scale) / np.sqrt(wide(variance) + 1e-3) / 8 * inner
    for ours, expected in zip(found, (normal, mean, variance, normal, grad_x, grad_scale, grad_offset), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "steps", "first"),
    [  # what XLA:CPU draws
        ("4", 2, [321188122, 719450110, 4126047222, 1525795385]),
        ("3x5", 9, [321188122, 719450110, 4126047222, 1525795385, 2886374414, 2437281700, 846035953, 1969378478]),
    ],
)
def test_rng_bit_generator_draws_xlas_numbers(shape, steps, first):
    state = np.array([0x123456789ABCDEF0, 0xFEDCBA987654321], np.uint64)
    types = f"tensor<2xui64>, tensor<{shape}xui32>"
    body = f"%0, %1 = stablehlo.rng_bit_generator %a, algorithm = THREE_FRY : (tensor<2xui64>) -> ({types})"
    fn = af.from_stablehlo(module(f"{body}\nreturn %0, %1 : {types}", [state], f"({types})"))
    after, bits = fn(state)
    np.testing.assert_array_equal(after, state + np.array([0, steps], np.uint64))
    np.testing.assert_array_equal(bits.ravel()[: len(first)], np.array(first, np.uint32))


@pytest.mark.parametrize("algorithm", ["DEFAULT", "PHILOX"])
def test_other_generators_are_refused(algorithm):
    """XLA's default is another on each device; jax.random draws by it from keys of `rbg`."""
    types = "tensor<2xui64>, tensor<4xui32>"
    body = f"%0, %1 = stablehlo.rng_bit_generator %a, algorithm = {algorithm} : (tensor<2xui64>) -> ({types})"
    text = module(f"{body}\nreturn %0, %1 : {types}", [np.zeros(2, np.uint64)], f"({types})")
    with pytest.raises(TraceError, match=rf"draws by {algorithm}.*THREE_FRY from u64\[2\] is known"):
        af.from_stablehlo(text)
