"""What the worker runs for the tuner, called in this process."""

from types import SimpleNamespace

import numpy as np
import pytest

from autofuse.errors import MeasureError
from autofuse.ir.graphtext import to_text
from autofuse.lower.schedule import Schedule
from autofuse.measurement import bench, planblocks
from autofuse.measurement.checks import WrongAnswerError
from autofuse.measurement.racing import LEAST_BLOCKS
from autofuse.measurement.timer import Timing
from autofuse.measurement.worker import Wait
from autofuse.plan import codec
from autofuse.plan.identity import identity_to_json
from autofuse.targets.base import find_target
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.testing.graphs import random_inputs
from autofuse.testing.partitions import plan_of
from autofuse.testing.sketches import Sketch, softmax_graph
from tests.fixtures.failing import ENOUGH_US

IDENTITY = identity_to_json(find_target("cpu", threads=1).identity)
USED = ("executable", "arrays", "backend")
LIMITS = {"deadline_s": 60.0, "left_s": None}
NOTHING_IS_WORTH_IT = -1e9
"""Microseconds: beside its entry a tiny kernel may be read as taking less than no time, but never as little as this."""
NAMES = ["peak", "shifted", "grown", "total", "share"]


def no_wait():
    """Nobody waits for these runners."""
    return Wait(lambda seconds: None)


def open_on(graph, inputs, session="s", held_bytes=1 << 30, cold=False):
    constants = {}
    text = to_text(graph, constants)
    arrays = {f"input{n}": array for n, array in enumerate(inputs)} | {f"@{k}": v for k, v in constants.items()}
    payload = {"session": session, "text": text, "identity": IDENTITY, "held_bytes": held_bytes, "cold": cold}
    return bench.open_session(payload, arrays, no_wait())


@pytest.fixture
def graph():
    return softmax_graph(8, 16)


@pytest.fixture
def session(graph):
    open_on(graph, random_inputs(graph, np.random.default_rng(0)))
    return bench._sessions["s"]


def falsify(session, name):
    """Make the interpreter's value another one than it is."""
    value = session.graph.value_by_name[name]
    session.values.of([value])
    session.values._held[value] *= np.float32(1.01)


def kernel_payload(nodes, outputs, schedule=Schedule(), session="s"):  # noqa: B008 - frozen
    plain = {"nodes": nodes, "outputs": outputs, "schedule": schedule.to_json()}
    return {"session": session, "time_cap_us": ENOUGH_US, "worth_us": None, "expected_us": 0.0, **LIMITS, **plain}


def plans_payload(plans, **options):
    texts = [codec.to_text(codec.encode(plan), None) for plan in plans]
    return {
        "session": "s",
        "plans": texts,
        "blocks": 9,
        "seed": 0,
        "turn_us": 1.0,
        "seconds": 60.0,
        "decides": True,
        "limit_s": None,
        **LIMITS,
        **options,
    }


# ---- sessions --------------------------------------------------------------------------------------------------------


def test_one_session_is_held_at_a_time(graph, session):
    open_on(graph, session.inputs, session="later")
    with pytest.raises(MeasureError, match="no such session"):
        bench.time_kernel(kernel_payload(["peak"], ["peak"]), {}, no_wait())


def test_constants_come_with_the_session():
    sketch = Sketch("constants")
    x = sketch.arg("f32[1000]")
    table = sketch.constant(np.linspace(0, 1, 1000, dtype=np.float32), "table")
    graph = sketch.finish([sketch.op("add", x, table, name="sum")])
    open_on(graph, random_inputs(graph, np.random.default_rng(0)))
    assert bench.time_kernel(kernel_payload(["sum"], ["sum"]), {}, no_wait())["samples_us"]


# ---- kernels ---------------------------------------------------------------------------------------------------------


def test_a_kernel_is_timed_on_the_interpreters_own_intermediates(session):
    answer = bench.time_kernel(kernel_payload(["grown", "total"], ["total"]), {}, no_wait())
    assert len(answer["samples_us"]) >= 3
    assert all(us > 0 for us in answer["samples_us"])


