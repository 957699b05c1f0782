"""Races within a limit: which plans and blocks there is time for. The clock stands until somebody moves it."""

from dataclasses import asdict, replace

import pytest

from autofuse.measurement.planblocks import Race
from autofuse.measurement.racing import LEAST_BLOCKS, NO_TIME, Terms

TERMS = Terms(seed=0, seconds=10.0, blocks=20, turn_us=1000.0)


class Machine:
    """A clock, and plans that move it."""

    def __init__(self):
        self.now_ns = 0
        self.built = []
        self.expected = []

    def clock(self):
        return self.now_ns

    def spend(self, seconds):
        self.now_ns += round(1e9 * seconds)

    def maker(self, name, build_s=0.0, call_s=0.001, check_s=0.0):
        machine = self

        class Plan:
            expected_s = 0.5

            def problem(self):
                machine.spend(check_s)
                return ""

            def call(self):
                machine.spend(call_s)

            def restore(self):
                pass

        def make():
            machine.spend(build_s)
            machine.built.append(name)
            return Plan()

        return make


def race(machine, makers, **terms):
    """Blocks of each plan, what is wrong with each, and whether anything was left out."""
    run = Race(asdict(replace(TERMS, **terms)), machine.expected.append, machine.clock)
    samples, problems = run.run(run.build(makers), len(makers))
    return [len(own) for own in samples], problems, run.cut_short


def test_without_a_limit_every_plan_runs_however_long_it_takes():
    machine = Machine()
    blocks, problems, cut_short = race(machine, [machine.maker("slow", 60.0, 5.0), machine.maker("fast", 60.0, 4.0)])
    assert blocks == [LEAST_BLOCKS] * 2
    assert problems == ["", ""]
    assert not cut_short


def test_a_limit_that_is_enough_changes_nothing():
    machine = Machine()
    assert race(machine, [machine.maker("a", 0.1), machine.maker("b", 0.1)], limit_s=10.0) == (
        [20, 20],
        ["", ""],
        False,
    )


def test_plans_that_there_is_no_time_to_build_are_not_run_and_the_last_ones_are():
    machine = Machine()
    blocks, problems, cut_short = race(machine, [machine.maker(name, 1.0) for name in "abcd"], limit_s=4.5)
    assert machine.built == ["d", "c"]
    assert blocks == [0, 0, 20, 20]
    assert problems == [NO_TIME, NO_TIME, "", ""]
    assert cut_short


def test_plans_that_there_is_no_time_to_check_are_not_run():
    machine = Machine()
    blocks, problems, _ = race(machine, [machine.maker(name, 0.0, 0.001, 1.0) for name in "abcd"], limit_s=2.5)
    assert [bool(count) for count in blocks] == [False, False, True, True]
    assert problems[:2] == [NO_TIME] * 2


def test_no_block_is_begun_that_would_end_after_the_limit():
    machine = Machine()
    blocks, _, cut_short = race(machine, [machine.maker("long", 0.0, 1.0)], limit_s=3.5)
    assert blocks == [2]  # one call before tells how long it is
    assert machine.now_ns <= 3.5e9
    assert cut_short


@pytest.mark.parametrize("limit_s", [1e-3, -1.0])
def test_the_last_plan_has_a_block_whatever_the_limit(limit_s):
    machine = Machine()
    blocks, problems, _ = race(machine, [machine.maker("a", 1.0), machine.maker("b", 1.0, 1.0)], limit_s=limit_s)
    assert blocks == [0, 1]
    assert problems == [NO_TIME, ""]


def test_what_calls_are_expected_to_take_is_said_before_them():
    machine = Machine()
    race(machine, [machine.maker("long", 0.0, 20.0)])
    check, once, *turns = machine.expected
    assert (check, once) == (0.5, 0.0)
    assert turns == [pytest.approx(60.0)] * LEAST_BLOCKS  # as long as it was seen to take
