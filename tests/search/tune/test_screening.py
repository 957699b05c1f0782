"""Which partitions get their schedules tuned, in much time and in little."""

import pytest

from autofuse.search.budget.budget import Budget
from autofuse.search.policies.fixed import Fixed
from autofuse.search.schedules.scheduletuner import ScheduleTuner
from autofuse.search.tune.finalists import Races
from autofuse.testing.counted.device import BATCH
from autofuse.testing.sketches import softmax_graph
from tests.fixtures.benches import CountedBench
from tests.fixtures.tuning import tuner_of

GRAPH = softmax_graph(64, 64)
TWO = Fixed((("peak", "shifted", "grown", "total"), ("share",)), "rule:two")


def largest_batch(kernel, schedule, ns):
    """The more elements are issued together, the better."""
    return ns / schedule[BATCH]


@pytest.fixture
def screened(monkeypatch):
    """How many plans were screened, each time."""
    counts, in_order = [], Races.in_order

    def counted(races, plans, *terms):
        counts.append(len(plans))
        return in_order(races, plans, *terms)

    monkeypatch.setattr(Races, "in_order", counted)
    return counts


@pytest.fixture
def tuned(monkeypatch):
    """The partitions whose schedules were tuned, by the classes of their kernels."""
    found, tune = [], ScheduleTuner.tune

    def noted(schedules, kernels, share):
        found.append(tuple(kernel.candidate.digest for kernel in kernels))
        tune(schedules, kernels, share)

    monkeypatch.setattr(ScheduleTuner, "tune", noted)
    return found


def test_with_time_the_fastest_partitions_are_screened_and_tuned(screened, tuned):
    bench = CountedBench(GRAPH, largest_batch)
    tuner_of(GRAPH, bench, Budget(100.0)).measured_plan(rules=[TWO])
    assert screened
    assert screened[0] > 1
    assert len(set(tuned)) > 1


def test_in_little_time_nothing_is_screened_and_the_chosen_partition_is_tuned(screened, tuned):
    bench = CountedBench(GRAPH, lambda *call: 8.0 * largest_batch(*call))
    plan = tuner_of(GRAPH, bench, Budget(6.0)).measured_plan(rules=[TWO])
    assert screened == []
    assert plan.certificate.schedules_tried >= 3
    assert len(set(tuned)) == 1
    assert any(note.startswith("compared with rule:two before all of its schedules were tuned") for note in plan.notes)
