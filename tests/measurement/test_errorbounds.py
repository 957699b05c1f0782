"""Bounds carried through graphs: right answers pass, small mistakes do not, cancellation is known for what it is."""

import ml_dtypes
import numpy as np
import pytest

import autofuse as af
from autofuse.ir import dtypes
from autofuse.measurement.checks import WrongAnswerError, check
from autofuse.measurement.errorbounds import bounds_of, integerbounds

RNG = np.random.default_rng(3)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def softmax(x):
    grown = np.exp(x - x.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


def norm(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-6))


def attention(q, k, v):
    return softmax(q @ k.T * np.float32(0.125)) @ v


def judged(function, *arguments):
    """(answer of the plan, answer of the interpreter, bound) of the one result."""
    plan = af.compile(function, *arguments, threads=1)
    return np.asarray(plan(*arguments)), af.interpret(plan.graph, *arguments)[0], bounds_of(plan.graph, arguments)[0]


X, W = normal(96, 1024), normal(1024, 48)
PROGRAMS = {
    "product": (lambda x, w: x @ w, X, W),
    "tanh of a product": (lambda x, w: np.tanh(x @ w), X, W),
    "softmax of a product": (lambda x, w: softmax(x @ w * np.float32(0.03)), X, W),
    "norm of a product": (lambda x, w: norm(x @ w), X, W),
    "half": (lambda x, w: np.tanh(x @ w), X.astype(np.float16), W.astype(np.float16)),
    "double": (lambda x, w: norm(x @ w), X.astype(np.float64), W.astype(np.float64)),
    "attention": (attention, normal(80, 64), normal(80, 64), normal(80, 64)),
    "layer norm": (lambda x: norm(x - x.mean(-1, keepdims=True)), X),
    "row sums": (lambda x: x.sum(-1), X),
    "column sums": (lambda x: x.sum(0), X),
    "running sums": (lambda x: np.cumsum(x, -1), X),
    "deviation": (lambda x: x.std(-1), X),
    "difference of large numbers": (lambda x: (x + np.float32(1e4)).sum(-1) - np.float32(1024e4), X),
    "functions": (lambda x: np.log1p(np.exp(x)) * np.sin(x), X),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_right_answer_is_within_its_bound(name):
    function, *arguments = PROGRAMS[name]
    check(name, *judged(function, *arguments))


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("difference of large numbers", "running sums")])
def test_an_element_wrong_by_a_thousandth_of_the_largest_is_found(name):
    """Sixteen bits have no thousandths: two units of the last place there."""
    function, *arguments = PROGRAMS[name]
    found, right, bound = judged(function, *arguments)
    largest = np.unravel_index(np.argmax(np.abs(found)), found.shape)
    found[largest] *= found.dtype.type(1 - (2**-8 if found.itemsize == 2 else 1e-3))
    with pytest.raises(WrongAnswerError, match="1 of"):
        check(name, found, right, bound)


@pytest.mark.parametrize(
    "name", ["product", "tanh of a product", "softmax of a product", "double", "row sums", "deviation"]
)
def test_a_missing_term_of_1024_is_found(name):
    function, x, *others = PROGRAMS[name]
    _, right, bound = judged(function, x, *others)
    lacking = x.copy()
    lacking[7, 500] = 0
    with pytest.raises(WrongAnswerError):
        check(name, judged(function, lacking, *others)[0], right, bound)


def test_swapped_elements_and_a_wrong_tail_are_found():
    found, right, bound = judged(*PROGRAMS["attention"])
    swapped, tail = found.copy(), found.copy()
    swapped[3, 1], swapped[3, 2] = found[3, 2], found[3, 1]
    tail[:, -1] = tail[:, -2]
    for wrong in (swapped, tail):
        with pytest.raises(WrongAnswerError):
            check("y", wrong, right, bound)


def test_arithmetic_may_differ_by_its_roundings_and_moved_elements_by_nothing():
    _, right, bound = judged(lambda x: (x * x).T, X)
    np.testing.assert_allclose(bound, np.abs(right) * np.finfo(np.float32).eps, rtol=1e-6)
    assert judged(lambda x: np.concatenate([x[:, ::-1], -x]), X)[2] is None
    assert judged(lambda x: x.max(-1), X)[2] is None