@pytest.mark.parametrize("run", ["first", "again"])
def test_times_are_without_what_a_call_takes_beside_its_kernel(session, monkeypatch, run):
    asked = []
    monkeypatch.setattr(bench, "timed", lambda *_: Timing(10.0, 9.0, 11.0, (9.0, 10.0, 4.02), pruned=False))
    monkeypatch.setattr(session.target, "entry_us", lambda arrays: asked.append(arrays) or 4.0)
    payload = kernel_payload(["grown", "total"], ["total"])
    answer = bench.time_kernel(payload, {}, no_wait())
    if run == "first":
        # of what is hardly longer than the entry, a twentieth is left
        assert answer["samples_us"] == [5.0, 6.0, pytest.approx(4.02 / 20)]
    else:
        again = {**payload, "kernels": [payload], "rounds": 2, "round_us": 0.0, "seed": 0}
        assert bench.time_again(again, {}, no_wait())["fastest_us"] == [[pytest.approx(4.02 / 20)] * 2]
    assert asked == [2]  # an array that is read, and one that is written


def test_an_entry_that_takes_no_time_there_is_names_the_target(session, monkeypatch):
    monkeypatch.setattr(session.target, "entry_us", lambda _: float("nan"))
    with pytest.raises(MeasureError, match=r"Target\.entry_us gave nan for 2 arrays"):
        bench.time_kernel(kernel_payload(["grown", "total"], ["total"]), {}, no_wait())


def waits(run, payload):
    """How long the tuner is told to wait, one after another."""
    told = []
    run(payload, {}, Wait(told.append))
    return told


def test_how_long_to_wait_for_a_kernel_follows_what_it_is_expected_to_take(session):
    payload = {**kernel_payload(["grown"], ["grown"]), "deadline_s": 1.0}
    session.values.of([session.graph.value_by_name["grown"]])
    session.values._seconds[session.graph.node_by_name["grown"]] = 0.01
    _, usual, _, _ = waits(bench.time_kernel, payload)
    assert usual == 1.1
    _, by_the_model, _, _ = waits(bench.time_kernel, {**payload, "expected_us": 30e6})
    assert by_the_model == 301.0
    session.values._seconds[session.graph.node_by_name["grown"]] = 40.0
    _, by_the_interpreter, _, _ = waits(bench.time_kernel, payload)
    assert by_the_interpreter == 401.0
    _, late, _, _ = waits(bench.time_kernel, {**payload, "left_s": 15.0})
    assert late == 16.0


def test_a_kernel_that_is_seen_to_take_long_is_given_longer(session, monkeypatch):
    hours = iter(range(0, 10**18, 20 * 10**9))  # a look at the clock every twenty seconds
    monkeypatch.setattr(bench, "perf_counter_ns", lambda: next(hours))
    payload = {**kernel_payload(["grown"], ["grown"]), "deadline_s": 1.0}
    assert waits(bench.time_kernel, payload)[-1] == 801.0
    again = {"session": "s", "kernels": [payload], "rounds": 2, "round_us": 1.0, "time_cap_us": 1.0, "seed": 0}
    assert waits(bench.time_again, {**again, **LIMITS})[-1] == 860.0


def test_values_that_arithmetic_may_be_slow_with_are_told(graph):
    (x,) = random_inputs(graph, np.random.default_rng(0))
    payload = kernel_payload(["peak"], ["peak"])
    for first, unusual in ((x[0, 0], False), (np.inf, True), (1e-40, True)):
        x[0, 0] = first
        open_on(graph, [x])
        assert bench.time_kernel(payload, {}, no_wait())["unusual"] is unusual


def test_a_wrong_answer_is_not_timed(session):
    falsify(session, "total")
    with pytest.raises(WrongAnswerError, match=r"%total\[0\] is off"):
        bench.time_kernel(kernel_payload(["grown", "total"], ["total"]), {}, no_wait())


def test_the_schedule_is_the_one_asked_for(session, monkeypatch):
    seen = []
    real = session.target.runners
    monkeypatch.setattr(session.target, "runners", lambda kernel, asked: seen.extend(asked) or real(kernel, asked))
    bench.time_kernel(kernel_payload(["grown"], ["grown"], cpu_schedule(unroll=2)), {}, no_wait())
    assert seen == [cpu_schedule(unroll=2)]


def test_a_kernel_that_is_not_worth_timing_gets_few_samples(session):
    payload = kernel_payload(["grown", "total"], ["total"])
    given_up = bench.time_kernel({**payload, "worth_us": NOTHING_IS_WORTH_IT}, {}, no_wait())
    assert (len(given_up["samples_us"]), given_up["pruned"]) == (3, True)
    assert not bench.time_kernel({**payload, "worth_us": None}, {}, no_wait())["pruned"]


