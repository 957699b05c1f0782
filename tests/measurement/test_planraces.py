"""Races of whole plans: with a real worker, and what becomes of the answers of one."""

from dataclasses import replace

import numpy as np
import pytest

from autofuse.measurement import planraces
from autofuse.measurement.client import Bench
from autofuse.measurement.inputvalues import InputValues
from autofuse.measurement.planraces import PlanRaces
from autofuse.measurement.racing import Terms
from autofuse.measurement.workerpool import Outcome
from autofuse.plan.document import Launch
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.testing.graphs import random_inputs
from autofuse.testing.partitions import identity_here, plan_of
from autofuse.testing.sketches import Sketch
from tests.fixtures.failing import FAILURES, GRAPH, bench_on

TERMS = Terms(seed=0, seconds=3600.0, blocks=8, turn_us=10.0, decides=False)
"""All blocks are taken, whatever the times are that a busy machine gives."""


def plans():
    """Every node on its own; and the elementwise ones in one kernel."""
    groups = [["fine"], *([name] for name in FAILURES), ["columns"], ["rows"]]
    return [plan_of(GRAPH, groups), plan_of(GRAPH, [["fine", *FAILURES], ["columns"], ["rows"]])]


# ---- in a worker -----------------------------------------------------------------------------------------------------


def test_plans_of_other_graphs_bring_their_constants(database):
    table = np.arange(512, dtype=np.float32).reshape(16, 32)

    def graph(turned):
        sketch = Sketch("scaled")
        x = sketch.arg("f32[16,32]")
        factor = sketch.transpose(sketch.constant(table.T.copy())) if turned else sketch.constant(table)
        return sketch.finish([sketch.op("multiply", x, factor, name="y")])

    usual = graph(turned=False)
    inputs = random_inputs(usual, np.random.default_rng(0))
    with Bench(usual, inputs, database, identity_here()) as bench:
        times = bench.plans([plan_of(usual), plan_of(graph(turned=True))], replace(TERMS, blocks=7))
    assert [time.problem for time in times] == ["", ""]
    assert all(len(time.samples_us) == 7 for time in times)


def test_plans_are_timed_beside_each_other(shared):
    first, second = shared.plans(plans(), replace(TERMS, blocks=9))
    assert len(first.samples_us) == len(second.samples_us) == 9
    assert all(us > 0 for us in (*first.samples_us, *second.samples_us))
    assert first.problem == second.problem == ""


def test_a_plan_that_crashes_is_found_and_the_others_are_timed(faulty):
    good, other = plans()
    times = faulty.plans([good, replace(other, name="crash"), other], TERMS)
    assert [len(time.samples_us) for time in times] == [8, 0, 8]
    assert "SIGSEGV" in times[1].problem


def test_a_plan_that_cannot_be_built_is_found(shared):
    good, _ = plans()
    both = replace(good.kernels[-1], nodes=("columns", "rows"), outputs=("columns", "rows"), name="both")
    bad = replace(
        good, kernels=(*good.kernels[:-2], both), order=tuple(Launch(n) for n in range(len(good.kernels) - 1))
    )
    times = shared.plans([bad, good], TERMS)
    assert times[0].samples_us == ()
    assert "is not a legal fusion" in times[0].problem
    assert len(times[1].samples_us) == 8


def test_a_race_is_recorded_and_not_run_again(database):
    with bench_on(database) as bench:
        first = bench.plans(plans(), TERMS)
    with bench_on(database) as later:
        assert later.plans(plans(), TERMS) == first
        assert later._worker._process is None


@pytest.mark.slow
def test_another_replica_is_in_another_process(database):
    with bench_on(database) as bench:
        lost = [(bench.plans(plans(), replace(TERMS, replica=n)), bench._worker.restarts)[1] for n in (0, 0, 1, 1, 2)]
        assert lost == [0, 0, 1, 1, 2]
        assert bench.open_s > 0
    with bench_on(database) as later:
        later.plans(plans(), replace(TERMS, replica=2))
        assert later._worker._process is None


# ---- what becomes of answers -----------------------------------------------------------------------------------------


