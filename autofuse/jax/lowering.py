"""How a call of a plan is compiled by JAX: as a custom call of autofuse's handler, or as what it computes."""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from autofuse.errors import BackendError, TraceError
from autofuse.jax.callee import Callee
from autofuse.targets.base import XlaHandlers

_TARGET = "autofuse_program"
_taken_apart: ContextVar[bool] = ContextVar("autofuse_taken_apart", default=False)


@contextmanager
def taking_apart() -> Generator[None]:
    """While a module becomes a plan, calls of other plans in it are what they compute: parts of that plan."""
    token = _taken_apart.set(True)
    try:
        yield
    finally:
        _taken_apart.reset(token)


def lowered(context: Any, *operands: Any, callee: Callee) -> Sequence[Any]:
    """The values of a call, in the module that JAX is making for CPUs."""
    if _taken_apart.get():
        return _as_computed(context, operands, callee)
    planner = callee.planner
    try:
        _require_one_device(context, planner.name)
        with taking_apart():
            plan = planner.plan(callee)
    except TraceError as error:
        if planner.on_unsupported != "xla":
            raise
        planner.warn_once(error)
        return _as_computed(context, operands, callee)
    entry = planner.entry(plan)
    _registered(entry.handlers)
    context.module_context.add_keepalive(plan)  # until there is an executable, which keeps the program itself
    rule = jax.ffi.ffi_lowering(
        _TARGET, operand_output_aliases={number: output for output, number in entry.aliases.items()}
    )
    return rule(context, *operands, program=np.int64(entry.number))


def lowered_elsewhere(context: Any, *_operands: Any, callee: Callee) -> Sequence[Any]:
    """The error for other devices."""
    platforms = ", ".join(context.module_context.platforms)
    raise BackendError(
        f"{callee.planner.name}: autofuse.jax makes plans for JAX's CPU devices, and this call is for {platforms};"
        ' place its arguments there: jax.device_put(x, jax.devices("cpu")[0])'
    )


def _as_computed(context: Any, operands: Sequence[Any], callee: Callee) -> Sequence[Any]:
    return mlir.lower_fun(callee.function, multiple_results=True)(context, *operands)


def _require_one_device(context: Any, name: str) -> None:
    """Raise TraceError where arrays are divided over devices."""
    axes = context.module_context.axis_context
    if isinstance(axes, mlir.SPMDAxisContext):
        if {*axes.manual_axes} >= {*axes.mesh.axis_names}:  # inside of `shard_map` each device has arrays of its own
            return
        count = axes.mesh.size
    else:
        count = getattr(axes, "num_devices", 1)
    if count != 1:
        raise TraceError(
            f"{name}: its arrays are sharded over {count} devices, and a plan is for one\n  instead: call it on arrays"
            " of one device, or inside jax.shard_map"
        )


@functools.cache
def _registered(handlers: XlaHandlers) -> None:
    """Have XLA know the handlers. Raises BackendError where it refuses."""
    capsule = jax.ffi.pycapsule
    type_ = {"type_id": capsule(handlers.type_id), "type_info": capsule(handlers.type_info)}
    stages = {"instantiate": capsule(handlers.instantiate), "execute": capsule(handlers.execute)}
    try:
        jax.ffi.register_ffi_type(_TARGET, type_, platform=handlers.platform)  # pyright: ignore[reportArgumentType]  # a TypedDict
        jax.ffi.register_ffi_target(_TARGET, stages, platform=handlers.platform)
    except Exception as error:  # jaxlib raises its own, of several kinds
        raise BackendError(
            f"autofuse.jax: JAX {jax.__version__} refuses handlers of version {handlers.version} of its FFI:"
            f" {error}; install a jaxlib that takes them (0.10)"
        ) from error