def test_kernels_are_timed_again_in_rounds_and_then_let_go(session, monkeypatch):
    kernels = [kernel_payload(["grown"], ["grown"]), kernel_payload(["peak"], ["peak"])]
    for payload in kernels:
        bench.time_kernel(payload, {}, no_wait())
    order = []
    real = bench.measure
    monkeypatch.setattr(bench, "measure", lambda call, policy, clock: order.append(call) or real(call, policy))
    again = {
        "session": "s",
        "kernels": kernels,
        "rounds": 3,
        "round_us": 1.0,
        "time_cap_us": 100.0,
        "seed": 1,
        **LIMITS,
    }
    found = bench.time_again(again, {}, no_wait())["fastest_us"]
    assert [len(fastest) for fastest in found] == [3, 3]
    assert all(us > 0 for fastest in found for us in fastest)
    assert [len(set(order[at : at + 2])) for at in (0, 2, 4)] == [2, 2, 2]
    assert session.ready == {}
    assert bench.time_again(again, {}, no_wait())["fastest_us"] == [[], []]


def test_a_moment_is_more_than_one_sample(session, monkeypatch):
    payload = kernel_payload(["grown"], ["grown"])
    bench.time_kernel(payload, {}, no_wait())
    taken = []
    real = bench.measure
    monkeypatch.setattr(bench, "measure", lambda call, policy, clock: taken.append(real(call, policy)) or taken[-1])
    again = {
        "session": "s",
        "kernels": [payload],
        "rounds": 4,
        "round_us": 1.0,
        "time_cap_us": ENOUGH_US,
        "seed": 0,
        **LIMITS,
    }
    bench.time_again(again, {}, no_wait())
    assert all(len(timing.samples_us) >= 3 for timing in taken)


def test_rounds_are_apart(session, monkeypatch):
    payload = kernel_payload(["grown"], ["grown"])
    bench.time_kernel(payload, {}, no_wait())
    again = {
        "session": "s",
        "kernels": [payload],
        "rounds": 3,
        "round_us": 20_000.0,
        "time_cap_us": 10.0,
        "seed": 0,
        **LIMITS,
    }
    now, took_ns, pauses = [0], iter([5_000_000, 19_000_000, 21_000_000]), []

    def moment(*_):
        now[0] += next(took_ns)
        return Timing(1.0, 1.0, 1.0, (1.0,), pruned=False)

    monkeypatch.setattr(bench, "timed", moment)
    monkeypatch.setattr(session.target, "clock", lambda: now[0])
    monkeypatch.setattr(session.target, "pause", pauses.append)
    bench.time_again(again, {}, no_wait())
    assert pauses == pytest.approx([0.015, 0.001])  # the last one took longer than a round


def test_a_kernel_that_was_given_up_is_not_held(session):
    bench.time_kernel({**kernel_payload(["grown"], ["grown"]), "worth_us": NOTHING_IS_WORTH_IT}, {}, no_wait())
    assert session.ready == {}


def test_kernels_compiled_ahead_are_found_when_they_are_timed(session, monkeypatch):
    schedules = [cpu_schedule(unroll=1), Schedule(), cpu_schedule(unroll=2)]
    payload = {**kernel_payload(["grown"], ["grown"]), "schedules": [schedule.to_json() for schedule in schedules]}
    assert bench.compile_kernels(payload, {}, no_wait()) == {"compiled": 3}
    assert len(session.compiled) == len(schedules)
    monkeypatch.setattr(session.target, "runners", lambda *_: pytest.fail("compiled once more"))
    for schedule in schedules:
        assert bench.time_kernel(kernel_payload(["grown"], ["grown"], schedule), {}, no_wait())["samples_us"]
    assert session.compiled == {}


# ---- plans -----------------------------------------------------------------------------------------------------------


def test_plans_are_timed_in_interleaved_blocks(graph, session, monkeypatch):
    plans = [plan_of(graph), plan_of(graph, [[name] for name in NAMES])]
    order = []
    monkeypatch.setattr(planblocks, "fastest_call", lambda call, *_: order.append(call) or 1.0)
    answer = bench.time_plans(plans_payload(plans), {}, no_wait())
    assert answer["problems"] == ["", ""]
    assert [len(samples) for samples in answer["samples_us"]] == [9, 9]
    blocks = [order[k : k + 2] for k in range(0, len(order), 2)]
    assert all(len(set(block)) == 2 for block in blocks)
    assert len({block[0] for block in blocks}) == 2  # either comes first


