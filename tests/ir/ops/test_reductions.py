"""reduce, argmin/argmax, cumulative and reduce_window against loops over single elements."""

import itertools
import math

import numpy as np
import pytest

from autofuse.errors import GraphError
from autofuse.ir.combiners import combiner_identity
from autofuse.ir.dtypes import BF16, BOOL, F16, F32, I8, I32, I64
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.optable import lookup
from autofuse.ir.types import of_array, parse_type

NAN = math.nan
STEP = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
}


def apply(op, x, **attrs):
    builder = GraphBuilder("g")
    value = builder.input(of_array(x))
    return interpret(builder.finish([builder.emit(op, [value], **attrs)]), x)[0]


@pytest.mark.parametrize("combiner", STEP)
@pytest.mark.parametrize("dims", [(), (0,), (1,), (2, 0), (0, 1, 2)])
def test_reduce(combiner, dims):
    x = np.random.default_rng(1).integers(-4, 5, (3, 4, 2)).astype(np.int32)
    result = apply("reduce", x, dimensions=dims, combiner=combiner)
    kept = [d for d in range(3) if d not in dims]
    expected = np.empty([x.shape[d] for d in kept], np.int32)
    for point in np.ndindex(expected.shape):
        where = [slice(None)] * 3
        for d, p in zip(kept, point, strict=True):
            where[d] = p
        items = np.asarray(x[tuple(where)]).reshape(-1)
        total = items[0]
        for item in items[1:]:
            total = STEP[combiner](total, item)
        expected[point] = total
    np.testing.assert_array_equal(result, expected)


def test_integer_sums_wrap_in_their_own_dtype():
    assert apply("reduce", np.array([100, 100], np.int8), dimensions=(0,), combiner="add").tolist() == -56
    assert apply("reduce", np.array([2**31 - 1, 1], np.int32), dimensions=(0,), combiner="add") == -(2**31)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_sixteen_bit_sums_accumulate_in_f32(dtype):
    x = np.full(4096, 1.0, dtype.numpy)
    x[1:] = 2.0**-8
    expected = np.float32(1 + 4095 * 2.0**-8).astype(dtype.numpy)
    assert apply("reduce", x, dimensions=(0,), combiner="add") == expected


@pytest.mark.parametrize("combiner", ["minimum", "maximum"])
@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_extremes_propagate_nan(combiner, dtype):
    x = np.array([[1, NAN, 3], [4, 5, 6]], dtype.numpy)
    result = apply("reduce", x, dimensions=(1,), combiner=combiner).astype(np.float32)
    assert math.isnan(result[0])
    assert result[1] == (4 if combiner == "minimum" else 6)


def test_folding_nothing_gives_the_identity():
    empty = np.zeros((2, 0), np.float32)
    assert apply("reduce", empty, dimensions=(1,), combiner="add").tolist() == [0, 0]
    assert apply("reduce", empty, dimensions=(1,), combiner="multiply").tolist() == [1, 1]
    assert apply("reduce", np.zeros((2, 0), np.int8), dimensions=(1,), combiner="and").tolist() == [-1, -1]
    assert apply("reduce", np.zeros((2, 0), np.bool_), dimensions=(1,), combiner="and").tolist() == [True, True]
    assert apply("reduce", empty, dimensions=(0,), combiner="maximum").shape == (0,)


def test_arg_takes_the_first_of_equals_and_the_first_nan():
    x = np.array([[1, 3, 3], [2, NAN, NAN], [5, 0, 0]], np.float32)
    assert apply("argmax", x, dimension=1, dtype=I32).tolist() == [1, 1, 0]
    assert apply("argmin", x, dimension=1, dtype=I64).tolist() == [0, 1, 1]
    assert apply("argmax", x.astype(BF16.numpy), dimension=0, dtype=I8).dtype == np.int8


