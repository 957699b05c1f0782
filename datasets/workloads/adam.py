"""One Adam step (Kingma and Ba 2015) over the hundred parameters of a small transformer: many tiny kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Parameters = dict[str, NDArray[Any]]


def adam(
    params: Parameters, grads: Parameters, first: Parameters, second: Parameters, step: NDArray[Any]
) -> tuple[Parameters, Parameters, Parameters]:
    rate, beta1, beta2, epsilon = 1e-3, 0.9, 0.999, 1e-8
    correction1 = 1.0 - beta1**step
    correction2 = 1.0 - beta2**step
    new_params: Parameters = {}
    new_first: Parameters = {}
    new_second: Parameters = {}
    for name, g in grads.items():
        m = beta1 * first[name] + (1.0 - beta1) * g
        v = beta2 * second[name] + (1.0 - beta2) * g * g
        new_params[name] = params[name] - rate * (m / correction1) / (np.sqrt(v / correction2) + epsilon)
        new_first[name] = m
        new_second[name] = v
    return new_params, new_first, new_second


def parameter_shapes(layers: int, width: int, vocabulary: int, positions: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"embedding": (vocabulary, width), "position": (positions, width)}
    for i in range(layers):
        shapes |= {
            f"layer{i}.w_qkv": (width, 3 * width),
            f"layer{i}.b_qkv": (3 * width,),
            f"layer{i}.w_out": (width, width),
            f"layer{i}.b_out": (width,),
            f"layer{i}.gamma1": (width,),
            f"layer{i}.beta1": (width,),
            f"layer{i}.w_up": (width, 4 * width),
            f"layer{i}.b_up": (4 * width,),
            f"layer{i}.w_down": (4 * width, width),
            f"layer{i}.b_down": (width,),
            f"layer{i}.gamma2": (width,),
            f"layer{i}.beta2": (width,),
        }
    return shapes | {"gamma": (width,), "beta": (width,)}


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    layers, width, vocabulary, positions = {"small": (2, 5, 13, 7), "full": (8, 192, 4000, 256)}[size]
    shapes = parameter_shapes(layers, width, vocabulary, positions)
    rng = np.random.default_rng(seed)
    params = {name: rng.normal(0.0, 0.02, shape).astype(np.float32) for name, shape in shapes.items()}
    grads = {name: rng.normal(0.0, 1e-2, shape).astype(np.float32) for name, shape in shapes.items()}
    first = {name: rng.normal(0.0, 1e-3, shape).astype(np.float32) for name, shape in shapes.items()}
    second = {name: rng.uniform(1e-6, 1e-4, shape).astype(np.float32) for name, shape in shapes.items()}
    return params, grads, first, second, np.array(10.0, dtype=np.float32)
