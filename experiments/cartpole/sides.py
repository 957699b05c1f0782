"""Who simulates: each makes a call that returns the states and rewards of all environments after all steps."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from programs import Library, drawn, naive, naive_given, start, unstacked, unstacked_given

SOURCE = Path(__file__).resolve().parent / "native" / "cartpole.cpp"
TOGETHER = 10
"""Steps of a compiled call of torch, and of an iteration of JAX's loop, where they are rewritten so."""

Call = Callable[[], tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Task:
    """What all sides are given."""

    key: Any
    """`u32[2]`."""
    state: Any
    """`f32[N, 4]`."""
    steps: int
    right: Any = None
    """`bool[T, N]`, where the numbers are given."""
    fresh: Any = None
    """`f32[T, N, 4]`, likewise."""


@dataclass(frozen=True, slots=True)
class Side:
    """One way to simulate."""

    form: str
    """How its program is written: `naive`, `rewritten` or `by hand`."""
    make: Callable[[Task], Call]
    own_numbers: bool = False
    """Whether it draws other bits than the others, so that only its rewards can be compared."""


def task(table: str, count: int, steps: int, seed: int = 0) -> Task:
    """The arguments of the sides of a table."""
    key, state = start(count, seed)
    right, fresh = drawn(count, steps, seed) if table == "less" else (None, None)
    return Task(key, state, steps, right, fresh)


def autofuse_call(program: Any, given: Task) -> Call:
    """A plan by the cost model alone."""
    import autofuse as af

    function, arguments = _bound(program, Library(np, af.random, af.scan), given)
    plan = af.compile(function, *arguments)
    return lambda: plan(*arguments)


def jax_call(program: Any, unroll: int, given: Task) -> Call:
    """Under jax.jit, its arguments on the device."""
    import jax

    function, arguments = _bound(program, Library(jax.numpy, jax.random, partial(jax.lax.scan, unroll=unroll)), given)
    run, held = jax.jit(function), jax.device_put(arguments)
    return lambda: jax.block_until_ready(run(*held))


def numpy_call(program: Any, given: Task) -> Call:
    """The same function as it is, with draws by autofuse's functions under NumPy."""
    import autofuse as af

    function, arguments = _bound(program, Library(np, af.random, af.scan), given)
    return lambda: function(*arguments)


def _bound(program: Any, lib: Library, given: Task) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    if given.right is None:
        return lambda key, state: program(lib, key, state, given.steps), (given.key, given.state)
    return lambda right, fresh, state: program(lib, right, fresh, state), (given.right, given.fresh, given.state)


def torch_call(stacked: bool, together: int | None, given: Task) -> Call:
    """A Python loop over steps, eager; or over compiled calls of `together` steps, which must divide all steps."""
    import torch
    import torch_programs as programs

    torch.set_grad_enabled(False)
    step = programs.stacked_step if stacked else programs.split_step
    run = programs.drawing(step) if given.right is None else programs.reading(step)
    run = run if together is None else programs.compiled(run)
    size = together or given.steps
    if given.steps % size:
        raise ValueError(f"steps: must be a multiple of {size}; got {given.steps}")
    first = torch.from_numpy(given.state)
    first = first if stacked else programs.parts_of(first)
    numbers = () if given.right is None else (torch.from_numpy(given.right), torch.from_numpy(given.fresh))

    def call() -> tuple[Any, Any]:
        state, reward = first, torch.zeros(len(given.state))
        for t in range(0, given.steps, size):
            state, reward = run(state, reward, *(rows[t : t + size] for rows in numbers) if numbers else (size,))
        return (state if stacked else torch.stack(state, dim=1)).numpy(), reward.numpy()

    return call


def numba_call(given: Task) -> Call:
    """Loops by hand."""
    import numba_programs as programs

    if given.right is None:
        return lambda: programs.drawn_call(given.key, given.state, given.steps)
    return lambda: programs.given_call(given.right, given.fresh, given.state)


def native_call(function: str, given: Task) -> Call:
    """C++ with OpenMP, compiled for this machine; no contraction, as autofuse has none."""
    routine = getattr(_library(), function)
    inputs = (given.key,) if given.right is None else (given.right, given.fresh)

    def call() -> tuple[Any, Any]:
        ends, rewards = given.state.copy(), np.empty(len(given.state), np.float32)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*inputs, ends, rewards)]
        routine(*pointers, ctypes.c_int64(len(ends)), ctypes.c_int64(given.steps))
        return ends, rewards

    return call


@cache
def _library() -> ctypes.CDLL:
    binary = Path(tempfile.mkdtemp(prefix="cartpole-")) / "cartpole.so"
    options = ["-O3", "-march=native", "-mprefer-vector-width=512", "-ffp-contract=off", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["g++", *options, f"-DLANES={_lanes()}", str(SOURCE), "-o", str(binary)], check=True)
    return ctypes.CDLL(str(binary))


def _lanes() -> int:
    return 16 if "avx512f" in Path("/proc/cpuinfo").read_text() else 8


def _sides(first: Any, second: Any, drawing: bool) -> dict[str, Side]:
    """Libraries on a program as one writes it first, and on it without stacks."""
    return {
        "autofuse": Side("naive", partial(autofuse_call, first)),
        "JAX": Side("naive", partial(jax_call, first, 1)),
        "torch, eager": Side("naive", partial(torch_call, True, None), drawing),
        "torch, compiled steps": Side("naive", partial(torch_call, True, 1), drawing),
        "NumPy": Side("naive", partial(numpy_call, first)),
        "autofuse, no stacks": Side("rewritten", partial(autofuse_call, second)),
        "JAX, no stacks": Side("rewritten", partial(jax_call, second, 1)),
        "JAX, no stacks, unrolled by ten": Side("rewritten", partial(jax_call, second, TOGETHER)),
        "torch, no stacks, ten steps compiled": Side("rewritten", partial(torch_call, False, TOGETHER), drawing),
        "Numba": Side("by hand", numba_call),
    }


SIDES: dict[str, dict[str, Side]] = {
    "same": _sides(naive, unstacked, True)
    | {
        "C++": Side("by hand", partial(native_call, "simple")),
        "C++, vectors": Side("by hand", partial(native_call, "vectors")),
        "C++, packed": Side("by hand", partial(native_call, "vectors_packed")),
    },
    "less": _sides(naive_given, unstacked_given, False)
    | {"C++, vectors": Side("by hand", partial(native_call, "vectors_given"))},
}
"""By table (the same work; less work, as numbers are drawn before) and name."""