def test_cancellation_widens_the_bound_by_as_much_as_it_costs():
    """Of sums near ten million, five digits are lost when ten million is subtracted."""
    found, right, bound = judged(*PROGRAMS["difference of large numbers"])
    exact = X.astype(np.float64).sum(-1)
    assert (np.abs(found - exact) < bound).all()
    assert (np.abs(right) < 100 * bound).all()


def test_a_product_of_one_term_rounds_what_was_off_by_a_rounding():
    """A factor one unit off gives a product that is off by that, and by another rounding."""
    x = np.random.default_rng(0).uniform(1, 2, (400, 2)).astype(np.float32)
    w, y = np.ones((2, 1), np.float32), np.random.default_rng(1).uniform(1, 2, (1, 30)).astype(np.float32)
    graph = af.trace(lambda x, w, y: (x @ w) @ y, x, w, y)
    (wanted,), (bound,) = af.interpret(graph, x, w, y), bounds_of(graph, (x, w, y))
    for other in (np.nextafter(x @ w, np.float32(9)), np.nextafter(x @ w, np.float32(0))):
        check("products", other @ y, wanted, bound)


def test_an_integer_may_differ_only_where_the_float_that_decides_it_is_near_a_step():
    x = np.linspace(-2, 2, 257).astype(np.float32)
    _, right, bound = judged(lambda x: np.floor(np.exp(x) / np.exp(x)).astype(np.int32), x)
    assert set(np.unique(right)) <= {0, 1}
    assert (bound == 1).all()
    assert not judged(lambda x: np.floor(np.exp(x) + np.float32(0.5) - np.exp(x)).astype(np.int32), x)[2].any()
    assert not judged(lambda x: np.exp(x) > 3, x)[2].any()


def test_the_place_of_the_largest_may_differ_only_between_neighbours_within_reach():
    x = np.array([[1, 2, 3], [3, 1, 3]], np.float32)
    np.testing.assert_array_equal(judged(lambda x: np.argmax(np.exp(x), -1), x)[2], [0, np.inf])


def test_a_logarithm_beside_zero_may_be_anything():
    x = normal(4, 256)
    centred = x - x.mean(-1, keepdims=True, dtype=np.float64).astype(np.float32)
    _, _, bound = judged(lambda x: np.log(np.abs(x.sum(-1))), centred)
    assert np.isinf(bound).any()


def masked_attention(q, k, v, seen):
    """With weights of 16 bits, of scores of 32."""
    scores = q.astype(np.float32) @ k.astype(np.float32).T * np.float32(0.125)
    return softmax(np.where(seen, scores, np.float32(-np.inf))).astype(q.dtype) @ v


def rescaled_attention(q, k, v, seen, keys=slice(None)):
    """The same with weights that are rounded before they are divided by their sum, of some of the keys."""
    wide_q, wide_k, wide_v = (x.astype(np.float32) for x in (q, k, v))
    scores = wide_q @ wide_k.T * np.float32(0.125)
    grown = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), np.float32(0))
    sums = grown[:, keys].astype(q.dtype).astype(np.float32) @ wide_v[keys]
    return sums / grown[:, keys].sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def attended():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((600, 64)).astype(ml_dtypes.bfloat16) for _ in range(3))
    arguments = q, k, v, rng.random((600, 600)) > 0.3
    graph = af.trace(masked_attention, *arguments)
    return arguments, af.interpret(graph, *arguments)[0], bounds_of(graph, arguments)[0]


def test_weights_of_16_bits_may_be_rounded_elsewhere(attended):
    """In all of 38,400 elements; the root of the sum of squares alone would refuse some of them."""
    arguments, right, bound = attended
    check("attention", rescaled_attention(*arguments), right, bound)
    with pytest.raises(WrongAnswerError):
        check("attention", rescaled_attention(*arguments), right, bound / np.float32(3))


