"""Comparing calls: pairing, noise from the same thing twice, order of the blocks."""

from __future__ import annotations

import pytest

from autofuse.report import comparison
from autofuse.report.comparison import Contender, compare, interleave, render


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that only calls move: [nanoseconds]."""
    now = [0]
    monkeypatch.setattr(comparison.time, "perf_counter_ns", lambda: now[0])
    monkeypatch.setattr(comparison, "rest", lambda: None)
    return now


def call_of(clock: list[int], us: float) -> comparison.Call:
    def call() -> None:
        clock[0] += round(us * 1000)

    return call


def test_ratios_refer_to_the_first_contender(clock: list[int]) -> None:
    slow, fast = Contender("numpy", call_of(clock, 300.0)), Contender("fused", call_of(clock, 100.0), 2, 90.0)
    found = compare([slow, fast], blocks=8, block_us=1000.0)
    assert [row.name for row in found.rows] == ["numpy", "fused"]
    assert found.rows[1].us == pytest.approx(100.0)
    assert found.rows[1].speedup == pytest.approx(3.0)
    assert found.noise == pytest.approx(0.0)
    assert "3.00 [3.00, 3.00]" in render(found)


def test_drift_meets_all_contenders_alike(clock: list[int]) -> None:
    """Both get slower all the time: times spread, ratios do not."""

    def drifting(us: float) -> comparison.Call:
        def call() -> None:
            clock[0] += round(us * 1000 * (1 + clock[0] / 1e9))

        return call

    found = compare([Contender("a", drifting(200.0)), Contender("b", drifting(100.0))], blocks=12, block_us=2000.0)
    assert found.rows[0].high_us > 1.02 * found.rows[0].low_us
    assert found.rows[1].speedup == pytest.approx(2.0, rel=0.02)


def test_threads_that_spin_go_to_sleep_before_every_turn(clock: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    monkeypatch.setattr(comparison, "rest", lambda: happened.append("rest"))

    def noting(name: str) -> comparison.Call:
        def call() -> None:
            happened.append(name)
            clock[0] += 10_000

        return call

    interleave({name: noting(name) for name in "ab"}, blocks=3, block_us=10.0, seed=0)
    turns = happened[8:]  # after four calls of each to find out how often it fits
    assert turns[::3] == ["rest"] * 6
    assert "rest" not in turns[1::3] + turns[2::3]


def test_every_block_holds_every_call_in_an_order_of_the_seed(clock: list[int]) -> None:
    calls: list[str] = []

    def noting(name: str) -> comparison.Call:
        def call() -> None:
            calls.append(name)
            clock[0] += 10_000

        return call

    samples = interleave({name: noting(name) for name in "abc"}, blocks=5, block_us=10.0, seed=3)
    assert {name: len(values) for name, values in samples.items()} == {"a": 5, "b": 5, "c": 5}
    turns = [calls[12 + 2 * turn] for turn in range(15)]
    assert all(set(turns[3 * block : 3 * block + 3]) == set("abc") for block in range(5))
    assert len({tuple(turns[3 * block : 3 * block + 3]) for block in range(5)}) > 1
