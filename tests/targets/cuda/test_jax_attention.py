"""`jax.nn.dot_product_attention` as JAX exports it: one kernel that walks the keys, with the interpreter's answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

KEYS = 2048
HEADS = (1, KEYS, 4, 64)
FEW = (1, KEYS, 2, 64)


def attend(*more: str, **options: Any) -> Callable[..., Any]:
    """With further arguments of these names."""
    return lambda q, k, v, *args: jax.nn.dot_product_attention(q, k, v, **dict(zip(more, args, strict=True)), **options)


def tril(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.float32(8)
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf).astype(jnp.float32)).astype(q.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


# Functions, the shape of keys, and shapes and types of further arguments, in letters: batch, heads, steps, 1.
CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], list[tuple[str, str]]]] = {
    "grouped_causal": (attend(is_causal=True), FEW, []),
    "plain": (attend(), HEADS, []),
    "causal": (attend(is_causal=True), HEADS, []),
    "one_head_of_keys": (attend(), (*HEADS[:2], 1, HEADS[3]), []),
    "bias": (attend("bias"), HEADS, [("1hss", "bfloat16")]),
    "mask": (attend("mask"), HEADS, [("b1ss", "bool")]),
    "mask_and_causal": (attend("mask", is_causal=True), HEADS, [("b11s", "bool")]),
    "window": (attend(is_causal=True, local_window_size=(256, 0)), HEADS, []),
    "lengths": (attend("key_value_seq_lengths"), HEADS, [("b", "int32")]),
    "tril": (tril, HEADS, []),
}
SELDOM = [pytest.param(name, marks=pytest.mark.slow) for name in CASES if name != "grouped_causal"]


def arguments(name: str, keys: int, width: int, dtype: Any) -> tuple[Callable[..., Any], list[Any]]:
    """A function and arguments, of so many keys."""
    fn, (batch, _, few, _), others = CASES[name]
    sizes = {"b": batch, "h": HEADS[2], "s": keys, "1": 1}
    rng = np.random.default_rng(0)
    shapes = [(batch, keys, heads, width) for heads in (HEADS[2], few, few)]
    args = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    for shape, kind in others:
        value = rng.random([sizes[letter] for letter in shape])
        args.append(value > 0.3 if kind == "bool" else (value * (keys if kind == "int32" else 1)).astype(kind))
    return fn, args


def exported(fn: Callable[..., Any], args: list[Any]) -> Callable[..., Any]:
    return af.from_stablehlo(jax.export.export(jax.jit(fn))(*args))


@pytest.mark.parametrize("name", ["grouped_causal", *SELDOM])
def test_it_is_one_kernel(name: str) -> None:
    fn, args = arguments(name, KEYS, 64, jnp.bfloat16)
    plan = af.compile(exported(fn, args), *args, backend="cuda", device="h200", deadline=None)
    assert plan.explain().count("sweep(") == 1
    assert len(plan.kernels) == 1 or name == "lengths"  # comparisons with lengths may be a launch


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_answers_are_right(name: str, dtype: str) -> None:
    fn, args = arguments(name, 75, 20, jnp.dtype(dtype))
    module = exported(fn, args)
    graph = af.trace(module, *args)
    plan = af.compile(module, *args, backend="simulated", deadline=None)
    answers = af.interpret(graph, *args)
    check(name, np.asarray(plan(*args)), answers[0], bounds_of(graph, args)[0])