def test_a_dropped_key_a_stale_value_and_a_wrong_bit_of_a_mask_are_found_among_600_keys(attended):
    (q, k, v, seen), right, bound = attended
    stale, flipped = v.copy(), seen.copy()
    stale[300] = v[299]
    flipped[5, 300] ^= True
    wrong = (
        rescaled_attention(q, k, v, seen, np.delete(np.arange(600), 300)),
        rescaled_attention(q, k, stale, seen),
        rescaled_attention(q, k, v, flipped),
    )
    for found in wrong:
        with pytest.raises(WrongAnswerError):
            check("attention", found, right, bound)


def test_single_roundings_do_not_grow_from_product_to_product():
    """Twelve products of 16 bits: what a rounding did in an earlier one is one of many errors in the next."""
    weights = [normal(64, 64, dtype=np.float16) / np.float16(8) for _ in range(12)]

    def chain(x):
        for w in weights:
            x = x @ w
        return x

    found, right, bound = judged(chain, normal(16, 64, dtype=np.float16))
    check("chain", found, right, bound)
    assert np.median(bound / np.abs(right)) < 0.05


@pytest.mark.slow
def test_bounds_do_not_swallow_deep_graphs():
    """Errors of factors are taken as independent: else twelve products would have multiplied them by 8**12."""
    weights = [normal(64, 64) / np.float32(8) for _ in range(12)]

    def deep(x):
        for w in weights:
            x = norm(x + np.tanh(x @ w))
        return x

    found, right, bound = judged(deep, normal(16, 64))
    check("deep", found, right, bound)
    assert np.median(bound / np.abs(right)) < 0.05


def whole(x, w, scale=1e3):
    return np.floor((x @ w) * np.float32(scale)).astype(np.int32)


HARD = {
    "waves": (lambda x, w: np.cos(np.float32(1e4) * (x @ w)), X, W),
    "poles": (lambda x, w: np.tan(np.float32(1e2) * (x @ w)), X, W),
    "remainders": (lambda x, w: np.fmod(np.float32(1e3) * (x @ w), np.float32(0.5)), X, W),
    "whole remainders": (lambda x, w: whole(x, w) % 5, X, W),
    "bits of integers": (lambda x, w: (whole(x, w) & 6) ^ (whole(x, w) | 9), X, W),
    "bits of floats": (lambda x, w: (x @ w).view(np.int32) & 255, X, W),
    "bits of doubles": (lambda x, w: (x @ w).view(np.int64), X.astype(np.float64), W.astype(np.float64)),
    "wrapped": (lambda x, w: whole(x, w).astype(np.int8), X, W),
    "hashed": (lambda x, w: (whole(x, w, 1e2).astype(np.uint32) * np.uint32(2654435761)) >> np.uint32(7), X, W),
    "squares of integers": (lambda x, w: whole(x, w) ** 2, X, W),
    "subnormal": (np.exp, np.linspace(-745, -705, 20_000)),
    "subnormal products": (lambda x, w: x @ w, X * np.float32(1e-22), W * np.float32(1e-22)),
    "sums too large": (lambda x: x.sum(-1), X * np.float32(2e37)),
    "products too large": (lambda x, w: x @ w, X * np.float32(1e19), W * np.float32(5e18)),
    "product of all": (lambda x: x.prod(-1), np.exp(X * np.float64(100))),
}


@pytest.mark.parametrize("name", HARD)
def test_a_right_answer_passes_whatever_waves_wraps_underflows_or_overflows(name):
    function, *arguments = HARD[name]
    check(name, *judged(function, *arguments))


def test_what_overflows_in_any_order_of_adding_is_infinite():
    x = X[:4] * np.float32(2e37)
    x[1] = np.inf
    x[2] = np.nan
    x[3] = 1
    _, _, bound = judged(lambda x: x.sum(-1), x)
    np.testing.assert_array_equal(np.isinf(bound), [True, False, False, False])


