"""Who simulates: each makes a call that returns the states and rewards of all environments after all steps."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from programs import Library, naive, unstacked

SOURCE = Path(__file__).resolve().parent / "native" / "cartpole.cpp"
Call = Callable[[], tuple[Any, Any]]


def autofuse_call(program: Any, key: Any, state: Any, steps: int) -> Call:
    """A plan by the cost model alone."""
    import autofuse as af

    lib = Library(np, af.random, af.scan)
    plan = af.compile(lambda key, state: program(lib, key, state, steps), key, state)
    return lambda: plan(key, state)


def jax_call(program: Any, key: Any, state: Any, steps: int) -> Call:
    """Under jax.jit."""
    import jax

    lib = Library(jax.numpy, jax.random, jax.lax.scan)
    run = jax.jit(lambda key, state: program(lib, key, state, steps))
    return lambda: jax.block_until_ready(run(key, state))


def numpy_call(program: Any, key: Any, state: Any, steps: int) -> Call:
    """The same function as it is, with draws by NumPy."""
    import autofuse as af

    lib = Library(np, af.random, af.scan)
    return lambda: program(lib, key, state, steps)


def native_call(function: str, key: Any, state: Any, steps: int) -> Call:
    """C++ with OpenMP, compiled for this machine; no contraction, as autofuse has none."""
    folder = Path(tempfile.mkdtemp(prefix="cartpole-"))
    binary = folder / "cartpole.so"
    options = ["-O3", "-march=native", "-mprefer-vector-width=512", "-ffp-contract=off", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run(["g++", *options, f"-DLANES={_lanes()}", str(SOURCE), "-o", str(binary)], check=True)
    routine = getattr(ctypes.CDLL(str(binary)), function)

    def call() -> tuple[Any, Any]:
        ends, rewards = state.copy(), np.empty(len(state), np.float32)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (key, ends, rewards)]
        routine(*pointers, ctypes.c_int64(len(state)), ctypes.c_int64(steps))
        return ends, rewards

    return call


def _lanes() -> int:
    return 16 if "avx512f" in Path("/proc/cpuinfo").read_text() else 8


SIDES: dict[str, tuple[Callable[..., Call], Any]] = {
    "autofuse": (autofuse_call, naive),
    "autofuse, unstacked": (autofuse_call, unstacked),
    "JAX": (jax_call, naive),
    "JAX, unstacked": (jax_call, unstacked),
    "NumPy": (numpy_call, naive),
    "C++": (native_call, "simple"),
    "C++, vectors": (native_call, "vectors"),
}
"""Name to how a call is made, and of which program."""
