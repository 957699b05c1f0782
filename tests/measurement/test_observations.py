"""Passes of one kernel become one observation; what nothing is known of is left out."""

import math
from dataclasses import replace

import pytest

from autofuse.measurement.database import Database
from autofuse.measurement.kernelrecords import AGAIN_POLICY, PRUNED_POLICY
from autofuse.measurement.observations import observations
from autofuse.plan.identity import MEASUREMENT_POLICY
from autofuse.targets.cpu.decisions import cpu_schedule
from tests.fixtures.recorded import HERE, KERNEL, PROGRAM, fill, measured


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path / "r.db", HERE) as opened:
        yield opened


def test_passes_are_put_together(database):
    fill(database)
    twice, once, failed = observations(database.exported())
    assert [made.samples_us for made in twice.passes] == [(3.0, 1.0 / 3, 2.0), (0.5, 4.0)]
    assert [made.us for made in twice.passes] == [1.0 / 3, 0.5]
    assert (twice.us, twice.status, twice.threads) == (1.0 / 3, "ok", HERE.threads)
    assert (twice.source, twice.program, twice.description) == (KERNEL, PROGRAM, '{"model": "a CPU"}')
    assert (once.schedule, once.passes[0].load) == (cpu_schedule(unroll=2), None)
    assert (failed.status, failed.message, failed.us, failed.passes) == ("crash", "SIGSEGV", math.inf, ())


def test_passes_come_in_their_order_whenever_they_were_recorded(database):
    database.keep([KERNEL], [PROGRAM])
    for number in (3, 1, 2):
        database.add(measured("k1", float(number), number=number))
    (seen,) = observations(database.exported())
    assert [made.us for made in seen.passes] == [1.0, 2.0, 3.0]


def test_one_failure_is_a_failure(database):
    database.keep([KERNEL], [PROGRAM])
    database.add(measured())
    database.add(replace(measured(number=2), status="wrong", samples_us=(), message="off"))
    (seen,) = observations(database.exported())
    assert (seen.status, seen.message, len(seen.passes), seen.us) == ("wrong", "off", 1, math.inf)


def test_second_times_of_the_tuner_are_passes_and_what_was_given_up_is_none(database):
    database.keep([KERNEL], [PROGRAM])
    for policy, us in ((MEASUREMENT_POLICY, 3.0), (AGAIN_POLICY, 2.0), (PRUNED_POLICY, 1.0)):
        database.add(replace(measured("k1", us), policy=policy))
    (seen,) = observations(database.exported())
    assert [made.us for made in seen.passes] == [3.0, 2.0]