def test_blocks_end_with_the_time_but_some_are_always_taken(graph, session):
    answer = bench.time_plans(plans_payload([plan_of(graph)], blocks=50, seconds=0.0), {}, no_wait())
    assert len(answer["samples_us"][0]) == LEAST_BLOCKS
    answer = bench.time_plans(plans_payload([plan_of(graph)], blocks=2, seconds=0.0), {}, no_wait())
    assert len(answer["samples_us"][0]) == 2


def test_calls_before_the_first_block_are_part_of_the_time(graph, session, monkeypatch):
    now = [0]

    def look():
        now[0] += 1
        return now[0]

    def takes_long(run):
        now[0] += 300_000_000
        return ""

    monkeypatch.setattr(session.target, "clock", look)
    monkeypatch.setattr(bench._PlanRun, "problem", takes_long)
    for seconds, blocks in ((0.3, LEAST_BLOCKS), (0.4, 50)):
        answer = bench.time_plans(plans_payload([plan_of(graph)], blocks=50, seconds=seconds), {}, no_wait())
        assert len(answer["samples_us"][0]) == blocks


def test_a_plan_with_a_wrong_answer_is_timed_and_named(graph, session):
    falsify(session, "share")
    answer = bench.time_plans(plans_payload([plan_of(graph)]), {}, no_wait())
    assert "%share[0, 0] is off" in answer["problems"][0]
    assert len(answer["samples_us"][0]) == 9


def test_timing_plans_leaves_the_arguments_alone():
    sketch = Sketch("update")
    x = sketch.arg("f32[64]")
    graph = sketch.finish([sketch.op("add", x, x, name="twice")])
    inputs = random_inputs(graph, np.random.default_rng(0))
    open_on(graph, inputs)
    before = inputs[0].copy()
    answer = bench.time_plans(plans_payload([plan_of(graph, writebacks=(0,))]), {}, no_wait())
    assert answer["problems"] == [""]
    np.testing.assert_array_equal(bench._sessions["s"].inputs[0], before)


def test_a_whole_plan_writes_its_results_back_as_a_call_does():
    """Neighbours are read, so that nothing is written in place: a call copies the result, and so does what is timed."""
    sketch = Sketch("update")
    x = sketch.arg("f32[64,64]")
    graph = sketch.finish([sketch.op("add", x, sketch.transpose(x), name="both")])
    inputs = random_inputs(graph, np.random.default_rng(0))
    open_on(graph, inputs)
    run = bench._PlanRun(plan_of(graph, writebacks=(0,)), bench._sessions["s"])
    assert run._executable.aliased == frozenset()
    once = inputs[0] + inputs[0].T
    for expected in (once, once + once.T):
        run.call()
        np.testing.assert_array_equal(run._turns[0][0], expected)
    run.restore()
    np.testing.assert_array_equal(run._turns[0][0], inputs[0])


def test_cold_calls_of_a_plan_find_arguments_in_turns_in_memory(monkeypatch):
    """Each has memory of its own, also what is written to, and all begin with the arguments as they were."""
    sketch = Sketch("update")
    x, y = sketch.arg("f32[64,64]"), sketch.arg("f32[64,64]")
    graph = sketch.finish([sketch.op("add", x, sketch.transpose(y), name="both")])
    inputs = random_inputs(graph, np.random.default_rng(0))
    open_on(graph, inputs, cold=True)
    session = bench._sessions["s"]
    monkeypatch.setattr(session, "target", SimpleNamespace(**{name: getattr(session.target, name) for name in USED}))
    session.target.cache_bytes = 5 * inputs[0].nbytes
    runs = [bench._PlanRun(plan_of(graph, writebacks=(0,)), session) for _ in range(2)]
    places = [[array.ctypes.data for array in arguments] for run in runs for arguments in run._turns]
    assert [len(run._turns) for run in runs] == [6, 6]
    assert len({place for place, _ in places}) == 12
    assert len({place for _, place in places}) == 6  # what is only read, plans share
    for run in runs:
        for _ in range(7):
            run.call()
        for turn, (written, _) in enumerate(run._turns):
            times = 2 if turn == 0 else 1
            right = inputs[0]
            for _ in range(times):
                right = right + inputs[1].T
            np.testing.assert_array_equal(written, right)
        run.restore()
        for written, read in run._turns:
            np.testing.assert_array_equal(written, inputs[0])
            np.testing.assert_array_equal(read, inputs[1])


