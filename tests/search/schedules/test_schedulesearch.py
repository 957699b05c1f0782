"""The seeded search over the schedules of one kernel, with times by a formula."""

import itertools
import math
import sys

import pytest

from autofuse.errors import SearchError
from autofuse.lower.schedule import PLACEMENT, SPLIT, VECTORISED, Schedule
from autofuse.search.schedules import schedulesearch
from autofuse.search.schedules.schedulesearch import BATCH, HOPELESS, tune_schedule
from autofuse.targets.cpu.decisions import UNROLL, VECTOR_BITS, cpu_schedule

CHOICES = {UNROLL: (1, 2, 4, 8), VECTOR_BITS: (256, 512), VECTORISED: ("auto", "grid", "stream")}
WIDE = {**CHOICES, SPLIT: (0, 1, 4, 8, 32), PLACEMENT: ("scratch", "recompute")}
DEFAULT = {Schedule(): 100.0}


class Meter:
    """Times by a formula; keeps the batches and limits that it is asked about."""

    def __init__(self, cost, budget=1000):
        self.cost, self.budget, self.batches, self.limits = cost, budget, [], []

    @property
    def asked(self):
        return [schedule for batch in self.batches for schedule in batch]

    def __call__(self, schedules, limit):
        affordable = schedules[: self.budget - len(self.asked)]
        self.batches.append(affordable)
        self.limits.append(limit)
        return [self.cost(schedule) for schedule in affordable]


def by_unroll(schedule):
    return 100.0 / schedule[UNROLL] + (schedule[VECTORISED] != "stream") + schedule[VECTOR_BITS] / 1e6


def search(meter, trials, seed=0, first=(), choices=CHOICES):
    return tune_schedule(choices, meter, trials, seed, DEFAULT, first)


@pytest.fixture
def studies(monkeypatch):
    """The studies that are made."""
    found, real = [], schedulesearch._study

    def kept(seed):
        found.append(real(seed))
        return found[-1]

    monkeypatch.setattr(schedulesearch, "_study", kept)
    return found


# ---- what it finds ---------------------------------------------------------------------------------------------------


def test_a_small_space_is_tried_whole():
    meter = Meter(by_unroll)
    best, us, tried = search(meter, 24)
    assert (best[UNROLL], best[VECTORISED], best[VECTOR_BITS]) == (8, "stream", 256)
    assert us == pytest.approx(by_unroll(best))
    assert tried == len(meter.asked) == 4 * 2 * 3 - 1  # the default is known
    combinations = itertools.product(*CHOICES.values())
    every = {Schedule.of(dict(zip(CHOICES, values, strict=True))) for values in combinations}
    assert {*meter.asked, Schedule()} == every


@pytest.mark.parametrize("seed", range(4))
def test_a_good_schedule_of_a_large_space_is_found(seed):
    """Of 240, with 32 trials; 48 have the best unrolling, which random proposals would find as well."""
    best, _, tried = search(Meter(by_unroll), 32, seed, choices=WIDE)
    assert best[UNROLL] == 8
    assert tried <= 31


def test_the_default_stays_where_nothing_is_faster():
    best, us, _ = search(Meter(lambda schedule: 200.0), 12)
    assert (best, us) == (Schedule(), 100.0)


def test_schedules_that_fail_are_passed_over():
    best, us, _ = search(Meter(lambda schedule: math.inf if schedule[UNROLL] == 8 else by_unroll(schedule)), 24)
    assert best[UNROLL] == 4
    assert us < math.inf


def test_without_choices_nothing_is_measured():
    assert tune_schedule({}, Meter(by_unroll), 24, 0, DEFAULT) == (Schedule(), 100.0, 0)


# ---- what it asks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trials", [1, 2, 7, 20, 100])
def test_no_schedule_is_measured_twice_and_no_more_than_allowed(trials):
    meter = Meter(by_unroll)
    _, _, tried = search(meter, trials)
    assert len(meter.asked) == len(set(meter.asked)) == tried <= trials - 1
    assert Schedule() not in meter.asked


def test_the_search_ends_with_the_budget():
    for budget in (0, 1, 3, 6):
        assert search(Meter(by_unroll, budget), 20)[2] == budget


def test_the_same_seed_asks_the_same_questions():
    meters = [Meter(by_unroll) for _ in range(3)]
    for meter, seed in zip(meters, (5, 5, 6), strict=True):
        search(meter, 20, seed, choices=WIDE)
    assert meters[0].batches == meters[1].batches
    assert meters[0].asked != meters[2].asked


def test_guesses_are_tried_first_and_in_their_order():
    guesses = [
        cpu_schedule(unroll=8),
        cpu_schedule(lane="grid"),
        cpu_schedule(unroll=1, vector_bits=256),
    ]
    meter = Meter(by_unroll)
    search(meter, 10, first=[*guesses, guesses[0]])
    assert meter.asked[:3] == guesses
    assert len(meter.asked) == 9


def test_schedules_are_asked_for_in_batches():
    meter = Meter(by_unroll)
    search(meter, 20, choices=WIDE)
    sizes = [len(batch) for batch in meter.batches]
    assert max(sizes) == BATCH
    assert len(sizes) < 19  # one by one


def test_the_limit_follows_the_best_time():
    meter = Meter(by_unroll)
    search(meter, 20, first=[cpu_schedule(unroll=8)], choices=WIDE)
    assert meter.limits[0] == HOPELESS * 100.0
    assert meter.limits[1] <= HOPELESS * by_unroll(cpu_schedule(unroll=8))
    assert meter.limits == sorted(meter.limits, reverse=True)


# ---- what Optuna is told ---------------------------------------------------------------------------------------------


def test_optuna_is_told_what_was_hopeless_and_what_failed(studies):
    def cost(schedule):
        return {1: math.inf, 2: 300.5, 4: 150.0, 8: 300.0}[schedule[UNROLL]]

    search(Meter(cost), 24)
    (study,) = studies
    told = {(trial.params["unroll"], trial.state.name, trial.value) for trial in study.trials}
    assert told == {
        (1, "PRUNED", None),
        (2, "PRUNED", 300.5),
        (4, "COMPLETE", 150.0),
        (4, "COMPLETE", 100.0),
        (8, "COMPLETE", 300.0),
    }


def test_without_optuna_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SearchError, match=r"pip install 'autofuse\[tune\]'"):
        search(Meter(by_unroll), 4)
