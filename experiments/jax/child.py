"""One measurement of the study in a process of its own: python child.py TASK.json OUTCOME.json."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from interleaved import interleave, mismatch

import autofuse as af
import autofuse.jax as afj
from autofuse.frontend.stablehlo.bindings import bindings, parsed
from autofuse.measurement.workloads import WORKLOADS_DIRECTORY, Workload, load

BLOCK_SECONDS = 0.2
READINGS = 9
ADVANCE = bindings().ir.WalkResult.ADVANCE
_KERNEL = re.compile(
    r"^\s+(?:ROOT )?\S+ = \S.*? (?:fusion|dot|convolution|reduce|scatter|sort|custom-call|copy|while)\("
)
Call = Callable[[], Any]


def loaded(task: dict[str, Any]) -> tuple[Workload, tuple[Any, ...]]:
    """The program and its arguments, as JAX holds them."""
    program = load(task["program"], WORKLOADS_DIRECTORY / "jax")
    return program, jax.tree.map(jnp.asarray, program.inputs(task["size"], task["seed"]))


def kernels_of_xla(text: str) -> int:
    """What XLA runs one after another, counted in the text of a compiled module: all but what is inside fusions."""
    count, fused = 0, False
    for line in text.splitlines():
        if not line.startswith(" "):
            fused = line.startswith(("%fused", "%region", "%wrapped")) or "fused_computation" in line
        elif not fused and _KERNEL.match(line):
            count += 1
    return count


def called(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Call:
    """A call to be timed: until its results are there."""
    return lambda: jax.block_until_ready(function(*arguments))


def times(task: dict[str, Any]) -> dict[str, Any]:
    """Microseconds of calls, in turns, and kernels. Raises RuntimeError for an answer that is not JAX's."""
    program, arguments = loaded(task)
    compiled, planned = jax.jit(program.function), afj.jit(program.function)
    calls = {"jax.jit": called(compiled, arguments), "autofuse": called(planned, arguments)}
    plan = planned.plan(*arguments)
    facts: dict[str, Any] = {
        "kernels": {
            "jax.jit": kernels_of_xla(compiled.lower(*arguments).compile().as_text()),
            "autofuse": len(plan.kernels),
        },
        "interpreted": sum("interpreter" in str(kernel.kind) for kernel in plan.kernels),
    }
    if task["budget"]:
        tuned = afj.tune(program.function, *arguments, budget=task["budget"], progress=False)
        calls["autofuse, tuned"] = called(tuned, arguments)
        facts["kernels"]["autofuse, tuned"] = len(tuned.plan(*arguments).kernels)
    right = [np.asarray(leaf) for leaf in jax.tree.leaves(calls["jax.jit"]())]
    for name, call in calls.items():
        fault = mismatch(right, [np.asarray(leaf) for leaf in jax.tree.leaves(call())])
        if fault:
            raise RuntimeError(f"{name}: {fault}")
    return facts | {"us": interleave(calls, task["blocks"], BLOCK_SECONDS, task["seed"], resting=True, alike=True)}


def first(task: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the first call, imports and JAX's own beginnings not counted."""
    program, arguments = loaded(task)
    jax.block_until_ready(jax.jit(lambda x: x + 1)(jnp.ones(3)))
    begun = time.perf_counter()
    function = jax.jit(program.function) if task["side"] == "jax.jit" else afj.jit(program.function)
    jax.block_until_ready(function(*arguments))
    return {"seconds": time.perf_counter() - begun}


def overhead(task: dict[str, Any]) -> dict[str, Any]:
    """Microseconds of calls of next to nothing, and of eight of them after one another inside `jax.jit`."""

    def little(x: Any) -> Any:
        return x * 2 + 1

    def eight(function: Callable[..., Any]) -> Callable[..., Any]:
        def repeated(x: Any) -> Any:
            for _ in range(8):
                x = function(x)
            return x

        return jax.jit(repeated)

    x = jnp.ones(16)
    planned = afj.jit(little)
    back = jax.ShapeDtypeStruct(x.shape, x.dtype)
    calls = {
        "jax.jit": jax.jit(little),
        "autofuse": planned,
        "autofuse, 1 inside jax.jit": jax.jit(lambda x: planned(x)),  # noqa: PLW0108 - a function around it
        "autofuse, 8 inside jax.jit": eight(planned),
        "pure_callback, 8 inside jax.jit": eight(lambda x: jax.pure_callback(lambda a: a * 2 + 1, back, x)),
    }
    timed = {name: called(function, (x,)) for name, function in calls.items()}
    return {"us": interleave(timed, task["blocks"], BLOCK_SECONDS, task["seed"], resting=True)}


def reading(task: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds of processor time that the text of the program's module takes to be read, and operations in it."""
    program, arguments = loaded(task)
    lowered = jax.jit(program.function).lower(*arguments)
    text, operations = lowered.as_text(debug_info=True), []
    lowered.compiler_ir("stablehlo").operation.walk(lambda operation: operations.append(operation.name) or ADVANCE)
    readers = {"jaxlib's parser": lambda: parsed(text.encode()), "autofuse": lambda: af.from_stablehlo(text)}
    return {"operations": len(operations), "ms": {name: least_ms(reader) for name, reader in readers.items()}}


def least_ms(call: Call) -> float:
    """Processor time of the fastest of several calls."""
    found = []
    for _ in range(READINGS):
        begun = time.process_time()
        call()
        found.append(1e3 * (time.process_time() - begun))
    return min(found)


TASKS = {"times": times, "first": first, "overhead": overhead, "reading": reading}

if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(TASKS[job["what"]](job)))