@pytest.mark.parametrize(("call_us", "calls"), [(10.0, 1), (1000.0, 0)])
def test_a_call_that_is_short_warms_the_caches_before_every_sample(graph, session, monkeypatch, call_us, calls):
    happened = []
    real = bench._PlanRun.call
    monkeypatch.setattr(bench._PlanRun, "call", lambda run: happened.append("call") or real(run))
    monkeypatch.setattr(planblocks, "rough_us", lambda *_: happened.append("once") or call_us)
    monkeypatch.setattr(planblocks, "fastest_call", lambda *_: happened.append("sample") or 1.0)
    bench.time_plans(plans_payload([plan_of(graph)], turn_us=100.0), {}, no_wait())
    assert happened == ["call", "once", *(["call"] * calls + ["sample"]) * 9]  # a call checks, one tells how long it is


def test_every_sample_of_a_plan_begins_with_the_arguments_as_they_were(monkeypatch):
    sketch = Sketch("update")
    x = sketch.arg("f32[64]")
    graph = sketch.finish([sketch.op("add", x, x, name="twice")])
    inputs = random_inputs(graph, np.random.default_rng(0))
    open_on(graph, inputs)
    seen = []
    real = planblocks.fastest_call

    def fastest_call(call, *rest):
        seen.append(call.__self__._turns[0][0].copy())
        return real(call, *rest)

    monkeypatch.setattr(planblocks, "fastest_call", fastest_call)
    bench.time_plans(plans_payload([plan_of(graph, writebacks=(0,))], turn_us=50.0), {}, no_wait())
    assert len(seen) == 9
    for array in seen:  # a call has warmed the caches
        np.testing.assert_array_equal(array, 2 * inputs[0])


def test_a_plan_that_is_slower_beyond_doubt_is_dropped_and_the_race_ends_when_it_is_decided(
    graph, session, monkeypatch
):
    plans = [plan_of(graph, [[name] for name in NAMES]), plan_of(graph), plan_of(graph)]
    times = {5: iter([50.0] * 90), 1: iter([10.0, 14.0, 9.0] * 60)}
    monkeypatch.setattr(
        planblocks, "fastest_call", lambda call, *_: next(times[len(call.__self__._executable.kernels)])
    )
    monkeypatch.setattr(planblocks, "SURE_S", 0.0)
    slow, *others = bench.time_plans(plans_payload(plans, blocks=90), {}, no_wait())["samples_us"]
    assert len(slow) == 5  # several times as slow: hopeless
    assert 15 < len(others[0]) == len(others[1]) <= 90


def test_a_wrong_plan_does_not_beat_right_ones(graph, session, monkeypatch):
    plans = [plan_of(graph, [[name] for name in NAMES]), plan_of(graph)]
    real = bench._PlanRun.problem
    monkeypatch.setattr(bench._PlanRun, "problem", lambda run: real(run) or "off" * (len(run._executable.kernels) == 1))
    monkeypatch.setattr(planblocks, "fastest_call", lambda call, *_: float(len(call.__self__._executable.kernels)))
    monkeypatch.setattr(planblocks, "SURE_S", 0.0)
    answer = bench.time_plans(plans_payload(plans, blocks=90), {}, no_wait())
    assert answer["problems"] == ["", "off"]
    assert [len(samples) for samples in answer["samples_us"]] == [15, 5]


def test_a_race_of_equals_ends_early(graph, session, monkeypatch):
    monkeypatch.setattr(planblocks, "fastest_call", lambda *_: 10.0)
    monkeypatch.setattr(planblocks, "SURE_S", 0.0)
    answer = bench.time_plans(plans_payload([plan_of(graph), plan_of(graph)], blocks=90), {}, no_wait())
    assert [len(samples) for samples in answer["samples_us"]] == [15, 15]


def test_a_race_that_decides_nothing_takes_all_blocks(graph, session, monkeypatch):
    monkeypatch.setattr(planblocks, "fastest_call", lambda *_: 10.0)
    monkeypatch.setattr(planblocks, "SURE_S", 0.0)
    answer = bench.time_plans(plans_payload([plan_of(graph)] * 2, blocks=31, decides=False), {}, no_wait())
    assert [len(samples) for samples in answer["samples_us"]] == [31, 31]


def test_equal_plans_race_until_some_time_has_passed(graph, session, monkeypatch):
    monkeypatch.setattr(planblocks, "fastest_call", lambda *_: 10.0)
    monkeypatch.setattr(planblocks, "SURE_S", 60.0)
    answer = bench.time_plans(plans_payload([plan_of(graph)] * 2, blocks=40), {}, no_wait())
    assert [len(samples) for samples in answer["samples_us"]] == [40, 40]
