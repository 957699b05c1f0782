"""Tuning that is killed at any moment, and started again: nothing measured is lost, and the plan is the same.

A fake timer stands for the machine: what a kernel takes is a function of its digest and schedule. So nothing in a plan
may differ from that of a run which nobody killed, and plan files are compared byte for byte. Races of whole plans, at
the end of a run, are records too: a run that is killed in the middle of one runs that one again.
"""

import shutil
from contextlib import ExitStack

import numpy as np
import pytest

from autofuse.measurement.database import Database
from autofuse.plan.file import load
from autofuse.plan.verify import verify
from tests.fixtures.kills import DATABASE, PLAN, KillableRuns

PROGRAM = "attention"
KILLED = -9
LAST_MOMENTS = 5
"""At least so many moments belong to the saving of the plan, and to what comes right before."""


@pytest.fixture(scope="module")
def runs():
    with KillableRuns() as started:
        yield started


@pytest.fixture(scope="module")
def alone(runs, tmp_path_factory):
    """A run that nobody kills, and its plan."""
    folder = tmp_path_factory.mktemp("alone")
    ended = runs.run(PROGRAM, folder)
    assert ended.code == 0, ended.error
    return ended, (folder / PLAN).read_bytes()


def records(folder):
    with Database(folder / DATABASE) as base:
        return base.records(all_devices=True)


def check_next_run(runs, alone, folder, stored):
    """The next run finds all that was `stored`, measures only the rest, and ends with the plan of the run alone."""
    whole, plan = alone
    if (folder / PLAN).exists():  # a plan is there whole or not at all
        assert (folder / PLAN).read_bytes() == plan
    after = runs.run(PROGRAM, folder)
    assert after.code == 0, after.error
    assert (folder / PLAN).read_bytes() == plan
    kept = records(folder)
    assert {record.uid for record in kept} >= {*stored, *after.stored}
    assert len(kept) == len(whole.stored)
    measured = {(m.kernel, m.schedule, m.policy) for m in (record.measurement for record in kept)}
    assert len(measured) == len(kept), "something was measured twice"
    assert len(after.stored) <= len(whole.stored) - len(stored)


def moment_of(alone, seed):
    return int(np.random.default_rng(seed).integers(1, alone[0].moments + 1))


def check_killed_at(runs, alone, folder, moment):
    ended = runs.run(PROGRAM, folder, die_at=moment)
    assert ended.code == KILLED, ended.error
    check_next_run(runs, alone, folder, ended.stored)


def test_the_run_alone_measures_and_fails_and_plans(alone, tmp_path):
    """What is killed below is a whole tuning: kernels, schedules, wrong answers, and a plan with a certificate."""
    ended, plan = alone
    (tmp_path / PLAN).write_bytes(plan)
    document = load(tmp_path / PLAN)
    verify(document)
    assert document.certificate.measured > 3
    assert document.certificate.schedules_tried > 3
    assert len(ended.stored) > 20
    assert ended.moments > 4 * len(ended.stored)


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_a_random_moment(runs, alone, tmp_path, seed):
    check_killed_at(runs, alone, tmp_path, moment_of(alone, seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 206))
def test_killed_at_each_of_many_random_moments(runs, alone, tmp_path, seed):
    check_killed_at(runs, alone, tmp_path, moment_of(alone, seed))


@pytest.mark.parametrize(
    "back", [pytest.param(n, marks=pytest.mark.slow if n % 2 else ()) for n in range(LAST_MOMENTS)]
)
def test_killed_while_the_plan_is_saved(runs, alone, tmp_path, back):
    check_killed_at(runs, alone, tmp_path, alone[0].moments - back)


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(1, 31))
def test_killed_while_the_database_is_made(runs, alone, tmp_path, moment):
    check_killed_at(runs, alone, tmp_path, moment)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, *range(100, 140)))])
def test_killed_from_outside_at_a_random_time(runs, alone, tmp_path, seed):
    """Between two statements, in the middle of one, or while a page is written."""
    seconds = float(np.random.default_rng(seed).uniform(0.0, alone[0].seconds))
    ended = runs.run(PROGRAM, tmp_path, kill_after_s=seconds)
    assert ended.code in (KILLED, 0), ended.error
    check_next_run(runs, alone, tmp_path, ended.stored)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 10))])
def test_killed_again_and_again(runs, alone, tmp_path, seed):
    rng = np.random.default_rng(seed)
    stored = []
    for _ in range(6):
        ended = runs.run(PROGRAM, tmp_path, die_at=int(rng.integers(1, alone[0].moments // 2)))
        assert ended.code in (KILLED, 0), ended.error
        stored += ended.stored
    check_next_run(runs, alone, tmp_path, stored)


def test_a_disk_that_becomes_full_is_one_error_and_loses_nothing(runs, alone, tmp_path):
    ended = runs.run(PROGRAM, tmp_path, file_bytes=150_000)
    assert ended.code == 1
    assert "MeasureError: " in ended.error
    assert "records stored before are kept" in ended.error
    assert 0 < len(ended.stored) < len(alone[0].stored)
    check_next_run(runs, alone, tmp_path, ended.stored)


# ---- other processes -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def processes():
    """Processes whose sets of texts are in different orders."""
    with ExitStack() as stack:
        yield [stack.enter_context(KillableRuns(hash_seed)) for hash_seed in range(3)]


@pytest.mark.parametrize(
    "program", ["random", *(pytest.param(name, marks=pytest.mark.slow) for name in ("attention", "layers"))]
)
@pytest.mark.slow
def test_the_same_records_seed_and_trials_give_the_same_plan_in_every_process(processes, tmp_path, program):
    """From no records, and from those that a killed run has left."""
    options = {"trials": 30, "seed": 5}
    begun = tmp_path / "begun"
    begun.mkdir()
    assert processes[0].run(program, begun, die_at=60, **options).code == KILLED
    plans = set()
    for number, process in enumerate(processes):
        for name in ("empty", "half"):
            folder = tmp_path / f"{name}-{number}"
            if name == "half":
                shutil.copytree(begun, folder)
            else:
                folder.mkdir()
            ended = process.run(program, folder, **options)
            assert ended.code == 0, ended.error
            plans.add((folder / PLAN).read_bytes())
    assert len(plans) == 1