@pytest.mark.parametrize("combiner", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_cumulative(combiner, reverse, dtype):
    x = np.random.default_rng(2).integers(-3, 4, (3, 5)).astype(dtype)
    result = apply("cumulative", x, dimension=1, combiner=combiner, reverse=reverse)
    for row, out in zip(x, result, strict=True):
        order = range(4, -1, -1) if reverse else range(5)
        running = None
        for position in order:
            running = row[position] if running is None else dtype(STEP[combiner](running, row[position]))
            assert out[position] == running


def test_cumulative_in_sixteen_bits_does_not_drift():
    x = np.full(4096, 2.0**-8, F16.numpy)
    x[0] = 1
    assert apply("cumulative", x, dimension=0, combiner="add", reverse=False)[-1] == np.float16(1 + 4095 * 2.0**-8)


def window_reference(x, attrs):
    """Reduce every window of a dilated, padded operand, element by element; None where a window sees only padding."""
    rank = x.ndim
    shape, pads = [], attrs["padding"]
    for d in range(rank):
        base = (x.shape[d] - 1) * attrs["base_dilations"][d] + 1 if x.shape[d] else 0
        span = (attrs["window_dimensions"][d] - 1) * attrs["window_dilations"][d] + 1
        shape.append(max(0, (base + sum(pads[d]) - span) // attrs["window_strides"][d] + 1))
    result = np.empty(shape, object)
    for point in np.ndindex(*shape):
        total = None
        for offset in itertools.product(*map(range, attrs["window_dimensions"])):
            where = []
            for d in range(rank):
                at = point[d] * attrs["window_strides"][d] + offset[d] * attrs["window_dilations"][d] - pads[d][0]
                step = attrs["base_dilations"][d]
                where.append(at // step if at % step == 0 and 0 <= at // step < x.shape[d] else None)
            if None not in where:
                item = x[tuple(where)]
                total = item if total is None else STEP[attrs["combiner"]](total, item)
        result[point] = total
    return result


@pytest.mark.parametrize("seed", range(40))
def test_reduce_window(seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 3))
    x = rng.integers(-5, 6, rng.integers(0, 6, rank)).astype(np.int32)
    attrs = {
        "window_dimensions": tuple(int(v) for v in rng.integers(1, 4, rank)),
        "window_strides": tuple(int(v) for v in rng.integers(1, 4, rank)),
        "base_dilations": tuple(int(v) for v in rng.integers(1, 3, rank)),
        "window_dilations": tuple(int(v) for v in rng.integers(1, 3, rank)),
        "padding": tuple((int(rng.integers(-1, 3)), int(rng.integers(0, 3))) for _ in range(rank)),
        "combiner": str(rng.choice(list(STEP))),
    }
    attrs["padding"] = tuple(
        (low, max(high, -low)) if n == 0 else (low, high)
        for n, (low, high) in zip(x.shape, attrs["padding"], strict=True)
    )
    expected = window_reference(x, attrs)
    result = apply("reduce_window", x, **attrs)
    assert result.shape == expected.shape
    neutral = combiner_identity(attrs["combiner"], I32)
    for point in np.ndindex(*expected.shape):
        assert result[point] == (neutral if expected[point] is None else expected[point])


def test_max_pooling_of_floats_ignores_padding():
    x = -np.ones((1, 3), np.float32)
    pool = {"window_strides": (1, 2), "base_dilations": (1, 1), "window_dilations": (1, 1), "padding": ((0, 0), (1, 1))}
    result = apply("reduce_window", x, window_dimensions=(1, 3), combiner="maximum", **pool)
    assert result.tolist() == [[-1, -1]]


def test_identities():
    assert combiner_identity("minimum", F32) == math.inf
    assert combiner_identity("maximum", I8) == -128
    assert combiner_identity("and", I8) == -1
    assert combiner_identity("maximum", BOOL) is False
    assert combiner_identity("multiply", F32) == 1


WINDOW = {
    "window_dimensions": (2,),
    "window_strides": (1,),
    "base_dilations": (1,),
    "window_dilations": (1,),
    "padding": ((0, 0),),
    "combiner": "add",
}


@pytest.mark.parametrize(
    ("op", "type_", "attrs", "message"),
    [
        ("reduce", "f32[2,3]", {"dimensions": (2,), "combiner": "add"}, "attribute dimensions must be a dimension"),
        ("reduce", "f32[2,3]", {"dimensions": (-1,), "combiner": "add"}, r"0 <= d < 2, got -1"),
        ("reduce", "f32[2,3]", {"dimensions": (0, 0), "combiner": "add"}, "must not repeat a dimension"),
        ("reduce", "bool[2]", {"dimensions": (0,), "combiner": "add"}, "combiner add is not defined on bool"),
        ("reduce", "f32[2]", {"dimensions": (0,), "combiner": "or"}, "combiner or needs an integer dtype or bool"),
        ("reduce", "f32[2,0]", {"dimensions": (1,), "combiner": "maximum"}, "no least or greatest of nothing"),
        ("argmax", "f32[2]", {"dimension": 1, "dtype": I32}, "argmax: attribute dimension"),
        ("argmax", "f32[2]", {"dimension": 0, "dtype": F32}, "attribute dtype must be an integer dtype"),
        ("argmin", "f32[0]", {"dimension": 0, "dtype": I32}, "no least or greatest of nothing"),
        ("cumulative", "f32[2]", {"dimension": 1, "combiner": "add", "reverse": False}, "attribute dimension"),
        ("cumulative", "bool[2]", {"dimension": 0, "combiner": "add", "reverse": False}, "not defined on bool"),
        ("reduce_window", "f32[3]", WINDOW | {"window_strides": (1, 1)}, "window_strides must have 1 entries"),
        ("reduce_window", "f32[3]", WINDOW | {"window_dimensions": (0,)}, "window_dimensions must have entries >= 1"),
        ("reduce_window", "f32[3]", WINDOW | {"padding": ((-2, -2),)}, r"padding\[0\] must not remove more"),
        ("reduce_window", "bool[3]", WINDOW, "combiner add is not defined on bool"),
    ],
)
def test_inference_errors(op, type_, attrs, message):
    with pytest.raises(GraphError, match=message):
        lookup(op).infer([parse_type(type_)], attrs, ())
