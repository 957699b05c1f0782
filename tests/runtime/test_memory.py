"""The arena: buffers that live at the same time never overlap, and it is no larger than it must be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.runtime.memory import ALIGNMENT, Lifetime, plan_arena

LIVES = st.lists(
    st.builds(
        lambda nbytes, first, length: Lifetime(nbytes, first, first + length),
        st.integers(0, 1000),
        st.integers(0, 12),
        st.integers(0, 6),
    ),
    max_size=24,
)


def padded(nbytes):
    return max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT


@given(LIVES)
def test_what_lives_at_the_same_time_lies_apart(lifetimes):
    offsets, total = plan_arena(lifetimes)
    assert len(offsets) == len(lifetimes)
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    places = [(o, o + padded(life.nbytes), life) for o, life in zip(offsets, lifetimes, strict=True)]
    assert all(high <= total for _, high, _ in places)
    for number, (low, high, life) in enumerate(places):
        for other_low, other_high, other in places[:number]:
            if life.first <= other.last and other.first <= life.last:
                assert high <= other_low or other_high <= low


@given(LIVES)
def test_the_arena_is_no_smaller_than_any_moment_needs_and_no_larger_than_the_sum(lifetimes):
    _, total = plan_arena(lifetimes)
    steps = range(20)
    needed = [sum(padded(x.nbytes) for x in lifetimes if x.first <= step <= x.last) for step in steps]
    assert max(needed, default=0) <= total <= sum(padded(x.nbytes) for x in lifetimes)


def test_a_chain_needs_two_buffers():
    lifetimes = [Lifetime(640, step, step + 1) for step in range(10)]
    offsets, total = plan_arena(lifetimes)
    assert total == 2 * 640
    assert set(offsets) == {0, 640}


def test_a_small_buffer_takes_a_hole():
    lifetimes = [Lifetime(128, 0, 3), Lifetime(1024, 0, 0), Lifetime(64, 2, 3)]
    offsets, total = plan_arena(lifetimes)
    assert total == 1024 + 128
    assert offsets[2] == 0


def test_equal_sizes_are_placed_in_order():
    assert plan_arena([Lifetime(64, 0, 1)] * 3)[0] == (0, 64, 128)


@pytest.mark.parametrize("lifetimes", [[], [Lifetime(0, 0, 0)]])
def test_little_needs_little(lifetimes):
    _, total = plan_arena(lifetimes)
    assert total == ALIGNMENT * len(lifetimes)
