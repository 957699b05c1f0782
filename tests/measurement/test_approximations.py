"""Bounds of what may be approximated: documented errors pass, larger ones and wrong edges do not."""

import ml_dtypes
import numpy as np
import pytest

import autofuse as af
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.types import of_array
from autofuse.measurement.checks import WrongAnswerError, check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.measurement.errorbounds.approximations import to_tf32
from autofuse.passes.pipeline import clean

U = 2.0**-23
RNG = np.random.default_rng(5)


def judged(op, *operands):
    """(right answer, bound) of an op that may be approximated."""
    build = GraphBuilder("g")
    inputs = [build.input(of_array(array), f"x{number}") for number, array in enumerate(operands)]
    graph = build.finish([build.emit(op, inputs, numerics="fast")])
    return interpret(graph, *operands)[0], bounds_of(graph, operands)[0]


def f32(*numbers):
    return np.array(numbers, np.float32)


X = np.exp2(RNG.uniform(-20, 20, 500)).astype(np.float32)
ERRORS = {
    "divide": ((RNG.standard_normal(500).astype(np.float32), X), lambda right, x: 2 * U * np.abs(right)),
    "sqrt": ((X,), lambda right, x: U * right),
    "rsqrt": ((X,), lambda right, x: 1.1 * U * right),
    "exp2": ((RNG.uniform(-100, 100, 500).astype(np.float32),), lambda right, x: 2 * U * right),
    "exp": ((RNG.uniform(-80, 80, 500).astype(np.float32),), lambda right, x: (2 + 1.17 * np.abs(x)) * U * right),
    "log": ((RNG.uniform(0.5, 2, 500).astype(np.float32),), lambda right, x: np.full(500, 2.0**-21.41)),
    "log2": ((1 + X,), lambda right, x: np.maximum(2 * U * right, 0)),
    "logistic": ((RNG.uniform(-30, 30, 500).astype(np.float32),), lambda right, x: 4 * U * right),
    "tanh": ((RNG.uniform(-5, 5, 500).astype(np.float32),), lambda right, x: np.full(500, 2.0**-20.5)),
    "sin": ((RNG.uniform(-1e5, 1e5, 500).astype(np.float32),), lambda right, x: np.full(500, 2.0**-20)),
    "cos": ((RNG.uniform(-1e5, 1e5, 500).astype(np.float32),), lambda right, x: np.full(500, 2.0**-20)),
}


@pytest.mark.parametrize("op", ERRORS)
def test_documented_errors_pass_and_those_of_sixteen_bits_do_not(op):
    operands, error = ERRORS[op]
    right, bound = judged(op, *operands)
    wide = right.astype(np.float64)
    for sign in (-1, 1):
        check(op, (wide + sign * error(wide, operands[0].astype(np.float64))).astype(np.float32), right, bound)
    with pytest.raises(WrongAnswerError):
        check(op, right.astype(ml_dtypes.bfloat16).astype(np.float32), right, bound)


@pytest.mark.parametrize(
    ("op", "operands", "may_be"),
    [
        ("divide", (1.0, 2.0**126), 0.99 * 2.0**-126),
        ("divide", (2.0**127, 1.5 * 2.0**126), 0.0),
        ("divide", (1.0, 2.0**-127), np.inf),
        ("exp", (-90.0,), 0.0),
        ("exp2", (-127.5,), 0.0),
        ("exp", (88.7229,), 3.4028e38),
        ("exp", (88.72283,), np.inf),
        ("log", (2.0**-127,), -np.inf),
        ("sqrt", (2.0**-127,), 0.0),
        ("rsqrt", (2.0**-127,), np.inf),
        ("sin", (2.0**23,), 0.3),
    ],
)
def test_ends_of_the_range_may_be_as_documented(op, operands, may_be):
    right, bound = judged(op, *(f32(number) for number in operands))
    check(op, f32(may_be), right, bound)


@pytest.mark.parametrize(
    ("op", "operands", "wrong"),
    [
        ("divide", (1.0, 0.0), 0.0),
        ("divide", (2.0**100, 2.0**99), 0.0),
        ("exp", (80.0,), np.inf),
        ("exp", (np.nan,), 1.0),
        ("exp", (-np.inf,), 1e-30),
        ("log", (0.0,), 0.0),
        ("log", (-1.0,), 0.0),
        ("sqrt", (4.0,), 0.0),
        ("tanh", (np.inf,), 0.999),
        ("sin", (np.inf,), 0.0),
    ],
)
def test_all_else_may_not(op, operands, wrong):
    right, bound = judged(op, *(f32(number) for number in operands))
    with pytest.raises(WrongAnswerError):
        check(op, f32(wrong), right, bound)


def test_sixteen_bits_may_be_off_by_a_unit_of_theirs_more():
    x = np.linspace(-3, 3, 101).astype(ml_dtypes.bfloat16)
    right, bound = judged("tanh", x)
    off = (right.astype(np.float32) * np.float32(1 + 2.0**-11)).astype(x.dtype)
    check("tanh", off, right, bound)
    with pytest.raises(WrongAnswerError):
        check("tanh", (right.astype(np.float32) * np.float32(1 + 2.0**-5)).astype(x.dtype), right, bound)


def test_rounding_to_tf32_is_to_nearest_with_halves_away_from_zero():
    step = 2.0**-10
    np.testing.assert_array_equal(to_tf32(f32(1 + step / 2, -1 - step / 2, 1 + step / 4)), [1 + step, -1 - step, 1])
    np.testing.assert_array_equal(to_tf32(f32(np.inf, -np.inf, np.nan, 0, -0.0)), f32(np.inf, -np.inf, np.nan, 0, -0.0))
    assert np.isinf(to_tf32(f32(3.4028e38)))


def cut(x):
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def to_even(x):
    bits = x.view(np.uint32)
    return cut((bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))).view(np.float32))


def kept(x):
    return x


DATA = {
    "random": (RNG.standard_normal((300, 256)), RNG.standard_normal((256, 500))),
    "positive": (RNG.random((300, 256)) + 0.5, RNG.random((256, 500))),
    "equal": (np.full((8, 256), 0.1), np.full((256, 8), 0.7)),
    "of few terms": (RNG.standard_normal((300, 3)), RNG.standard_normal((3, 500))),
}


@pytest.fixture(scope="module", params=DATA)
def product_of(request):
    """Factors, the right product, and the bound where both may be TF32."""
    x, y = (factor.astype(np.float32) for factor in DATA[request.param])
    graph = clean(af.trace(lambda x, y: x @ y, x, y), "fast")
    return x, y, interpret(graph, x, y)[0], bounds_of(graph, [x, y])[0]


@pytest.mark.parametrize(
    "both", [(to_tf32,) * 2, (cut,) * 2, (to_even,) * 2, (kept, to_tf32), (cut, kept), (to_even, cut)]
)
def test_products_may_round_their_factors_to_tf32_in_any_way(product_of, both):
    x, y, right, bound = product_of
    first, second = both
    check("product", (first(x).astype(np.float64) @ second(y).astype(np.float64)).astype(np.float32), right, bound)


def test_a_factor_of_8_bits_and_a_missing_term_of_256_are_found(product_of):
    x, y, right, bound = product_of
    short = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    lacking = x.copy()
    lacking[:, 1] = 0
    for factor in (short, lacking):
        with pytest.raises(WrongAnswerError):
            check("product", factor @ y, right, bound)
