"""Every op of the table as a kernel of its own, in every dtype it takes, against the interpreter.

Elementwise ops see special values: zeros of both signs, subnormals, infinities, NaN, the ends of the integers.
"""

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.dtypes import BOOL, I32, I64
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.oprecord import Role
from autofuse.ir.ops import randombits
from autofuse.ir.optable import all_ops
from autofuse.ir.types import TensorType
from autofuse.targets.cpu.executable import build_executable
from autofuse.testing.fusions import LIMITS, run_executable
from autofuse.testing.partitions import unfused_plan

ELEMENTWISE = [op.name for op in all_ops() if op.role is Role.ELEMENTWISE]
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")
ULPS = {dtypes.F64: 16, dtypes.F32: 16, dtypes.F16: 2, dtypes.BF16: 2}
"""Units of relative deviation that transcendental functions may differ by: 4 ulp on either side in f32 and f64, and a
rounding that goes the other way in 16 bits."""
EPSILON = {dtypes.F64: 2.0**-52, dtypes.F32: 2.0**-23, dtypes.F16: 2.0**-10, dtypes.BF16: 2.0**-7}
LEAST = {dtypes.F64: 2.0**-1022, dtypes.F32: 2.0**-126, dtypes.F16: 2.0**-14, dtypes.BF16: 2.0**-126}
"""The least normal number: below it, deviations are absolute."""


def special(dtype, rng, count=133):
    """Values that ops trip over, then ordinary ones; a length that no vector divides."""
    if dtype.kind == "bool":
        return rng.random(count) < 0.5
    if dtype.is_float:
        least = LEAST[dtype]
        edges = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5, np.inf, -np.inf, np.nan, least, -least, least / 4, 1e4, -77.7]
        body = rng.standard_normal(count - len(edges)) * rng.choice([0.01, 1, 30], count - len(edges))
    else:
        limits = np.iinfo(dtype.numpy)
        edges = [0, 1, 2, limits.max, limits.min, limits.max - 1, limits.min + 1, 7, *range(limits.bits - 2, 40)]
        body = rng.integers(max(limits.min, -100), min(limits.max, 100), max(count - len(edges), 0))
    with np.errstate(over="ignore"):  # 16 bits hold fewer magnitudes
        mixed = np.concatenate([np.array(edges, dtype.numpy), body.astype(dtype.numpy)])
    return rng.permutation(mixed)[:count]


def same(name, found, right):
    assert found.dtype == right.dtype, name
    assert found.shape == right.shape, name
    dtype = dtypes.from_numpy(right.dtype)
    if not dtype.is_float:
        np.testing.assert_array_equal(found, right, err_msg=name)
        return
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        a, b = found.astype(np.float64), right.astype(np.float64)
    allowed = ULPS[dtype] * EPSILON[dtype]
    np.testing.assert_allclose(a, b, rtol=allowed, atol=allowed * LEAST[dtype], err_msg=name)
    zero = b == 0
    exact = zero & (a == 0)
    np.testing.assert_array_equal(np.signbit(a[exact]), np.signbit(b[exact]), err_msg=f"{name}: sign of zero")


def check_each(build, outputs, arrays):
    """Every node of the graph as a kernel, all in one plan."""
    graph = build.finish(outputs)
    plan = unfused_plan(graph)
    assert len(plan.kernels) >= len(outputs)
    results = run_executable(build_executable(plan, LIMITS), arrays)
    with np.errstate(all="ignore"):
        expected = interpret(graph, *arrays)
    for value, found, right in zip(outputs, results, expected, strict=True):
        same(value.name, found, right)


def variants(op, dtype):
    """Attributes to try an elementwise op with."""
    match op:
        case "compare":
            return [{"direction": direction} for direction in DIRECTIONS]
        case "convert":
            return [{"dtype": other} for other in dtypes.ALL if other != dtype]
        case "bitcast_convert":
            return [{"dtype": other} for other in dtypes.ALL if other.bits == dtype.bits and other != dtype]
        case "threefry2x32":
            return [{"word": word} for word in map(str.upper, randombits.OPCODES)]
        case _:
            return [{}]