class Answers:
    """Stands where the worker does: as many microseconds as the plan has kernels; what `fails` says fails."""

    def __init__(self, fails=lambda texts: False, problem="", cut_short=False):
        self.fails, self.problem, self.cut_short = fails, problem, cut_short
        self.payloads = []

    def __call__(self, payload, arrays, build_s):
        self.payloads.append(payload)
        texts = payload["plans"]
        if self.fails(texts):
            return Outcome("crash", "too much memory")
        samples = [[float(text.count('"digest"'))] * payload["blocks"] for text in texts]
        data = {"samples_us": samples, "problems": [self.problem] * len(texts), "cut_short": self.cut_short}
        return Outcome("ok", "", data)


def races_on(database, answers, inputs=None):
    given = random_inputs(GRAPH, np.random.default_rng(0)) if inputs is None else inputs
    return PlanRaces(GRAPH, InputValues(GRAPH, given), database, "cpu/0", answers)


def test_plans_that_fail_only_together_are_timed_one_after_another_and_not_recorded(database):
    answers = Answers(fails=lambda texts: len(texts) > 1)
    times = races_on(database, answers).times(plans(), TERMS)
    assert [len(time.samples_us) for time in times] == [8, 8]
    assert [time.problem for time in times] == ["", ""]
    assert [len(payload["plans"]) for payload in answers.payloads] == [2, 1, 1, 1, 1]
    sound = Answers()
    races_on(database, sound).times(plans(), TERMS)
    assert len(sound.payloads) == 1


def test_what_is_wrong_with_a_plan_is_recorded_with_its_race(database):
    times = races_on(database, Answers(problem="%y is off")).times(plans(), TERMS)
    assert [time.problem for time in times] == ["%y is off"] * 2
    unasked = Answers()
    assert races_on(database, unasked).times(plans(), TERMS) == times
    assert unasked.payloads == []


def test_a_race_that_its_limit_cut_short_is_not_recorded(database):
    """Another run may have more time."""
    races_on(database, Answers(cut_short=True)).times(plans(), replace(TERMS, limit_s=0.5))
    answers = Answers()
    races_on(database, answers).times(plans(), TERMS)
    assert len(answers.payloads) == 1


def test_a_limit_that_a_race_kept_is_no_part_of_what_was_asked(database):
    races_on(database, Answers()).times(plans(), replace(TERMS, limit_s=1.5))
    unasked = Answers()
    races_on(database, unasked).times(plans(), replace(TERMS, limit_s=1.25))
    assert unasked.payloads == []


@pytest.mark.parametrize("terms", [replace(TERMS, seed=1), replace(TERMS, blocks=9), replace(TERMS, decides=True)])
def test_a_race_on_other_terms_is_another(database, terms):
    races_on(database, Answers()).times(plans(), TERMS)
    answers = Answers()
    races_on(database, answers).times(plans(), terms)
    (payload,) = answers.payloads
    assert (payload["seed"], payload["blocks"], payload["decides"]) == (terms.seed, terms.blocks, terms.decides)


def test_records_keep_the_names_that_they_were_made_with():
    assert set(TERMS.stored()) == {"seed", "seconds", "blocks", "turn_us", "decides", "sitting"}


def test_a_race_of_other_plans_or_arguments_is_another(database):
    races_on(database, Answers()).times(plans(), TERMS)
    first, second = plans()
    kernel, *others = second.kernels
    rescheduled = replace(second, kernels=(replace(kernel, schedule=cpu_schedule(unroll=1)), *others))
    for those in ([second, first], [first], [first, rescheduled]):
        answers = Answers()
        races_on(database, answers).times(those, TERMS)
        assert len(answers.payloads) == 1
    answers = Answers()
    races_on(database, answers, random_inputs(GRAPH, np.random.default_rng(1))).times(plans(), TERMS)
    assert len(answers.payloads) == 1


def test_every_place_in_a_race_has_a_record_of_its_own():
    entries = planraces._entries(plans(), TERMS, "inputs")
    assert len(set(entries)) == 2
