"""Programs that TorchDynamo's NumPy layer cannot trace, op by op over tensors as they stand in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch


def cartpole_step(state: Any, action: Any, fresh: Any) -> tuple[Any, Any, Any]:
    gravity, cart_mass, pole_mass, half_length, push_force, tau = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
    position_limit, angle_limit = 2.4, 12 * 2 * math.pi / 360
    x, velocity, angle, spin = state.unbind(1)
    force = torch.where(action == 1, push_force, -push_force)
    cos, sin = torch.cos(angle), torch.sin(angle)
    total_mass = cart_mass + pole_mass
    moment = pole_mass * half_length
    push = (force + moment * spin * spin * sin) / total_mass
    spin_rate = (gravity * sin - cos * push) / (half_length * (4.0 / 3.0 - pole_mass * cos * cos / total_mass))
    acceleration = push - moment * spin_rate * cos / total_mass
    moved = torch.stack(
        [x + tau * velocity, velocity + tau * acceleration, angle + tau * spin, spin + tau * spin_rate], dim=1
    )
    done = (moved[:, 0].abs() > position_limit) | (moved[:, 2].abs() > angle_limit)
    reward = torch.where(done, 0.0, 1.0)
    return torch.where(done[:, None], fresh, moved), reward, done


def conv_bn_relu(x: Any, w: Any, bias: Any, mean: Any, var: Any, gamma: Any, beta: Any) -> Any:
    kernel_rows, kernel_columns = w.shape[:2]
    rows, columns = x.shape[1:3]
    top, left = kernel_rows // 2, kernel_columns // 2
    padded = torch.nn.functional.pad(x, (0, 0, left, left, top, top))
    products = [
        padded[:, i : i + rows, j : j + columns, :] @ w[i, j] for i in range(kernel_rows) for j in range(kernel_columns)
    ]
    y = sum(products[1:], products[0]) + bias
    return torch.relu((y - mean) / torch.sqrt(var + 1e-3) * gamma + beta)


def lstm_sequence(x: Any, w: Any, u: Any, b: Any) -> tuple[Any, Any]:
    n = u.shape[0]
    h = x.new_zeros((x.shape[1], n))
    c = torch.zeros_like(h)
    history: list[Any] = []
    for t in range(x.shape[0]):
        gates = x[t] @ w + h @ u + b
        keep, write, read = (torch.sigmoid(gates[:, k * n : (k + 1) * n]) for k in range(3))
        c = keep * c + write * torch.tanh(gates[:, 3 * n :])
        h = read * torch.tanh(c)
        history.append(h)
    return torch.stack(history), c


def softmax_cross_entropy_grad(logits: Any, labels: Any) -> tuple[Any, Any]:
    rows, classes = logits.shape
    smoothing = 0.1
    e = torch.exp(logits - logits.amax(dim=1, keepdim=True))
    probability = e / e.sum(dim=1, keepdim=True)
    hot = labels[:, None] == torch.arange(classes, dtype=labels.dtype)[None, :]
    target = torch.where(hot, 1.0 - smoothing, smoothing / (classes - 1))
    loss = -(target * torch.log(probability + 1e-12)).sum() / rows
    return loss, (probability - target) / rows


PROGRAMS: dict[str, Callable[..., Any]] = {
    "cartpole_step": cartpole_step,
    "conv_bn_relu": conv_bn_relu,
    "lstm_sequence": lstm_sequence,
    "softmax_cross_entropy_grad": softmax_cross_entropy_grad,
}
"""Functions of the same arguments as tensors, by program."""