def operands(op, pred, *values):
    arity = next(entry.arity for entry in all_ops() if entry.name == op)
    if op == "select":
        return [pred, *values[:2]]
    return list(values[:arity])


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_elementwise_op(dtype):
    rng = np.random.default_rng(7)
    columns = [special(dtype, rng) for _ in range(7)]
    build = GraphBuilder("elementwise")
    pred = build.input(TensorType(columns[0].shape, BOOL), "pred")
    values = [
        build.input(TensorType(column.shape, dtype), name) for name, column in zip("xyzwuvt", columns, strict=True)
    ]
    outputs = []
    for op in ELEMENTWISE:
        for attrs in variants(op, dtype):
            try:
                name = "_".join([op, *map(str, attrs.values())])
                outputs.append(build.emit(op, operands(op, pred, *values), name=name, **attrs))
            except GraphError:
                continue  # the op does not take the dtype
    assert len(outputs) > (15 if dtype.kind != "bool" else 8)
    check_each(build, outputs, [rng.random(columns[0].shape) < 0.5, *columns])


WINDOW = {
    "window_dimensions": (2, 3),
    "window_strides": (1, 2),
    "base_dilations": (1, 1),
    "window_dilations": (2, 1),
    "padding": ((0, 0), (0, 0)),
}
LONG_WINDOW = {key: value[:1] for key, value in WINDOW.items()} | {"window_dimensions": (140,)}
ROWS = {
    "offset_dims": (1,),
    "collapsed_slice_dims": (0,),
    "operand_batching_dims": (),
    "start_indices_batching_dims": (),
    "start_index_map": (0,),
    "index_vector_dim": 1,
    "slice_sizes": (1, 5),
}
SCATTERED = {
    "update_window_dims": (1,),
    "inserted_window_dims": (0,),
    "input_batching_dims": (),
    "scatter_indices_batching_dims": (),
    "scatter_dims_to_operand_dims": (0,),
    "index_vector_dim": 1,
}
PLAIN_DOT = {"lhs_batching_dimensions": (), "rhs_batching_dimensions": ()}
CONVOLUTION = {
    "window_strides": (1,),
    "padding": ((1, 1),),
    "lhs_dilation": (1,),
    "rhs_dilation": (1,),
    "input_batch_dimension": 0,
    "input_feature_dimension": 1,
    "input_spatial_dimensions": (2,),
    "kernel_output_feature_dimension": 0,
    "kernel_input_feature_dimension": 1,
    "kernel_spatial_dimensions": (2,),
    "output_batch_dimension": 0,
    "output_feature_dimension": 1,
    "output_spatial_dimensions": (2,),
    "batch_group_count": 1,
}
PAD = {"edge_padding_low": (1, -1), "edge_padding_high": (0, 2), "interior_padding": (1, 0)}

X = (4, 5)
INDEX = "index"
"""Stands for the shape of an i32 operand: two rows to take or write, or a start."""

CASES = {
    "argmax": [([X], {"dimension": 1, "dtype": I32}), ([X], {"dimension": 0, "dtype": I64})],
    "argmin": [([X], {"dimension": 1, "dtype": I32})],
    "broadcast_in_dim": [([X], {"shape": (3, 4, 2, 5), "broadcast_dimensions": (1, 3)})],
    "concatenate": [([X, (2, 5)], {"dimension": 0}), ([X, X], {"dimension": 1}), ([X], {"dimension": 0})],
    "convolution": [
        ([(2, 4, 6), (4, 4, 3)], CONVOLUTION | {"feature_group_count": 1}),
        ([(2, 4, 6), (4, 2, 3)], CONVOLUTION | {"feature_group_count": 2}),
    ],
    "cumulative": [
        ([X], {"dimension": 1, "combiner": combiner, "reverse": reverse})
        for combiner in ("add", "multiply", "minimum", "maximum")
        for reverse in (False, True)
    ],
    "dot_general": [
        ([X, (5, 3)], PLAIN_DOT | {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}),
        ([X, X], PLAIN_DOT | {"lhs_contracting_dimensions": (0, 1), "rhs_contracting_dimensions": (0, 1)}),
    ],
    "dynamic_slice": [([X, (INDEX,), (INDEX,)], {"slice_sizes": (2, 3)})],
    "dynamic_update_slice": [([X, (2, 2), (INDEX,), (INDEX,)], {})],
    "gather": [([X, (INDEX, 2)], ROWS)],
    "optimization_barrier": [([X], {})],
    "pad": [([X, ()], PAD)],
    "reduce": [
        ([X], {"dimensions": dimensions, "combiner": combiner})
        for combiner in ("add", "multiply", "minimum", "maximum", "and", "or")
        for dimensions in ((0,), (1,), (0, 1), ())
    ],
    "reduce_window": [
        *(([X], WINDOW | {"combiner": combiner}) for combiner in ("add", "minimum", "maximum")),
        ([(300,)], LONG_WINDOW | {"combiner": "add"}),
    ],
    "reshape": [([X], {"shape": (2, 10)}), ([X], {"shape": (20,)}), ([X], {"shape": X})],
    "reverse": [([X], {"dimensions": (1,)}), ([X], {"dimensions": (0, 1)})],
    "scatter": [
        ([X, (INDEX, 2), (2, 5)], SCATTERED | {"combiner": combiner}) for combiner in ("set", "add", "maximum")
    ],
    "slice": [([X], {"start_indices": (1, 0), "limit_indices": (4, 5), "strides": (2, 3)})],
    "sort": [
        ([X], {"dimension": 1, "descending": False, "stable": True}),
        ([X], {"dimension": 0, "descending": True, "stable": True}),
    ],
    "transpose": [([X], {"permutation": (1, 0)})],
}


