"""What crosses between the tuner and workers of a cluster: every message as it was, and nothing that is none."""

import json

import numpy as np
import pytest

from autofuse.errors import MeasureError
from autofuse.measurement.channel import Message
from autofuse.measurement.cluster.protocol import (
    from_bytes,
    job_from,
    job_message,
    outcome_from,
    outcome_message,
    to_bytes,
)
from autofuse.measurement.workerpool import Job, Outcome

KERNEL = {"samples_us": [1.5, 2.0], "pruned": False, "unusual": True, "conditions": "cool"}
JOBS = {
    "open_session": (Job("a.bench:open_session", {}), {}),
    "time_kernel": (Job("a.bench:time_kernel", {}), KERNEL),
    "time_kernel and more": (Job("a.bench:time_kernel", {}), {**KERNEL, "compiled": {"code_bytes": 3}}),
    "time_again": (Job("a.bench:time_again", {"kernels": [{}, {}]}), {"fastest_us": [[1.0], []]}),
    "compile_kernels": (Job("a.bench:compile_kernels", {"schedules": [{}]}), {"compiled": 1}),
    "time_plans": (
        Job("a.bench:time_plans", {"plans": ["a", "b"]}),
        {"samples_us": [[1.0], []], "problems": ["", "off"], "cut_short": False},
    ),
    "prepare": (
        Job("a.collecting:prepare", {"kernels": [{}]}),
        {"kernels": [{"status": "wrong", "message": "off", "unusual": False}]},
    ),
    "time_prepared": (
        Job("a.collecting:time_prepared", {"kernels": 2}),
        {"samples_us": [[1.0], []], "load": None, "conditions": ""},
    ),
    "of_somebody_else": (Job("a.b:of_somebody_else", {}), {"anything": [1, {"k": "v"}]}),
    "introduce": (
        Job("a.introduction:introduce", {}),
        {"toolchain": {"protocol": 1}, "identity": {"backend": "cpu"}, "description": "", "noise": 0.1, "load": None},
    ),
}


def through(message):
    return from_bytes(to_bytes(message))


def test_a_job_arrives_as_it_was_sent():
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "none": np.zeros((0, 3), np.int8), "s": np.float64(2)}
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    lease, job = job_from(through(job_message("mine", Job("a.b:c", {"n": [1, {"k": None}]}, arrays, build_s=3.5))))
    assert (lease, job.runner, job.payload, job.build_s) == ("mine", "a.b:c", {"n": [1, {"k": None}]}, 3.5)
    for name, array in arrays.items():
        assert job.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(job.arrays[name], array)


@pytest.mark.parametrize("runner", JOBS)
def test_an_outcome_arrives_as_it_was_sent(runner):
    job, answer = JOBS[runner]
    outcome = Outcome("ok", "", answer, 0.5, 0.25)
    assert outcome_from(through(outcome_message(outcome, 3)), job) == (outcome, 3)


@pytest.mark.parametrize("status", ["wrong", "refused", "error", "crash", "timeout", "memory", "killed"])
def test_what_comes_with_a_failure_is_not_read(status):
    sent = outcome_message(Outcome(status, "why", {"rubbish": [1]}), 0)
    assert outcome_from(through(sent), JOBS["time_kernel"][0])[0] == Outcome(status, "why")


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", None, "text", to_bytes(Message("job"))[:-1], to_bytes(Message("job")) + b"x", bytearray(b"")],
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(MeasureError):
        from_bytes(data)


def test_numbers_that_are_not_finite_are_refused():
    text = json.dumps({"type": "outcome", "data": {"us": float("nan")}, "arrays": {}}).encode()
    head = to_bytes(Message("x"))[:8] + len(text).to_bytes(8, "little")
    with pytest.raises(MeasureError):
        from_bytes(head + text)
    with pytest.raises(MeasureError, match="what JSON cannot"):
        to_bytes(Message("x", {"us": float("inf")}))


@pytest.mark.parametrize(
    ("runner", "changed"),
    [
        ("time_kernel", {**KERNEL, "samples_us": []}),
        ("time_kernel", {**KERNEL, "samples_us": [-1.0]}),
        ("time_kernel", {**KERNEL, "samples_us": ["1"]}),
        ("time_kernel", {**KERNEL, "pruned": 0}),
        ("time_kernel", {**KERNEL, "more": 1}),
        ("time_kernel", {}),
        ("time_again", {"fastest_us": [[1.0]]}),
        ("compile_kernels", {"compiled": 2}),
        ("time_plans", {"samples_us": [[1.0], []], "problems": [""], "cut_short": False}),
        ("open_session", {"more": 1}),
        ("prepare", {"kernels": []}),
        ("time_prepared", {"samples_us": [[1.0]], "load": None, "conditions": ""}),
    ],
)
def test_answers_to_another_question_are_nonsense(runner, changed):
    with pytest.raises(MeasureError):
        outcome_from(through(outcome_message(Outcome("ok", "", changed), 0)), JOBS[runner][0])


@pytest.mark.parametrize(("key", "value"), [("status", "fine"), ("restarts", -1), ("build_s", True), ("message", 3)])
def test_outcomes_are_read_strictly(key, value):
    message = outcome_message(Outcome("ok", "", KERNEL), 0)
    with pytest.raises(MeasureError, match=key):
        outcome_from(through(Message("outcome", {**message.data, key: value})), JOBS["time_kernel"][0])
