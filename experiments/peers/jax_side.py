"""JAX: the program over jax.numpy under jit."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax_programs import IDIOMS, REWRITES
from namespaces import load_over
from prepared import WRITTEN, Call, Prepared

from autofuse.measurement.workloads import Workload, arrays


def prepare(program: Workload, arguments: tuple[Any, ...], task: dict[str, Any]) -> Prepared:
    """The jitted program; 64-bit types only where an argument has one, as a JAX user would set it."""
    jax.config.update("jax_enable_x64", wants_64_bits(arguments))
    if task["variant"] == "jax idiomatic":
        function = IDIOMS[program.name]
    else:
        function = REWRITES.get(program.name) or load_over(program, jnp)
    held = jax.tree.map(jnp.array, arguments)
    compiled = jax.jit(function)
    jax.jit(jnp.tanh)(1.0)  # the backend starts once, not per program
    start = time.perf_counter()
    first = jax.block_until_ready(compiled(*held))
    ready_s = time.perf_counter() - start

    def call() -> Any:
        return jax.block_until_ready(compiled(*held))

    def answer(given: tuple[Any, ...]) -> tuple[Any, Any]:
        result = jax.tree.map(np.asarray, compiled(*jax.tree.map(jnp.array, given)))
        if program.name not in WRITTEN:
            return result, given
        after = list(given)
        for number, value in zip(WRITTEN[program.name], result, strict=True):
            after[number] = value
        return None, after

    if task.get("brief"):
        return Prepared(call, answer, ready_s)
    if program.name in WRITTEN:
        reused, used = _donated_state(function, held, WRITTEN[program.name])
        checked = None
    else:
        reused, used = _donated_results(function, held, first)

        def checked() -> Any:
            return jax.tree.map(np.array, reused())

    notes = () if used else ("XLA did not use every donated buffer",)
    return Prepared(call, answer, ready_s, reused, checked, _empty(held, first), notes=notes)


def wants_64_bits(arguments: tuple[Any, ...]) -> bool:
    """Whether the program computes in 64 bits: wide labels beside f32 values are int32 for a JAX user."""
    computed = [array for array in arrays(arguments) if array.dtype.kind == "f"] or arrays(arguments)
    return any(array.itemsize == 8 for array in computed)


def _donated_state(function: Any, held: tuple[Any, ...], written: tuple[int, ...]) -> tuple[Call, bool]:
    """The arguments that the program overwrites are donated, and its results are the next call's arguments."""
    compiled = jax.jit(function, donate_argnums=written, keep_unused=True)
    state = [jnp.array(value) if number in written else value for number, value in enumerate(held)]

    def call() -> Any:
        results = jax.block_until_ready(compiled(*state))
        for number, value in zip(written, results, strict=True):
            state[number] = value

    before = [state[number] for number in written]
    call()
    return call, all(value.is_deleted() for value in before)


def _donated_results(function: Any, held: tuple[Any, ...], first: Any) -> tuple[Call, bool]:
    """The last call's results are donated to the next call, which does not read them: XLA writes into their memory."""

    def into(buffers: Any, *args: Any) -> Any:
        del buffers
        return function(*args)

    compiled = jax.jit(into, donate_argnums=0, keep_unused=True)
    buffers = [jax.tree.map(jnp.array, first)]

    def call() -> Any:
        buffers[0] = jax.block_until_ready(compiled(buffers[0], *held))
        return buffers[0]

    before = jax.tree.leaves(buffers[0])
    call()
    return call, all(value.is_deleted() for value in before)


def _empty(held: tuple[Any, ...], first: Any) -> Call:
    """One value of each argument is read; there are as many results, each a scalar."""
    outputs = len(jax.tree.leaves(first))

    def touch(*args: Any) -> Any:
        total = sum(leaf.reshape(-1)[0].astype(jnp.float32) for leaf in jax.tree.leaves(args))
        return [total + number for number in range(outputs)]

    compiled = jax.jit(touch)
    jax.block_until_ready(compiled(*held))
    return lambda: jax.block_until_ready(compiled(*held))
