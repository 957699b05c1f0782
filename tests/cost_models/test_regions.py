"""Footprints of index expressions."""

import pytest

from autofuse.cost_models.regions import Extent, extent_of, steps_of, union_of


def test_steps_are_canonical():
    assert steps_of([(128, 10), (1, 64), (5, 1), (0, 9)]) == ((1, 64), (128, 10))
    assert steps_of([(-4, 3)]) == ((4, 3),)


def test_equal_steps_slide_over_one_another():
    assert steps_of([(1, 100), (1, 3)]) == ((1, 102),)


def test_a_dense_matrix_is_one_run():
    assert extent_of(((1, 64), (64, 32)), 4) == Extent(2048, 2048, 8192)


def test_rows_with_gaps_repeat_their_lines():
    # 100 floats are 400 bytes: 7 lines in each of 8 rows
    assert extent_of(((1, 100), (128, 8)), 4) == Extent(800, 100, 8 * 7 * 64, 8)


def test_a_column_touches_a_line_per_row():
    assert extent_of(((100, 50),), 4) == Extent(50, 1, 50 * 64, 50)


def test_a_short_step_touches_every_line_on_the_way():
    # every second float of 1000
    assert extent_of(((2, 500),), 4) == Extent(500, 1, 63 * 64)


def test_steps_by_powers_of_two_crowd_a_cache():
    # 4096 bytes apart: 64 lines, so that runs share one set in 64
    assert extent_of(((1024, 4096),), 4).crowding == 64
    assert extent_of(((1024, 4),), 4).crowding == 1
    assert extent_of(((1040, 4096),), 4).crowding == 1


def test_the_points_of_a_stencil_overlap():
    inner = ((1, 98), (100, 98))
    five = union_of(inner, [101, 1, 201, 100, 102], 4)
    assert five.elements == pytest.approx(98 * 98, rel=0.05)


def test_parts_side_by_side_add_up():
    left_and_right = union_of(((1, 64), (128, 10)), [0, 64], 4)
    assert left_and_right.elements == 2 * 640
    assert left_and_right.line_bytes == 2 * 10 * 256


def test_the_same_place_twice_counts_once():
    assert union_of(((1, 64),), [7, 7], 4).elements == 64
