"""The tuner's bench with a real worker: times, records, failures, and workers that are lost."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest

from autofuse.errors import MeasureError
from autofuse.fusion.atoms import AtomGraph
from autofuse.ir.digest import subgraph_digest
from autofuse.lower.schedule import Schedule
from autofuse.measurement import client
from autofuse.measurement.checks import CHECK_VERSION
from autofuse.measurement.kernelnotes import KernelNote
from autofuse.measurement.kernelrecords import AGAIN_POLICY, PRUNED_POLICY, Relative, Trial
from autofuse.measurement.records import UNKNOWN_VALUES
from autofuse.measurement.workerpool import Outcome
from autofuse.plan.identity import MEASUREMENT_POLICY
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.machine import host_machine
from autofuse.testing.partitions import identity_here
from tests.fixtures.failing import GRAPH, bench_on

DEFAULT = Schedule()
SMALL = cpu_schedule(unroll=1)
NOTHING_IS_WORTH_IT = -1e9
"""Microseconds: beside its entry a tiny kernel may be read as taking less than no time, but never as little as this."""
ATOMS = AtomGraph(GRAPH, contract=False)


def kernel(*names):
    atoms = frozenset(atom for atom in ATOMS.atoms if atom.nodes[0].name in names)
    return ATOMS.candidate(atoms, tuple(GRAPH.value_by_name[name] for name in names))


def digest(candidate):
    return subgraph_digest(candidate.graph, candidate.nodes, candidate.outputs)


def time(bench, *names, schedule=DEFAULT):
    candidate = kernel(*names)
    return bench.kernel(digest(candidate), candidate, schedule)


def trials(*names):
    candidates = [kernel(name) for name in names]
    return [Trial(digest(candidate), candidate, DEFAULT) for candidate in candidates]


def known(bench, name):
    """What the records know of a kernel, both its times."""
    candidate = kernel(name)
    return bench.recorded(digest(candidate), candidate, DEFAULT)


def runs_of(bench, monkeypatch):
    """The runners that the bench calls from now on, with their payloads."""
    real, seen = bench._run, []

    def run(runner, payload, *rest):
        seen.append((runner, payload))
        return real(runner, payload, *rest)

    monkeypatch.setattr(bench, "_run", run)
    return seen


def worker_pid(bench):
    return bench._worker._process.pid


@pytest.fixture
def sound(monkeypatch):
    """Makes the kernels of benches that are opened later do as they should."""
    return lambda: monkeypatch.setattr(client, "_RUNNERS", "autofuse.measurement.bench")


# ---- kernels ---------------------------------------------------------------------------------------------------------


def test_a_kernel_is_timed_and_recorded_and_then_replayed(database):
    with bench_on(database) as bench:
        first = time(bench, "fine")
        again = time(bench, "fine")
        other = time(bench, "fine", schedule=cpu_schedule(unroll=1))
        assert (bench.counts.measured, bench.counts.replayed, bench.counts.failed) == (2, 1, [])
        said = [record.measurement.compiled for record in database.records()]
        assert all((facts is not None) == (host_machine().architecture == "x86_64") for facts in said)
    assert first.status == other.status == "ok"
    assert 0 < first.us < 1e6
    assert (again.us, again.replayed) == (first.us, True)
    (record,) = database.find(digest(kernel("fine")), DEFAULT)
    found = record.measurement
    assert (found.status, found.policy, found.input_values) == ("ok", MEASUREMENT_POLICY, "")
    assert (found.signature, found.code_version) == (
        "(f32[16,8]) -> f32[16,8]",
        f"{identity_here().generator} {CHECK_VERSION}",
    )
    assert found.us == first.us
    assert len(found.samples_us) == 5
    # a later run on the same records starts no worker at all
    with bench_on(database) as later:
        assert time(later, "fine").us == first.us
        assert later._worker._process is None


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [("wrong", "wrong", "%wrong[0] is off"), ("raise", "error", "ZeroDivisionError: by hand")],
)
def test_a_kernel_that_answers_wrongly_or_raises_costs_one_record(faulty, database, name, status, message):
    found = time(faulty, name)
    assert (found.status, found.us) == (status, float("inf"))
    assert message in found.message
    assert [r.measurement.status for r in database.find(digest(kernel(name)))] == [status]
    assert faulty.counts.failed == [f"{name}: {status}: {found.message}"]
    assert time(faulty, name).replayed
    assert time(faulty, "fine").status == "ok"


def test_a_kernel_that_crashes_is_tried_twice_and_costs_one_record(faulty, database):
    found = time(faulty, "crash")
    assert (found.status, found.us) == ("crash", float("inf"))
    assert "SIGSEGV" in found.message
    assert faulty._worker.restarts == 2
    assert [r.measurement.status for r in database.find(digest(kernel("crash")))] == ["crash"]
    assert time(faulty, "crash").replayed
    assert time(faulty, "fine").status == "ok"


def test_a_kernel_that_hangs_is_stopped_and_tried_twice_and_once_more_in_a_later_run(faulty, database, sound):
    found = time(faulty, "hang")
    assert (found.status, found.us, found.may_pass) == ("timeout", float("inf"), True)
    assert "run deadline of 0.2 s" in found.message
    assert faulty._worker.restarts == 2
    assert time(faulty, "fine").status == "ok"
    sound()
    with bench_on(database) as later:
        found = time(later, "hang")
        assert (found.status, found.replayed) == ("ok", False)
        assert time(later, "hang").replayed
    assert [r.measurement.status for r in database.find(digest(kernel("hang")))] == ["timeout", "ok"]


@pytest.mark.parametrize("status", ["timeout", "memory", "killed"])
def test_a_failure_that_may_pass_is_stored_and_never_an_answer(database, monkeypatch, status):
    with bench_on(database) as bench:
        ended = [Outcome(status, "a bad moment")] * 2
        real = bench._run
        monkeypatch.setattr(bench, "_run", lambda *job: ended.pop() if ended else real(*job))
        assert time(bench, "fine").status == status
        assert known(bench, "fine") is None
        assert time(bench, "fine").status == "ok"
        assert known(bench, "fine").status == "ok"
    assert [record.measurement.status for record in database.records()] == [status, "ok"]


def test_one_bad_moment_is_no_failure(database, monkeypatch):
    with bench_on(database) as bench:
        ended = [Outcome("killed", "by whom?")]
        real = bench._run
        monkeypatch.setattr(bench, "_run", lambda *job: ended.pop() if ended else real(*job))
        assert time(bench, "fine").status == "ok"
        assert bench.counts.failing == {}


def test_nothing_is_tried_again_when_the_time_is_over(database, monkeypatch):
    with bench_on(database) as bench:
        asked = []
        late = Outcome("timeout", "too late")
        monkeypatch.setattr(bench, "_run", lambda runner, *job: asked.append(runner) or late)
        bench.kernels(trials("fine"), lambda: not asked)
        assert asked == ["time_kernel"]


def test_a_bad_moment_after_the_first_leaves_a_kernel_its_first_time(database, monkeypatch):
    with bench_on(database) as bench:
        real = bench._run

        def run(runner, payload, *rest):
            return Outcome("timeout", "") if runner == "time_again" else real(runner, payload, *rest)

        monkeypatch.setattr(bench, "_run", run)
        found = time(bench, "fine")
        assert found.status == "ok"
        assert known(bench, "fine").us == found.us
    assert [len(record.measurement.samples_us) for record in database.records()] == [1]


# ---- values ----------------------------------------------------------------------------------------------------------


def test_a_wrong_answer_for_some_values_says_nothing_about_others(faulty, database, sound):
    assert time(faulty, "wrong").status == "wrong"
    sound()
    with bench_on(database) as same:
        assert (time(same, "wrong").status, time(same, "wrong").replayed) == ("wrong", True)
    with bench_on(database, seed=1) as other:
        found = time(other, "wrong")
        assert (found.status, found.replayed) == ("ok", False)
        assert time(other, "wrong").us == found.us
    with bench_on(database) as same:
        assert time(same, "wrong").status == "wrong"


def test_a_time_that_values_do_not_decide_serves_all(database):
    with bench_on(database) as mine, bench_on(database, seed=1) as theirs:
        assert time(mine, "fine").us == time(theirs, "fine").us
        assert theirs._worker._process is None


def test_a_time_that_met_unusual_values_serves_these_alone(database):
    with bench_on(database, last=np.nan) as odd:
        assert time(odd, "rows").status == "ok"
        assert time(odd, "rows").replayed
    with bench_on(database) as usual:
        assert not time(usual, "rows").replayed
    with bench_on(database, last=np.nan) as odd:
        assert time(odd, "rows").us == database.find(digest(kernel("rows")))[0].measurement.us


def test_a_kernel_that_the_compiler_refuses_is_refused_for_all_values(database, monkeypatch):
    with bench_on(database) as mine, bench_on(database, seed=1) as theirs:
        refused = Outcome("refused", "no such instruction")
        monkeypatch.setattr(mine, "_run", lambda *job: refused)
        assert time(mine, "fine").status == "refused"
        assert (time(theirs, "fine").status, time(theirs, "fine").replayed) == ("refused", True)


def test_records_that_do_not_say_for_which_values_they_hold_answer_nothing(database):
    with bench_on(database) as bench:
        time(bench, "fine")
        (record,) = database.records()
    database._connection.execute("DELETE FROM records")
    database.add(replace(record.measurement, input_values=UNKNOWN_VALUES))
    with bench_on(database) as bench:
        assert known(bench, "fine") is None


def test_a_kernel_that_is_no_legal_fusion_is_an_error(shared):
    found = time(shared, "columns", "rows")
    assert found.status == "refused"
    assert "nested inside another reduction" in found.message


# ---- schedules -------------------------------------------------------------------------------------------------------


def test_kernels_take_turns(database, monkeypatch):
    with bench_on(database) as bench:
        alone = time(bench, "columns")
        seen = runs_of(bench, monkeypatch)
        found = bench.kernels(trials("fine", "columns", "rows"))
        assert [runner for runner, _ in seen] == ["time_kernel", "time_kernel", "time_again"]
        assert [kernel["nodes"] for kernel in seen[-1][1]["kernels"]] == [["fine"], ["rows"]]
        assert [result.status for result in found] == ["ok"] * 3
        assert (found[1].replayed, found[1].us) == (True, alone.us)
        for result, trial in zip(found, trials("fine", "columns", "rows"), strict=True):
            assert bench.recorded(trial.digest, trial.kernel, DEFAULT).us == result.us
        assert bench.counts.measured == 3


def test_only_some_kernels_are_held_at_a_time(database, monkeypatch):
    with bench_on(database) as bench:
        seen = runs_of(bench, monkeypatch)
        monkeypatch.setattr(client, "_TOGETHER", 2)
        bench.kernels(trials("fine", "columns", "rows"))
        assert [len(payload["kernels"]) for runner, payload in seen if runner == "time_again"] == [2, 1]
    assert len(database.records()) == 3


def test_kernels_of_much_memory_are_timed_alone(database, monkeypatch):
    with bench_on(database) as bench:
        seen = runs_of(bench, monkeypatch)
        monkeypatch.setattr(client, "_TOGETHER_BYTES", 100)
        bench.kernels(trials("fine", "rows"))
        assert [len(payload["kernels"]) for runner, payload in seen if runner == "time_again"] == [1, 1]


def test_the_times_end_where_the_caller_says_no(database):
    with bench_on(database) as bench:
        found = bench.kernels(trials("fine", "columns", "rows"), lambda: bench.counts.measured < 2)
        assert len(found) == 2
    assert len(database.records()) == 2


def test_a_failing_kernel_among_others_costs_one_record(faulty, database):
    found = faulty.kernels(trials("fine", "wrong", "rows"))
    assert [result.status for result in found] == ["ok", "wrong", "ok"]
    assert [len(record.measurement.samples_us) for record in database.records()] == [0, 5, 5]


def test_a_crash_costs_the_kernels_before_it_nothing(faulty, database):
    found = faulty.kernels(trials("fine", "crash", "rows"))
    assert [result.status for result in found] == ["ok", "crash", "ok"]
    assert sorted(len(record.measurement.samples_us) for record in database.records()) == [0, 5, 5]
    assert faulty.counts.measured == 3


def lost_in(bench, monkeypatch, name):
    """Make the worker crash whenever a kernel is timed in later moments."""
    real = bench._run

    def run(runner, payload, *rest):
        if runner == "time_again" and any(kernel["outputs"] == [name] for kernel in payload["kernels"]):
            os.kill(worker_pid(bench), signal.SIGKILL)
            bench._worker._process.wait()
            return Outcome("crash", "gone")
        return real(runner, payload, *rest)

    monkeypatch.setattr(bench, "_run", run)


def test_a_kernel_that_crashes_in_later_moments_is_found_among_those_timed_with_it(database, monkeypatch):
    with bench_on(database) as bench:
        lost_in(bench, monkeypatch, "columns")
        found = bench.kernels(trials("fine", "columns", "rows"))
        assert [result.status for result in found] == ["ok", "crash", "ok"]
        assert found[1].us == float("inf")
        assert bench.counts.failed == ["columns: crash: gone"]
        assert known(bench, "columns").status == "crash"
    assert [len(record.measurement.samples_us) for record in database.records()] == [5, 0, 5]


def test_threads_of_other_libraries_do_not_spin_in_the_worker(database):
    with bench_on(database) as bench:
        time(bench, "fine")
        with open(f"/proc/{worker_pid(bench)}/environ") as file:
            assert "OPENBLAS_THREAD_TIMEOUT=4" in file.read().split("\0")


def test_a_kernel_that_is_too_slow_is_given_up_and_known_to_be_that_slow(database):
    candidate = kernel("fine")
    name = digest(candidate)
    with bench_on(database) as bench:
        given_up = bench.kernel(name, candidate, DEFAULT, worth_us=NOTHING_IS_WORTH_IT)
        again = bench.kernel(name, candidate, DEFAULT, worth_us=NOTHING_IS_WORTH_IT)
        assert (given_up.pruned, given_up.replayed) == (True, False)
        assert (again.pruned, again.replayed, again.us) == (True, True, given_up.us)
        # three samples are no answer to how fast it is, nor to whether it is slower than something else
        assert known(bench, "fine") is None
        full = bench.kernel(name, candidate, DEFAULT)
        assert (full.pruned, full.replayed) == (False, False)
        assert bench.kernel(name, candidate, DEFAULT, worth_us=NOTHING_IS_WORTH_IT).us == full.us
    few, many = (record.measurement for record in database.find(name))
    assert (few.status, few.policy, len(few.samples_us)) == ("ok", PRUNED_POLICY, 3)
    assert few.message == "stopped early: slower than -1e+09 us"
    assert (many.policy, many.message) == (MEASUREMENT_POLICY, "")
    assert len(many.samples_us) == 5


def test_a_second_time_is_recorded_apart_from_the_first(database, monkeypatch):
    first, second = trials("fine"), [replace(trial, again=True) for trial in trials("fine")]
    with bench_on(database) as bench:
        (one,) = bench.kernels(first)
        (two,) = bench.kernels(second)
        assert (two.status, two.replayed, bench.counts.measured) == ("ok", False, 1)
        assert [bench.kernels(t)[0].us for t in (first, second, first)] == [one.us, two.us, one.us]
        assert bench.counts.replayed == 2
        assert known(bench, "fine").us == min(one.us, two.us)
    policies = [record.measurement.policy for record in database.records()]
    assert policies == [MEASUREMENT_POLICY, AGAIN_POLICY]


def test_a_kernel_that_fails_the_second_time_is_known_to_fail(database, monkeypatch):
    with bench_on(database) as bench:
        (trial,) = trials("fine")
        bench.kernels([trial])
        lost_in(bench, monkeypatch, "fine")
        (found,) = bench.kernels([replace(trial, again=True)])
        assert (found.status, known(bench, "fine").status) == ("crash", "crash")
        assert bench.counts.failing == {(trial.digest, DEFAULT): found}


def test_schedules_that_are_not_known_are_compiled_together(database, monkeypatch):
    candidate, others = kernel("fine"), [cpu_schedule(unroll=1), cpu_schedule(unroll=2)]
    with bench_on(database) as bench:
        time(bench, "fine")
        jobs, real = [], bench._worker.run
        monkeypatch.setattr(bench._worker, "run", lambda job: jobs.append(job) or real(job))
        bench.compile(digest(candidate), candidate, [DEFAULT, *others])
        assert [job.payload["schedules"] for job in jobs] == [[{"unroll": 1}, {"unroll": 2}]]
        assert [time(bench, "fine", schedule=schedule).status for schedule in others] == ["ok", "ok"]
        jobs.clear()
        bench.compile(digest(candidate), candidate, [DEFAULT, *others, cpu_schedule(unroll=8)])
        assert jobs == []  # the one that is new is compiled when it is timed


def test_a_crash_of_the_compiler_is_left_to_the_kernel_that_causes_it(faulty, database):
    candidate = kernel("crash")
    faulty.compile(digest(candidate), candidate, [cpu_schedule(unroll=1), cpu_schedule(unroll=2)])
    assert database.records() == []
    assert time(faulty, "fine").status == "ok"


def test_relatives_are_kernels_of_the_family_with_several_schedules(database):
    def noted(name, family):
        return KernelNote(digest(kernel(name)), name, "reduction", "theirs", family, (1.0, 2.0), 5.0)

    with bench_on(database) as bench:
        for name, family in (("columns", "sums"), ("rows", "sums"), ("fine", "loops")):
            bench.note(noted(name, family))
        times = {schedule: time(bench, "columns", schedule=schedule).us for schedule in (DEFAULT, SMALL)}
        time(bench, "rows")
        for schedule in (DEFAULT, SMALL):
            time(bench, "fine", schedule=schedule)
        assert bench.relatives("sums", "mine", ()) == [Relative(noted("columns", "sums"), times)]
        assert bench.relatives("sums", "theirs", ()) == []
        assert bench.relatives("sums", "mine", {digest(kernel("columns"))}) == []
        assert bench.relatives("products", "mine", ()) == []


# ---- lost workers ----------------------------------------------------------------------------------------------------


def test_a_worker_killed_between_kernels_is_replaced_with_its_session(database):
    with bench_on(database) as bench:
        assert time(bench, "fine").status == "ok"
        before = worker_pid(bench)
        os.kill(before, signal.SIGKILL)
        bench._worker._process.wait()
        assert time(bench, "rows").status == "ok"
        assert worker_pid(bench) != before
        assert {r.measurement.status for r in database.records()} == {"ok"}


def test_a_worker_killed_during_a_kernel_is_not_the_kernels_fault(database, monkeypatch):
    with bench_on(database) as bench:
        assert time(bench, "fine").status == "ok"
        real, killed = bench._worker.run, []

        def run(job):
            if job.runner.endswith("time_kernel") and not killed:
                killed.append(worker_pid(bench))
                os.kill(killed[0], signal.SIGSTOP)  # it cannot answer before it is killed
                os.kill(killed[0], signal.SIGKILL)
            return real(job)

        monkeypatch.setattr(bench._worker, "run", run)
        assert time(bench, "rows").status == "ok"
        assert killed
        assert {r.measurement.status for r in database.records()} == {"ok"}


def test_a_program_that_cannot_be_prepared_is_an_error(database, monkeypatch):
    with bench_on(database) as bench:
        monkeypatch.setattr(bench, "_identity", {"backend": "abacus"})
        with pytest.raises(MeasureError, match="the worker could not prepare the program"):
            time(bench, "fine")


def test_a_bad_moment_while_a_program_is_prepared_is_none_for_the_run(database, monkeypatch):
    with bench_on(database) as bench:
        real, ended = bench._worker.run, [Outcome("killed", "")]
        monkeypatch.setattr(bench._worker, "run", lambda job: ended.pop() if ended else real(job))
        assert time(bench, "fine").status == "ok"


def test_the_worker_holds_no_more_values_than_it_is_told_to(database):
    with bench_on(database, held_bytes=0) as bench:
        assert [time(bench, name).status for name in ("fine", "columns", "rows", "fine")] == ["ok"] * 4
