"""One training step of a small convolutional network on images (LeCun et al. 1998): loss, gradient, momentum SGD."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def convolved(x: Any, kernel: Any, stride: int) -> Any:
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def loss(parameters: Any, images: Any, labels: Any) -> Any:
    x = jax.nn.relu(convolved(images, parameters["first"], 1) + parameters["first_bias"])
    x = jax.nn.relu(convolved(x, parameters["second"], 2) + parameters["second_bias"])
    x = x.mean(axis=(1, 2))
    logits = x @ parameters["dense"] + parameters["dense_bias"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).mean()


def cnn_train_step(parameters: Any, momentum: Any, images: Any, labels: Any) -> Any:
    value, gradient = jax.value_and_grad(loss)(parameters, images, labels)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    return jax.tree.map(lambda p, m: p - 0.05 * m, parameters, momentum), momentum, value


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    batch, side, width, classes = {"small": (3, 9, 5, 4), "full": (32, 28, 16, 10)}[size]
    rng = np.random.default_rng(seed)
    shapes = {
        "first": (3, 3, 1, width),
        "first_bias": (width,),
        "second": (3, 3, width, 2 * width),
        "second_bias": (2 * width,),
        "dense": (2 * width, classes),
        "dense_bias": (classes,),
    }
    parameters = {name: 0.2 * rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    momentum = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    images = rng.standard_normal((batch, side, side, 1), np.float32)
    return parameters, momentum, images, rng.integers(0, classes, batch).astype(np.int32)