def moderate(dtype, shape, rng):
    """Small whole numbers: sums and products of them are exact in every order."""
    if dtype.kind == "bool":
        return rng.random(shape) < 0.5
    return rng.integers(0 if dtype.kind == "uint" else -3, 4, shape).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [*dtypes.ALL], ids=str)
def test_every_other_op(dtype):
    rng = np.random.default_rng(5)
    build, arrays, outputs = GraphBuilder("others"), [], []
    made = {}

    def operand(shape, number):
        indices = shape[:1] == (INDEX,)
        type_ = TensorType(shape[1:], I32) if indices else TensorType(shape, dtype)
        if (type_, indices, number) not in made:
            made[type_, indices, number] = build.input(type_, "a")
            arrays.append(rng.integers(-1, 4, type_.shape, np.int32) if indices else moderate(dtype, shape, rng))
        return made[type_, indices, number]

    for op, cases in CASES.items():
        for shapes, attrs in cases:
            values = [operand(shape, number) for number, shape in enumerate(shapes)]
            try:
                outputs.append(build.emit(op, values, name=op, **attrs))
            except GraphError:
                continue  # the op does not take the dtype
    assert len(outputs) > 15
    check_each(build, outputs, arrays)


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.kind != "bool"], ids=str)
def test_leaves(dtype):
    build = GraphBuilder("leaves")
    table = np.arange(12).reshape(3, 4).astype(dtype.numpy)
    x = build.input(TensorType((3, 4), dtype), "x")
    counted = build.emit("iota", [], shape=(3, 4), dtype=dtype, iota_dimension=1)
    sums = [build.emit("add", [x, leaf]) for leaf in (counted, build.constant(table))]
    check_each(build, sums, [table])


# ---- calls -----------------------------------------------------------------------------------------------------------


def counted(x, steps):
    return af.while_loop(lambda s: s[0] < steps, lambda s: (s[0] + 1, s[1] * 2 + x), (np.int32(0), x))


def test_while():
    x = np.arange(5, dtype=np.float32)
    plan = af.compile(counted, x, np.int32(3), policy="unfused")
    for steps in (0, 1, 7):
        for found, right in zip(plan(x, np.int32(steps)), counted(x, np.int32(steps)), strict=True):
            np.testing.assert_array_equal(found, right)


def rows_and_state(x, rows):
    def step(carry, row):
        carry = carry * 0.5 + row @ row
        return carry, (carry + x, row[::-1])

    return af.scan(step, x, rows, reverse=True)


def test_scan():
    rng = np.random.default_rng(5)
    x, rows = rng.standard_normal(5).astype(np.float32), rng.standard_normal((7, 5)).astype(np.float32)
    plan = af.compile(rows_and_state, x, rows, policy="unfused")
    last, (states, turned) = plan(x, rows)
    expected, (right, rows_turned) = rows_and_state(x, rows)
    np.testing.assert_allclose(last, expected, rtol=1e-5)
    np.testing.assert_allclose(states, right, rtol=1e-5)
    np.testing.assert_array_equal(turned, rows_turned)


def test_if():
    def choose(p, x):
        return af.cond(p, lambda a: a * 2, lambda a: np.sqrt(a) + x, x + 1)

    x = np.arange(5, dtype=np.float32)
    plan = af.compile(choose, np.bool_(True), x, policy="unfused")
    for p in (np.bool_(True), np.bool_(False)):
        np.testing.assert_allclose(plan(p, x), choose(p, x), rtol=1e-6)


def test_custom_call():
    x = np.random.default_rng(0).standard_normal((4, 4))
    plan = af.compile(lambda x: np.linalg.inv(x) @ x, x, policy="unfused", on_unsupported="eager")
    np.testing.assert_allclose(plan(x), np.eye(4), atol=1e-10)


def test_every_op_is_covered():
    elsewhere = {"constant", "iota", "scan", "while", "if", "custom_call", "complex", "real", "imag"}
    assert {op.name for op in all_ops()} == {*ELEMENTWISE, *CASES, *elsewhere}
