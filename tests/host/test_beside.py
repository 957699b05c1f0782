"""Work beside the caller: every call is made once, errors reach who waits, and nothing runs on."""

import threading

import pytest

from autofuse.errors import BackendError
from autofuse.host.beside import Beside


def test_each_call_is_made_once_and_gives_its_own_result():
    made = []
    with Beside(3, "test") as beside:
        results = [beside.begin(lambda n=n: made.append(n) or n * n) for n in range(200)]
        assert [result() for result in results] == [n * n for n in range(200)]
    assert sorted(made) == list(range(200))


def test_no_more_threads_work_than_were_asked_for():
    meeting = threading.Barrier(2)
    names = set()

    def work():
        names.add(threading.current_thread().name)
        meeting.wait(600)

    with Beside(2, "two") as beside:
        for result in [beside.begin(work) for _ in range(6)]:
            result()
    assert len(names) >= 2
    assert not [thread for thread in threading.enumerate() if thread.name in names]


def test_an_error_reaches_who_waits_and_the_others_go_on():
    def fails():
        raise ValueError("no such kernel")

    with Beside(1, "test") as beside:
        bad, good = beside.begin(fails), beside.begin(lambda: 7)
        with pytest.raises(ValueError, match="no such kernel"):
            bad()
        assert good() == 7


def test_what_was_not_begun_when_it_ends_is_dropped_with_an_error():
    begun, ends = threading.Event(), threading.Event()
    said = []

    def holds():
        begun.set()
        ends.wait(600)
        return "held"

    def waits_for_the_other():
        with pytest.raises(BackendError, match="given up"):
            second()
        said.append("dropped")
        ends.set()

    with Beside(1, "test") as beside:
        first, second = beside.begin(holds), beside.begin(lambda: "never")
        begun.wait(600)
        other = threading.Thread(target=waits_for_the_other)
        other.start()
    other.join(600)
    assert (first(), said) == ("held", ["dropped"])


def test_where_the_system_gives_no_more_threads_the_caller_works(monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with Beside(2, "test") as beside:
        assert [result() for result in [beside.begin(lambda n=n: n) for n in range(3)]] == [0, 1, 2]
