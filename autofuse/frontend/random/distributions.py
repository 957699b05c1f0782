"""Normal, exponential and Gumbel numbers, and categories, from uniform numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autofuse.frontend.axes import one_axis
from autofuse.frontend.creation import iota
from autofuse.frontend.dispatch import call
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer, reshape
from autofuse.frontend.random.calls import checked_choice, checked_dtype, checked_shape, drawn, spread
from autofuse.frontend.random.keys import drawn_from
from autofuse.frontend.random.uniforms import between, fractions_of, mantissa_of, two_of
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir import dtypes
from autofuse.ir.graph import Value

_MODES = (None, "low", "high")


@drawn
def normal(key: Any, shape: Any = (), dtype: Any = None) -> TracerArray:
    """Normal numbers of mean 0 and variance 1, `f32` unless told otherwise: sqrt(2) * erf_inv of uniform ones.

    Raises TraceError for bad arguments.
    """
    wanted, extents = checked_dtype(dtype, np.float32, ("float",)), checked_shape(shape)
    fractions = fractions_of(drawn_from("normal", key), wanted, extents)
    above = 2.0 ** -(mantissa_of(wanted) + 1) - 1  # the number after -1, where erf_inv is infinite
    uniform = between(fractions, fractions.lift(above), fractions.lift(1.0))
    return fresh((uniform.op("erf_inv") * math.sqrt(2)).value)


@drawn
def exponential(key: Any, shape: Any = (), dtype: Any = None) -> TracerArray:
    """Exponential numbers of rate 1, `f32` unless told otherwise: -log(1 - u) of uniform u.

    Raises TraceError for bad arguments.
    """
    wanted, extents = checked_dtype(dtype, np.float32, ("float",)), checked_shape(shape)
    return fresh((-(-fractions_of(drawn_from("exponential", key), wanted, extents)).op("log1p")).value)


@drawn
def gumbel(key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None) -> TracerArray:
    """Gumbel numbers, `f32` unless told otherwise: -log(-log(u)) of uniform u.

    `mode="high"` draws twice as many bits, for what is rare. Raises TraceError for bad arguments.
    """
    wanted, extents = checked_dtype(dtype, np.float32, ("float",)), checked_shape(shape)
    checked_choice("mode", mode, _MODES)
    return fresh(_gumbel(drawn_from("gumbel", key), extents, wanted, mode).value)


@drawn
def categorical(
    key: Any, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True, mode: str | None = None
) -> TracerArray:
    """Places along `axis` of `logits`, `i32`, with the probabilities of its softmax: of the greatest with Gumbel noise.

    `shape`: leading extents, and those of `logits` without `axis`, which are broadcast to it; by default the latter.
    Without `replace`, the leading extents count different places. Raises TraceError for bad arguments.
    """
    scores = as_tracer(logits)
    if dtypes.from_numpy(scores.dtype).kind != "float":
        raise trace_error(
            f"argument logits must have a float dtype, got {scores.cell.type}", "logits.astype(np.float32)"
        )
    checked_choice("mode", mode, _MODES)
    along = one_axis(axis, scores.ndim)
    batch = tuple(extent for number, extent in enumerate(scores.shape) if number != along)
    wanted = batch if shape is None else checked_shape(shape)
    prefix, own = wanted[: len(wanted) - len(batch)], wanted[len(wanted) - len(batch) :]
    if len(wanted) < len(batch) or any(e not in (1, f) for e, f in zip(batch, own, strict=True)):
        raise trace_error(
            f"argument shape must end in the shape of logits without axis, {batch}, got {wanted}",
            f"shape=(n, *{batch})",
        )
    source = drawn_from("categorical", key)
    if not replace:
        return fresh(_different(source, scores, along, prefix, mode))
    drawn_shape = (*prefix, *own[:along], scores.shape[along], *own[along:])
    noisy = _gumbel(source, drawn_shape, scores.dtype, mode) + spread("logits", scores.value, drawn_shape)
    return fresh(noisy.op("argmax", dimension=len(prefix) + along, dtype=dtypes.I32).value)


def _gumbel(key: Value, shape: tuple[int, ...], dtype: np.dtype[Any], mode: str | None) -> Term:
    tiny = 2.0 ** (-1022 if dtype.itemsize == 8 else -14 if dtype == np.float16 else -126)
    if mode != "high":
        fractions = fractions_of(key, dtype, shape)
        return -(-between(fractions, fractions.lift(tiny), fractions.lift(1.0)).op("log")).op("log")
    coarse, fine = two_of(key, dtype, shape)
    x = (coarse >= 0.5).select(coarse, coarse + fine * 2.0 ** -mantissa_of(dtype) + tiny)
    return -(-(-x).op("log1p")).op("log")


def _different(key: Value, scores: TracerArray, along: int, prefix: tuple[int, ...], mode: str | None) -> Value:
    """The places of the greatest noisy scores, one for each element of `prefix`, greatest first."""
    count, extent = math.prod(prefix), scores.shape[along]
    if count > extent:
        raise trace_error(f"argument shape asks for {count} different places of {extent}", "replace=True, or fewer")
    noisy = _gumbel(key, scores.shape, scores.dtype, mode) + Term(scores.value)
    own = iota(scores.shape, along, np.int32)
    order = current().builder.emit_many("sort", (noisy.value, own), dimension=along, descending=True, stable=True)[1]
    places = call(np.moveaxis, fresh(order, is_scalar=False), along, 0)[:count]
    return reshape(places.value, (*prefix, *places.shape[1:]))
