"""One measurement of the limits study, in a process of its own: child.py TASK.json OUTCOME.json."""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import autofuse as af
from autofuse.api.plan import Plan
from autofuse.ir.types import parse_type
from autofuse.runtime.planlowering import lower_as_scheduled
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.native.entry import NativeProgram
from autofuse.targets.cpu.native.nativeprogram import BufferRef, CpuProgram, KernelCall, KernelCode, PhaseCode
from autofuse.targets.cpu.native.nativeruntime import native_runtime

LEAST_S = 0.02
"""A sample repeats a call for at least this long."""
LAUNCHES = 1000
_PHASE = """
define void @phase(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) nounwind {
  %to = load ptr, ptr %buffers
  %at = getelementptr i64, ptr %to, i64 %begin
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  ret void
}
"""
"""One addition, for the first of the blocks it is given."""

Record = dict[str, Any]
Call = Callable[[], object]


def product(task: Record) -> Record:
    """Seconds per call of one product by each contestant, taking turns in an order that changes."""
    rows, depth, columns = task["shape"]
    rng = np.random.default_rng(task["seed"])
    a = rng.standard_normal((rows, depth), dtype=np.float32)
    b = rng.standard_normal((depth, columns), dtype=np.float32)
    out = np.empty((rows, columns), np.float32)
    calls: dict[str, Call] = {
        "generated": _planned(a, b, out, "generated"),
        "library in a plan": _planned(a, b, out, "library"),
        "NumPy": lambda: np.matmul(a, b, out=out),
    }
    calls |= _torch(a, b, out, task["threads"])
    expected = a.astype(np.float64) @ b
    for name, call in calls.items():
        out.fill(np.nan)
        call()
        np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-4 * depth**0.5, err_msg=name)
    repeats = {name: _repeats(call) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(task["turns"]):
        for name in rng.permutation(list(calls)):
            samples[name].append(_seconds(calls[name], repeats[name]))
    return {"flops": 2.0 * rows * depth * columns, "samples": samples}


def _planned(a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], dots: str) -> Call:
    document = af.compile(lambda a, b: a @ b, a, b, policy="unfused").document
    kernels = tuple(replace(k, schedule=cpu_schedule(dots=dots)) for k in document.kernels)
    plan = Plan(replace(document, kernels=kernels))
    # a search never takes generated code for a row times a matrix, so such a plan is not for files
    plan.lowered = lower_as_scheduled(plan.document, plan.target.limits)
    return lambda: plan(a, b, out=out)


def _torch(a: NDArray[Any], b: NDArray[Any], out: NDArray[Any], threads: int) -> dict[str, Call]:
    try:
        import torch
    except ImportError:
        return {}
    torch.set_num_threads(threads)
    left, right, into = (torch.from_numpy(array) for array in (a, b, out))
    return {"PyTorch": lambda: torch.mm(left, right, out=into)}


def fork_join(task: Record) -> Record:
    """Seconds per launch of a plan of nearly nothing: on all threads, and (blocks that cannot be shared) on one."""
    calls = {name: _launches(blocks) for name, blocks in (("shared", task["threads"]), ("alone", 1))}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for name in ("af_alone_until", "af_wake_work"):  # workers are woken for any work at all
        ctypes.c_int64.from_address(native_runtime()[name]).value = 0
    for _ in range(task["turns"]):
        for name, call in calls.items():
            samples[name].append(_seconds(call, 1) / LAUNCHES)
    return {"samples": samples}


def _launches(blocks: int) -> Call:
    """A call of a program with many launches of so many blocks, each of one addition."""
    code = KernelCode("kernel", _PHASE, (), ((PhaseCode("phase", blocks, 1),),))
    calls = (KernelCall("kernel", (BufferRef("output", 0),)),) * LAUNCHES
    program = NativeProgram(CpuProgram("program", (code,), calls, (), (parse_type(f"i64[{blocks}]"),)))
    out = np.zeros(blocks, np.int64)
    return lambda: program.call_into(out)


def _repeats(call: Call) -> int:
    seconds = min(_seconds(call, 1) for _ in range(3))
    return max(1, int(LEAST_S / max(seconds, 1e-9)))


def _seconds(call: Call, repeats: int) -> float:
    """Of one call, after one that is not timed: the caches are as this contestant leaves them."""
    call()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    done = {"product": product, "fork-join": fork_join}[job["kind"]](job)
    Path(sys.argv[2]).write_text(json.dumps(done))
