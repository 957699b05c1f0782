"""Loops and branches that the driver runs: what ends them, their memory, and plans that hold them."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import BackendError, LeftToNumpyWarning, SearchError
from autofuse.ir.interpreter import Routine
from autofuse.runtime.memory import plan_regions
from autofuse.targets.cpu.native import prepared
from tests.fixtures.drivenprograms import PROGRAMS, U, W, heat, overwritten, wave


def _driver(plan: af.Plan) -> Any:
    return next(kernel for kernel in plan.lowered if kernel.regions)


def endless(u: Any, go: Any) -> Any:
    """Runs for as long as `go` is true."""

    def step(state: Any) -> Any:
        v, i = state
        return (np.roll(v, 1, 0) + np.roll(v, 1, 1)) * np.float32(0.5), i + go.astype(np.int32)

    return af.while_loop(lambda s: s[1] > 0, step, (u, go.astype(np.int32)))


def inside(u: Any, go: Any) -> Any:
    return af.scan(lambda v, _: (endless(v, go)[0] + u, v.sum()), u, None, length=2)


def in_a_kernel(u: Any, go: Any) -> Any:
    """Elements that are independent of one another."""
    return af.while_loop(lambda s: s[1] > 0, lambda s: (s[0] * np.float32(0.5), s[1] + go), (u, go.astype(np.int32)))


def in_kernels_of_a_loop(u: Any, go: Any) -> Any:
    return af.scan(lambda v, _: (in_a_kernel(np.roll(v, 1, 0) + u, go)[0], v.sum()), u, None, length=2)


def in_elements_of_many(u: Any, go: Any) -> Any:
    """Each worker runs for as long as any of its elements does."""
    wide = np.broadcast_to(u[None], (500, *u.shape)) * np.ones((500, 1, 1), np.float32)

    def step(state: Any) -> Any:
        v, moves = state
        return np.where(moves, v * np.float32(0.5), v), moves & go

    return af.while_loop(lambda s: np.any(s[1]), step, (wide, (wide > 0) & go))


def in_one_element(u: Any, go: Any) -> Any:
    """The worker that has it is not the caller, if there are two."""
    some = np.ones((500, *u.shape), np.float32) * u
    only = np.arange(some.size).reshape(some.shape) == some.size * 5 // 8
    left = np.where(only, np.float32(1), np.float32(0))
    return af.while_loop(
        lambda s: np.any(s[1] > 0),
        lambda s: (np.where(s[1] > 0, s[0] * np.float32(0.5), s[0]), np.where(go, s[1], s[1] * np.float32(0))),
        (some, np.where(go, left, np.float32(0))),
    )


def of_what_never_changes(u: Any, go: Any) -> Any:
    """What it is to end by, no iteration touches."""
    moves = (u > 0) & go
    return af.while_loop(
        lambda s: np.any(moves) & (s[1] > 0), lambda s: (s[0] * np.float32(0.5), s[1]), (u, u.sum() ** 2)
    )


@pytest.mark.parametrize(
    "function",
    [endless, inside, in_a_kernel, in_kernels_of_a_loop, in_elements_of_many, in_one_element, of_what_never_changes],
)
def test_a_signal_ends_a_loop_that_does_not(function: Any) -> None:
    plan = af.compile(function, U, np.bool_(True))
    assert not any(kernel.kind == "interpreter" for kernel in plan.kernels)
    right = af.interpret(plan.graph, U, np.array(False))
    for _ in range(2):  # the plan is as good as before

        def raised(number: int, frame: object) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, raised)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.15)
            with pytest.raises(KeyboardInterrupt):
                plan(U, np.array(True))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        np.testing.assert_allclose(plan(U, np.array(False))[0], right[0], rtol=1e-6)


def test_nothing_is_run_after_a_call_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop does not end by itself: what it would end by is garbage then."""
    called: list[int] = []

    def failing(routine: Routine, arrays: Any, targets: Any) -> None:
        called.append(1)
        if len(called) == 3:
            raise ValueError("the third one")
        real(routine, arrays, targets)

    real = Routine.run_into
    monkeypatch.setattr(Routine, "run_into", failing)
    square = np.eye(4, dtype=np.float32)
    with pytest.warns(LeftToNumpyWarning):
        plan = af.compile(
            lambda u: af.while_loop(lambda s: s[1] >= 0, lambda s: (np.linalg.pinv(s[0]), s[1] + 1), (u, 0)), square
        )
    with pytest.raises(BackendError, match="the third one"):
        plan(square)
    assert len(called) == 3


def test_a_kept_program_runs_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path / "cache"))
    function, arguments = PROGRAMS["kernel_in_driver"]
    path = af.compile(function, *arguments).save(tmp_path / "p.json")
    right = af.load(path)(*arguments)
    ready = prepared.find(path.read_bytes())
    assert ready is not None
    for got, wanted in zip(ready.call(*arguments), right, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_memory_of_what_is_inside_counts() -> None:
    plan = af.compile(heat, U)
    memory, inside = plan.executable.memory, plan_regions(_driver(plan))
    assert memory.arena_bytes >= inside.arena_bytes >= U.nbytes
    with pytest.raises(SearchError, match="max_memory"):
        af.compile(heat, U, max_memory=memory.fixed_bytes)


def test_state_moves_by_address() -> None:
    """Nothing is copied in an iteration, nor, where the trip count is known, after the last one."""
    frame = plan_regions(_driver(af.compile(wave, U, W))).frame
    assert frame.copies == ((), ())
    buffers = {p.home for p in frame.pointers if isinstance(p.home, int)}
    assert len(buffers) == 1  # of the ring of three, two are the results
    ends = _last_addresses(frame)
    assert all(ends[copy.source] == ends[copy.target] for copy in frame.results)


def _last_addresses(frame: Any) -> list[object]:
    """Where pointers point to after the last iteration."""
    at: list[object] = [(id(p.home) if not isinstance(p.home, int) else p.home, p.offset) for p in frame.pointers]
    for _ in range(frame.trips):
        before = list(at)
        for to, source in frame.moves:
            at[to] = before[source]
    return at


def test_what_a_kernel_may_overwrite_has_one_buffer() -> None:
    plan = af.compile(overwritten, U, policy="unfused")
    frame = plan_regions(_driver(plan)).frame
    large = [p for p in frame.pointers if isinstance(p.home, int) and p.step == 0]
    assert len(large) <= 2  # the sum's two


def test_profile_times_a_loop_as_one() -> None:
    plan = af.compile(heat, U)
    assert [name for name, us in plan.profile(U) if us > 0] == [kernel.name for kernel in plan.kernels]


def test_explained() -> None:
    function, arguments = PROGRAMS["kernel_in_driver"]
    text = af.compile(function, *arguments).explain()
    assert "(driver)" in text
    assert "run by the driver, kernel by kernel" in text
    assert "body, 4 times: " in text
    assert "no kernel  " in text
    assert text.count("[0] ") == 2  # the loop, and the first kernel inside
