"""Who runs a loop program: each makes a call on the program's arguments, or None where it has no form of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autofuse.measurement.workloads import WORKLOADS_DIRECTORY, Workload, arrays, discover, load

LOOPS = WORKLOADS_DIRECTORY / "loops"
Arguments = tuple[Any, ...]


def loop_programs(names: Sequence[str] | None = None) -> list[Workload]:
    """Those of the names, or all."""
    return discover(LOOPS) if names is None else [load(name, LOOPS) for name in names]


def has_loop_functions(program: Workload) -> bool:
    """Whether its loops are `af.scan` and the like; those of the others are Python's, and write into arrays."""
    return "af" in getattr(program.function, "__globals__", {})


def autofuse_call(program: Workload, arguments: Arguments) -> Callable[[], Any]:
    """A plan by the cost model alone."""
    import autofuse as af

    plan = af.compile(program.function, *arguments)
    return lambda: plan(*arguments)


def numpy_call(program: Workload, arguments: Arguments) -> Callable[[], Any]:
    """The program as it is."""
    return lambda: program.function(*arguments)


def jax_call(program: Workload, arguments: Arguments) -> Callable[[], Any] | None:
    """The same source under jax.jit. Python loops that write into arrays are no programs of JAX."""
    if not has_loop_functions(program):
        return None
    from jax_programs import same_source

    return _jitted(same_source(program), arguments)


def rewritten_jax_call(program: Workload, arguments: Arguments) -> Callable[[], Any] | None:
    """A form that is faster in JAX."""
    from jax_programs import REWRITTEN

    return _jitted(REWRITTEN[program.name], arguments) if program.name in REWRITTEN else None


def _jitted(function: Callable[..., Any], arguments: Arguments) -> Callable[[], Any]:
    """Numbers of steps are constants; 64-bit types where an argument has one."""
    import jax

    jax.config.update("jax_enable_x64", any(array.dtype.itemsize == 8 for array in arrays(arguments)))
    fixed = tuple(number for number, value in enumerate(arguments) if isinstance(value, int))
    run = jax.jit(function, static_argnums=fixed)
    held = tuple(value if isinstance(value, int) else jax.device_put(value) for value in arguments)
    return lambda: jax.block_until_ready(run(*held))


def numba_call(program: Workload, arguments: Arguments) -> Callable[[], Any] | None:
    """Loops by hand."""
    from numba_programs import PROGRAMS

    form = PROGRAMS.get(program.name)
    return None if form is None else lambda: form(*arguments)


SIDES: dict[str, Callable[[Workload, Arguments], Callable[[], Any] | None]] = {
    "autofuse": autofuse_call,
    "JAX": jax_call,
    "JAX, rewritten": rewritten_jax_call,
    "Numba": numba_call,
    "NumPy": numpy_call,
}
"""By name."""