def test_one_element_that_may_be_anything_leaves_the_other_rows_of_a_product_bounded():
    def function(x, w):
        y = x @ w
        return np.log(np.abs(y - y[0, 0])) @ w.T

    _, _, bound = judged(function, X, W)
    assert np.isinf(bound[0]).all()
    assert np.isfinite(bound[1:]).mean() > 0.9


def test_random_bits_of_a_counter_that_may_differ_may_be_anything():
    rule = integerbounds.rule("threefry2x32", dtypes.U32, dtypes.U32)
    words = [np.arange(3, dtype=np.uint32)] * 4
    bound = rule(words, [None, None, None, np.array([0.0, 1.0, 0.0])], dtypes.U32)
    np.testing.assert_array_equal(bound, [0, np.inf, 0])
    assert rule(words, [None] * 4, dtypes.U32) is None


def test_a_half_below_the_normal_numbers_may_be_one_unit_off():
    x = np.full((4,), -14, np.float16)
    _, _, bound = judged(np.exp, x)
    assert (bound >= 2**-24).all()


def test_loops_and_branches_carry_bounds():
    def steps(x):
        return af.fori_loop(0, 3, lambda _, s: np.exp(-s * s), x)

    found, right, bound = judged(steps, X[:4])
    check("loop", found, right, bound)
    assert bound.max() < 1e-4


def test_other_orders_of_equal_keys_are_right_answers_and_other_orders_are_not():
    keys = RNG.integers(0, 4, (3, 50)).astype(np.int32)
    _, right, bound = judged(lambda k: np.argsort(k, 1), keys)
    check("stable", np.argsort(keys, 1, kind="stable"), right, bound)
    swapped = np.argsort(keys, 1, kind="stable")
    swapped[:, [0, -1]] = swapped[:, [-1, 0]]
    with pytest.raises(WrongAnswerError):
        check("swapped", swapped, right, bound)
    assert bounds_of(af.trace(lambda k: np.argsort(k, 1, kind="stable"), keys), [keys]) == (None,)


@pytest.mark.filterwarnings("ignore::autofuse.errors.LeftToNumpyWarning")
@pytest.mark.parametrize("axis", [0, 1])
def test_a_sorted_array_is_a_partition_and_one_that_is_wrong_where_it_was_asked_for_is_not(axis):
    x = normal(40, 30)
    _, right, bound = judged(lambda x: np.partition(x, (3, -4), axis), x)
    check("sorted", np.sort(x, axis), right, bound)
    wrong = np.sort(x, axis)
    np.moveaxis(wrong, axis, 0)[[2, 3]] = np.moveaxis(wrong, axis, 0)[[3, 2]].copy()
    with pytest.raises(WrongAnswerError):
        check("swapped", wrong, right, bound)


A = (normal(12, 12) + 6 * np.eye(12)).astype(np.float32)
B = normal(12, 3)
LIBRARIES = {
    "solve": (np.linalg.solve, lambda a, b: np.linalg.inv(a) @ b, A, B),
    "inv": (np.linalg.inv, lambda a: np.linalg.solve(a, np.eye(12, dtype=np.float32)), A),
    "cholesky": (
        np.linalg.cholesky,
        lambda a: np.linalg.cholesky(a.astype(np.float64)).astype(np.float32),
        (A @ A.T).astype(np.float32),
    ),
    "det": (np.linalg.det, lambda a: np.exp(np.linalg.slogdet(a)[1]), A),
    "svdvals": (np.linalg.svdvals, lambda a: np.sqrt(np.linalg.eigvalsh(a @ a.T))[::-1], A),
}


@pytest.mark.filterwarnings("ignore::autofuse.errors.LeftToNumpyWarning")
@pytest.mark.parametrize("name", LIBRARIES)
def test_another_librarys_rounding_is_right_and_a_thousandth_is_not(name):
    function, other, *arguments = LIBRARIES[name]
    _, right, bound = judged(function, *arguments)
    check(name, np.asarray(other(*arguments), right.dtype), right, bound)
    with pytest.raises(WrongAnswerError):
        check(name, (right * np.float32(1.003)).astype(right.dtype), right, bound)
