"""Comparing calls: pairing, noise from the same thing twice, order of the blocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autofuse.report.comparison import Contender, compare, interleave, render
from autofuse.testing.counted.target import CountedTarget


@pytest.fixture
def target() -> CountedTarget:
    """By its clock, only what a call says takes time, and rests."""
    return CountedTarget()


def call_of(target: CountedTarget, us: float) -> Callable[[], None]:
    return lambda: target.clock.advance(round(us * 1000))


def test_ratios_refer_to_the_first_contender(target: CountedTarget) -> None:
    slow, fast = Contender("numpy", call_of(target, 300.0)), Contender("fused", call_of(target, 100.0), 2, 90.0)
    found = compare([slow, fast], blocks=8, block_us=1000.0, by=target)
    assert [row.name for row in found.rows] == ["numpy", "fused"]
    assert found.rows[1].us == pytest.approx(100.0)
    assert found.rows[1].speedup == pytest.approx(3.0)
    assert found.noise == pytest.approx(0.0)
    assert "3.00 [3.00, 3.00]" in render(found)


def test_drift_meets_all_contenders_alike(target: CountedTarget) -> None:
    """Both get slower all the time: times spread, ratios do not."""

    def drifting(us: float) -> Callable[[], None]:
        return lambda: target.clock.advance(round(us * 1000 * (1 + target.clock() / 1e11)))

    contenders = [Contender("a", drifting(200.0)), Contender("b", drifting(100.0))]
    found = compare(contenders, blocks=12, block_us=2000.0, by=target)
    assert found.rows[0].high_us > 1.02 * found.rows[0].low_us
    assert found.rows[1].speedup == pytest.approx(2.0, rel=0.02)


def test_threads_that_spin_go_to_sleep_before_every_turn() -> None:
    happened: list[str] = []

    class Resting(CountedTarget):
        def pause(self, seconds: float) -> None:
            happened.append("rest")

    target = Resting()

    def noting(name: str) -> Callable[[], None]:
        def call() -> None:
            happened.append(name)
            target.clock.advance(10_000)

        return call

    interleave({name: noting(name) for name in "ab"}, blocks=3, block_us=10.0, seed=0, by=target)
    turns = happened[8:]  # after four calls of each to find out how often it fits
    assert turns[::3] == ["rest"] * 6
    assert "rest" not in turns[1::3] + turns[2::3]


def test_every_block_holds_every_call_in_an_order_of_the_seed(target: CountedTarget) -> None:
    calls: list[str] = []

    def noting(name: str) -> Callable[[], None]:
        def call() -> None:
            calls.append(name)
            target.clock.advance(10_000)

        return call

    samples = interleave({name: noting(name) for name in "abc"}, blocks=5, block_us=10.0, seed=3, by=target)
    assert {name: len(values) for name, values in samples.items()} == {"a": 5, "b": 5, "c": 5}
    turns = [calls[12 + 2 * turn] for turn in range(15)]
    assert all(set(turns[3 * block : 3 * block + 3]) == set("abc") for block in range(5))
    assert len({tuple(turns[3 * block : 3 * block + 3]) for block in range(5)}) > 1
