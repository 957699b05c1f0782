import numpy as np
import pytest

from autofuse.ir import dtypes
from autofuse.measurement.checks import (
    WrongAnswerError,
    check,
    poison,
    poisoned,
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


def test_a_float_may_differ_by_its_bound_and_no_more():
    expected = RNG.standard_normal(100).astype(np.float32)
    bound = np.full(100, 1e-3, np.float32)
    check("y", expected + np.float32(0.9e-3), expected, bound)
    bound[17] = 0.5e-3
    with pytest.raises(
        WrongAnswerError, match=r"y\[17\] is off \(up to 1.8 times its bound\).*1 of 100 elements differ"
    ):
        check("y", expected + np.float32(0.9e-3), expected, bound)


def test_without_a_bound_every_bit_counts_but_those_of_nan_and_the_sign_of_zero():
    check("y", np.array([0.0, np.nan]), np.array([-0.0, -np.nan]))
    with pytest.raises(WrongAnswerError, match="no rounding on the way"):
        check("y", np.nextafter(np.ones(3), 2), np.ones(3))


def test_what_an_infinite_bound_stands_by_may_be_anything():
    bound = np.array([np.inf, 0])
    check("y", np.array([np.nan, 1.0]), np.array([3.0, 1.0]), bound)
    with pytest.raises(WrongAnswerError, match=r"y\[1\]"):
        check("y", np.array([np.nan, np.nan]), np.array([3.0, 1.0]), bound)


def test_a_number_at_the_end_of_its_range_may_overflow_within_its_bound():
    most = np.finfo(np.float32).max
    check("y", np.array([np.inf], np.float32), np.array([most]), np.array([1e32], np.float32))
    with pytest.raises(WrongAnswerError, match="misplaced"):
        check("y", np.array([-np.inf], np.float32), np.array([most]), np.array([1e32], np.float32))


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


def test_integers_and_bools_may_differ_only_where_a_float_decides_them():
    expected, bound = np.zeros(1000, np.uint8), np.zeros(1000, np.float32)
    bound[3] = 1
    actual = expected.copy()
    actual[3] = 1
    check("y", actual, expected, bound)
    actual[3] = 2
    with pytest.raises(WrongAnswerError, match=r"y\[3\] is off \(exact where no float decides it\)"):
        check("y", actual, expected, bound)
    check("y", actual == 2, expected == 1, bound)
    with pytest.raises(WrongAnswerError, match=r"y\[3\]"):
        check("y", actual == 2, expected == 1)


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


@pytest.mark.parametrize(
    ("found", "right", "apart"),
    [
        (4630328877507525119, 4630328877507525126, 7),  # on two sides of a number that float64 rounds
        (2**63 - 1, -(2**63), 2**64 - 1),
        (2**62, 2**62 + 1, 1),
    ],
)
def test_integers_beyond_2_to_53_are_as_far_apart_as_they_are(found, right, apart):
    for one, other in ((found, right), (right, found)):
        actual, expected = np.array([one], np.int64), np.array([other], np.int64)
        check("whole", actual, expected, np.array([float(apart)]))
        with pytest.raises(WrongAnswerError):
            check("whole", actual, expected, np.array([apart * 0.9]))
