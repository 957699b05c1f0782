import numpy as np
import pytest

from autofuse.ir import dtypes
from autofuse.measurement.checks import (
    DECIDED_BY_FLOATS,
    POISON_BYTE,
    WrongAnswerError,
    check,
    poison,
    poisoned,
    tolerance,
    unwritten,
)

RNG = np.random.default_rng(5)


def test_equal_answers_pass_for_every_dtype():
    for dtype in dtypes.ALL:
        value = RNG.integers(0, 2, (3, 4)).astype(dtype.numpy)
        check("y", value.copy(), value)


def test_first_wrong_element_is_reported():
    expected = np.arange(12, dtype=np.float32).reshape(3, 4)
    actual = expected.copy()
    actual[1, 2] = 7.5
    actual[2, 3] = 0.0
    with pytest.raises(WrongAnswerError, match=r"y\[1, 2\] is off .*got 7.5, expected 6.0; 2 of 12 elements differ"):
        check("y", actual, expected)


@pytest.mark.parametrize(("dtype", "ulps", "good"), [(np.float32, 16, True), (np.float32, 4096, False)])
def test_float_answers_may_differ_by_some_ulp(dtype, ulps, good):
    expected = RNG.standard_normal(100).astype(dtype) + 3
    actual = expected * dtype(1 + ulps * np.finfo(dtype).eps)
    if good:
        check("y", actual, expected)
    else:
        with pytest.raises(WrongAnswerError, match="is off"):
            check("y", actual, expected)


def test_integers_and_bools_are_exact():
    with pytest.raises(WrongAnswerError, match=r"y\[1\]"):
        check("y", np.array([1, 3]), np.array([1, 2]))
    with pytest.raises(WrongAnswerError, match=r"y\[0\]"):
        check("y", np.array([7], np.uint8).view(np.bool_), np.array([True]))


@pytest.mark.parametrize(
    "actual",
    [[1.0, 2.0, np.inf], [1.0, 2.0, -np.inf], [1.0, np.nan, np.nan], [1.0, 2.0, 3.0]],
)
def test_special_values_must_stand_where_they_are_expected(actual):
    with pytest.raises(WrongAnswerError):
        check("y", np.array(actual, np.float32), np.array([1.0, 2.0, np.nan], np.float32))


def test_equal_special_values_pass():
    value = np.array([np.nan, np.inf, -np.inf, 0.0, 1e-45, 3e38], np.float32)
    check("y", value.copy(), value)


def test_wrong_sign_of_infinity_fails():
    with pytest.raises(WrongAnswerError, match="1 misplaced"):
        check("y", np.array([np.inf]), np.array([-np.inf]))


def test_scalars_and_empty_arrays():
    check("y", np.zeros((0, 3)), np.zeros((0, 3)))
    check("y", np.array(2.0), np.array(2.0))
    with pytest.raises(WrongAnswerError, match=r"y\[\] is off"):
        check("y", np.array(2.0), np.array(3.0))


def test_shape_and_dtype_must_agree():
    with pytest.raises(WrongAnswerError, match=r"is float64\[2\], expected float32\[2\]"):
        check("y", np.zeros(2), np.zeros(2, np.float32))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_memory_that_was_not_written_is_found(dtype):
    actual = poisoned((4, 5), dtype)
    expected = np.ones((4, 5), dtype.numpy)
    actual[:3] = 1
    assert int(unwritten(actual, expected).sum()) == 5
    with pytest.raises(WrongAnswerError, match=r"y\[3, 0\] was not written.*5 of 20"):
        check("y", actual, expected)


def test_poison_fills_an_existing_buffer():
    buffer = np.zeros(3)
    poison(buffer)
    assert (buffer != 0).all()


def test_sums_in_any_order_pass_and_a_lost_term_does_not():
    terms = RNG.standard_normal((8, 10_000)).astype(np.float32)
    expected = np.array([row.astype(np.float64).sum() for row in terms], np.float32)
    allowed = tolerance(dtypes.F32, 10_000)
    naive = np.zeros(8, np.float32)
    for column in terms.T:
        naive += column
    check("sum", naive, expected, allowed)
    with pytest.raises(WrongAnswerError):
        check("sum", expected - terms[:, 17], expected, allowed)


def test_tolerance_grows_with_the_square_root_of_the_terms():
    one, many = tolerance(dtypes.F64), tolerance(dtypes.F64, 10_000)
    assert many.relative == pytest.approx(100 * one.relative)
    assert tolerance(dtypes.BF16, 10_000).relative < 2 * tolerance(dtypes.BF16).relative
    assert tolerance(dtypes.I64, 10_000).relative == 0.0


def test_integers_decided_by_floats_may_flip_now_and_then():
    expected = np.zeros(100_000, np.uint8)
    actual = expected.copy()
    actual[:3] = 1
    check("y", actual, expected, DECIDED_BY_FLOATS)
    with pytest.raises(WrongAnswerError, match="exact"):
        check("y", actual, expected)
    actual[:2000] = 1
    with pytest.raises(WrongAnswerError, match="2000 of 100000"):
        check("y", actual, expected, DECIDED_BY_FLOATS)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_byte_that_may_flip_may_come_out_as_the_poison(dtype):
    value = np.array([POISON_BYTE], np.uint8).view(dtype)[0]
    expected = np.full(100_000, value - dtype(1), dtype)
    actual = expected.copy()
    actual[:3] = value
    check("y", actual, expected, DECIDED_BY_FLOATS)
    with pytest.raises(WrongAnswerError, match="was not written"):
        check("y", actual, expected)
    actual[:2000] = value
    with pytest.raises(WrongAnswerError, match="was not written"):
        check("y", actual, expected, DECIDED_BY_FLOATS)


# ---- arrays of many blocks -------------------------------------------------------------------------------------------

LARGE = 100_000


@pytest.mark.parametrize("at", [0, 50_000, LARGE - 1])
def test_one_wrong_element_of_many_is_found(at):
    expected = np.ones(LARGE, np.float32)
    actual = expected.copy()
    actual[at] = 1.01
    with pytest.raises(WrongAnswerError, match=rf"x\[{at}\] is off .*1 of {LARGE} elements differ"):
        check("x", actual, expected)
    poison(actual[at : at + 1])
    with pytest.raises(WrongAnswerError, match=rf"x\[{at}\] was not written"):
        check("x", actual, expected)


def test_small_elements_are_measured_by_the_size_of_all():
    expected = np.full(LARGE, 1e-6, np.float32)
    actual = expected + np.float32(1e-7)
    with pytest.raises(WrongAnswerError):
        check("x", actual, expected)
    expected[:10], actual[:10] = 1e3, 1e3
    check("x", actual, expected)


def test_flips_are_counted_over_the_whole_array():
    expected = np.zeros(LARGE, np.int32)
    actual = expected.copy()
    actual[:10] = 1  # 1e-4 of all, though not of the first block
    check("x", actual, expected, DECIDED_BY_FLOATS)
    actual[-1] = 1
    with pytest.raises(WrongAnswerError, match=f"11 of {LARGE} elements differ"):
        check("x", actual, expected, DECIDED_BY_FLOATS)
