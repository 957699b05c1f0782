"""Python's garbage collector comes rarely while a plan is made, and as often as before afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import autofuse as af
from autofuse.host.collecting import collecting_less

USUAL = (700, 10, 10)


@pytest.fixture(autouse=True)
def _usual() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*USUAL)
    yield
    gc.set_threshold(*before)


def test_it_comes_rarely_until_the_last_one_is_done():
    with collecting_less():
        rare = gc.get_threshold()
        with collecting_less():
            assert gc.get_threshold() == rare
        assert gc.get_threshold() == rare
    assert gc.get_threshold() == USUAL
    assert rare[0] > USUAL[0]
    assert rare[1:] == USUAL[1:]


def test_it_is_as_before_after_an_error_and_after_another_thread():
    begun, done = threading.Event(), threading.Event()

    def other() -> None:
        with collecting_less():
            begun.set()
            done.wait()

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    with pytest.raises(ZeroDivisionError), collecting_less():
        1 / 0  # noqa: B018
    assert gc.get_threshold() > USUAL
    done.set()
    thread.join()
    assert gc.get_threshold() == USUAL


@pytest.mark.parametrize("given", [(0, 10, 10), (80_000, 10, 10)], ids=["never", "rarely"])
def test_what_is_rare_stays_as_it_is(given: tuple[int, int, int]):
    gc.set_threshold(*given)
    with collecting_less():
        assert gc.get_threshold() == given
    assert gc.get_threshold() == given


def test_what_others_set_meanwhile_stays():
    gc.disable()
    try:
        with collecting_less():
            assert not gc.isenabled()
            gc.set_threshold(900, 5, 5)
        assert gc.get_threshold() == (900, 5, 5)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_plans_are_made_so():
    seen: list[int] = []

    def function(x: np.ndarray) -> np.ndarray:
        seen.append(gc.get_threshold()[0])
        return x + 1

    plan = af.compile(function, np.ones(3, np.float32))
    assert gc.get_threshold() == USUAL
    plan(np.ones(3, np.float32))
    assert (seen[0] > USUAL[0], gc.get_threshold()) == (True, USUAL)
