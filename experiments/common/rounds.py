"""One round: ways to compute a program, each checked against NumPy, then timed in interleaved blocks in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from interleaved import interleave, mismatch
from journal import Record

from autofuse.errors import AutofuseError
from autofuse.measurement.workloads import Workload, arrays

Call = Callable[..., Any]


def time_right_ones(
    program: Workload,
    task: Record,
    makers: Mapping[str, Callable[[], Call]],
    numpy: str | None = None,
    alike: bool = False,
) -> Record:
    """Samples by name of those whose answer is right, and the faults of the others.

    `makers`: what makes each ready to call. `numpy`: the name under which NumPy itself is timed too, before the others.
    `alike`: see `interleave`. The task gives the program's `size` and `seed`, and the `round`, `blocks` and
    `block_seconds`.
    """
    calls: dict[str, Call] = {} if numpy is None else {numpy: program.function}
    faults: dict[str, str] = {}
    expected = _answer(program, program.function, task)
    for name, make in makers.items():
        try:
            call = make()
            fault = mismatch(expected, _answer(program, call, task))
        except AutofuseError as error:
            faults[name] = f"{type(error).__name__}: {error}"
            continue
        if fault:
            faults[name] = f"wrong answer, {fault}"
        else:
            calls[name] = call
    del expected
    arguments = program.inputs(task["size"], task["seed"])
    bound = {name: _bind(call, arguments) for name, call in calls.items()}
    seed = task["seed"] + task["round"]
    samples = interleave(bound, task["blocks"], task["block_seconds"], seed, resting=numpy is not None, alike=alike)
    rounded = {name: [[round(us, 2) for us in block] for block in blocks] for name, blocks in samples.items()}
    return {"samples": rounded, "faults": faults}


def _answer(program: Workload, call: Call, task: Record) -> list[Any]:
    """Results and arguments after one call on fresh arguments, for programs that write in place."""
    arguments = program.inputs(task["size"], task["seed"])
    return [*arrays(call(*arguments)), *arrays(arguments)]


def _bind(call: Call, arguments: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: call(*arguments)
