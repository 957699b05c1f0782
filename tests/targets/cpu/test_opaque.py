"""Library kernels: native code that calls the interpreter, with what can go wrong in there."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from autofuse.ir.dtypes import I32
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import Routine, interpret_into
from autofuse.ir.types import parse_type
from autofuse.lazydataclass import replace
from autofuse.targets.cpu.executable import build_executable
from autofuse.testing.fusions import LIMITS, check_plan
from autofuse.testing.graphs import random_inputs
from autofuse.testing.partitions import plan_of
from autofuse.testing.sketches import Sketch

CALLED = replace(LIMITS, sorts=False)
"""Under these a sort is a call of the interpreter."""


def sorting(calls=1, size=16):
    """`sort(x)`, then `sort(y)`, ...: that many library calls, each followed by a loop."""
    sketch = Sketch("sorting")
    outputs, groups = [], []
    for number in range(calls):
        x = sketch.arg(f"f32[{size}]", f"x{number}")
        found = sketch.op("sort", x, dimension=0, descending=False, stable=True, name=f"sort{number}")
        outputs.append(sketch.op("negate", found, name=f"minus{number}"))
        groups += [[f"sort{number}"], [f"minus{number}"]]
    return plan_of(sketch.finish(outputs), groups)


@pytest.fixture
def fails(monkeypatch):
    """Makes library calls raise whatever is put here."""
    errors = []

    def run_into(routine, arrays, targets):
        if errors:
            raise errors[min(len(errors) - 1, 0)] if len(errors) == 1 else errors.pop(0)
        return real(routine, arrays, targets)

    real = Routine.run_into
    monkeypatch.setattr(Routine, "run_into", run_into)
    return errors


def test_the_result_is_the_interpreters():
    plan = sorting()
    check_plan(plan, random_inputs(plan.graph, np.random.default_rng(0)))


def test_a_call_writes_into_the_memory_of_its_results():
    sketch = GraphBuilder("g")
    x = sketch.input(parse_type("f32[4]"), "x")
    iota = sketch.emit("iota", shape=(4,), dtype=I32, iota_dimension=0)
    keys, order = sketch.emit_many("sort", [x, iota], dimension=0, descending=True, stable=True)
    for outputs in ([keys, order], [order], [order, order]):
        targets = [np.empty(4, value.type.dtype.numpy) for value in outputs]
        interpret_into(sketch.finish(outputs), [np.array([2, 9, 5, 7], np.float32)], targets)
        assert targets[-1].tolist() == targets[outputs.index(order)].tolist() == [1, 3, 2, 0]
        if len(set(outputs)) == 2:
            assert targets[0].tolist() == [9, 7, 5, 2]


def test_calls_of_one_signature_share_code():
    executable = build_executable(sorting(3), CALLED)
    assert len(executable.opaque) == 3
    assert len([name for name in executable.native.source() if name.startswith("af_opaque")]) == 1


def test_an_empty_operand_is_no_address():
    plan = sorting(size=0)
    (result,) = build_executable(plan, CALLED).run([np.empty(0, np.float32)])
    assert result.shape == (0,)


def test_an_error_inside_reaches_the_caller_and_the_next_call_is_fine(fails):
    executable = build_executable(sorting(), CALLED)
    x = np.arange(16, dtype=np.float32)[::-1].copy()
    fails.append(MemoryError("too large"))
    with pytest.raises(MemoryError, match="too large"):
        executable.run([x])
    with pytest.raises(MemoryError, match="too large"):
        executable.run_into([x], [np.empty_like(x)])
    with pytest.raises(MemoryError, match="too large"):
        executable.profile([x])
    fails.clear()
    np.testing.assert_array_equal(executable.run([x])[0], -np.sort(x))


def test_ctrl_c_inside_reaches_the_caller(fails):
    executable = build_executable(sorting(), CALLED)
    fails.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        executable.run([np.zeros(16, np.float32)])


def test_of_several_errors_the_first_is_raised_and_none_is_left_over(fails):
    executable = build_executable(sorting(2), CALLED)
    arrays = [np.arange(16, dtype=np.float32)] * 2
    fails += [ValueError("first"), ValueError("second"), ValueError("never")]
    with pytest.raises(ValueError, match="first"):
        executable.run(arrays)
    fails.clear()
    executable.run(arrays)


def test_threads_get_their_own_results_and_errors(monkeypatch):
    real, bad = Routine.run_into, threading.local()

    def run_into(routine, arrays, targets):
        if getattr(bad, "here", False):
            raise ValueError("only here")
        return real(routine, arrays, targets)

    monkeypatch.setattr(Routine, "run_into", run_into)
    executable = build_executable(sorting(), CALLED)

    def work(seed):
        bad.here = seed % 3 == 0
        x = np.random.default_rng(seed).standard_normal(16).astype(np.float32)
        if bad.here:
            with pytest.raises(ValueError, match="only here"):
                executable.run([x])
        else:
            np.testing.assert_array_equal(executable.run([x])[0], -np.sort(x))
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))


def test_a_call_between_small_kernels_of_a_group_still_reports_its_error(fails):
    # the plan may put independent kernels side by side, but a library call stays on the calling thread
    sketch = Sketch("beside")
    x, y = sketch.arg("f32[16]"), sketch.arg("f32[16]", "y")
    first = sketch.op("sort", x, dimension=0, descending=False, stable=True, name="first")
    second = sketch.op("sort", y, dimension=0, descending=False, stable=True, name="second")
    graph = sketch.finish([first, second, sketch.op("exp", y, name="third")])
    executable = build_executable(plan_of(graph, [["first"], ["second"], ["third"]]), CALLED)
    fails.append(ValueError("seen"))
    for _ in range(20):
        with pytest.raises(ValueError, match="seen"):
            executable.run([np.zeros(16, np.float32)] * 2)
