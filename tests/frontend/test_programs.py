"""Whole programs: in the style of NPBench and PolyBench, and every workload of the project."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autofuse.frontend.traced import trace
from autofuse.measurement.workloads import Workload, discover

RNG = np.random.default_rng(7)


def jacobi_1d(steps: int, a: Any, b: Any) -> None:
    for _ in range(1, steps):
        b[1:-1] = 0.33333 * (a[:-2] + a[1:-1] + a[2:])
        a[1:-1] = 0.33333 * (b[:-2] + b[1:-1] + b[2:])


def fdtd_2d(steps: int, ex: Any, ey: Any, hz: Any, fict: Any) -> None:
    for t in range(steps):
        ey[0, :] = fict[t]
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])


def gramschmidt(a: Any) -> Any:
    q = np.zeros_like(a)
    r = np.zeros((a.shape[1], a.shape[1]), dtype=a.dtype)
    for k in range(a.shape[1]):
        nrm = np.dot(a[:, k], a[:, k])
        r[k, k] = np.sqrt(nrm)
        q[:, k] = a[:, k] / r[k, k]
        for j in range(k + 1, a.shape[1]):
            r[k, j] = np.dot(q[:, k], a[:, j])
            a[:, j] -= q[:, k] * r[k, j]
    return q, r


def cholesky(a: Any) -> None:
    a[0, 0] = np.sqrt(a[0, 0])
    for i in range(1, a.shape[0]):
        for j in range(i):
            a[i, j] -= np.dot(a[i, :j], a[j, :j])
            a[i, j] /= a[j, j]
        a[i, i] -= np.dot(a[i, :i], a[i, :i])
        a[i, i] = np.sqrt(a[i, i])


def floyd_warshall(path: Any) -> None:
    for k in range(path.shape[0]):
        path[:] = np.minimum(path[:], np.add.outer(path[:, k], path[k, :]))


def correlation(m: float, float_n: float, data: Any) -> Any:
    mean = np.mean(data, axis=0)
    stddev = np.std(data, axis=0)
    stddev[stddev <= 0.1] = 1.0
    data -= mean
    data /= np.sqrt(float_n) * stddev
    corr = np.eye(int(m), dtype=data.dtype)
    for i in range(int(m) - 1):
        corr[i + 1 : int(m), i] = corr[i, i + 1 : int(m)] = data[:, i] @ data[:, i + 1 : int(m)]
    return corr


def conv2d_bias(x: Any, weights: Any, bias: Any) -> Any:
    k = weights.shape[0]
    n, h, w = x.shape[0], x.shape[1] - k + 1, x.shape[2] - k + 1
    output = np.empty((n, h, w, weights.shape[3]), dtype=np.float32)
    for i in range(h):
        for j in range(w):
            output[:, i, j, :] = np.sum(
                x[:, i : i + k, j : j + k, :, np.newaxis] * weights[np.newaxis, :, :, :], axis=(1, 2, 3)
            )
    return output + bias


def cavity_pressure(p: Any, b: Any, dx: float, dy: float, steps: int) -> Any:
    pn = np.empty_like(p)
    for _ in range(steps):
        pn[:] = p.copy()
        p[1:-1, 1:-1] = ((pn[1:-1, 2:] + pn[1:-1, :-2]) * dy**2 + (pn[2:, 1:-1] + pn[:-2, 1:-1]) * dx**2) / (
            2 * (dx**2 + dy**2)
        ) - dx**2 * dy**2 / (2 * (dx**2 + dy**2)) * b[1:-1, 1:-1]
        p[:, -1] = p[:, -2]
        p[0, :] = p[1, :]
        p[:, 0] = p[:, 1]
        p[-1, :] = 0
    return p


def mandelbrot_masked(xmin: float, xmax: float, n: int, iterations: int, y: Any) -> Any:
    x = np.linspace(xmin, xmax, n, dtype=np.float64)
    re, im = x + np.zeros_like(y)[:, None], y[:, None] + np.zeros_like(x)
    zr, zi, count = np.zeros_like(re), np.zeros_like(re), np.zeros(re.shape, dtype=np.int64)
    for k in range(iterations):
        inside = zr * zr + zi * zi < 4.0
        count[inside] = k
        new = zr * zr - zi * zi + re
        zi[inside] = (2 * zr * zi + im)[inside]
        zr[inside] = new[inside]
    count[count == iterations - 1] = 0
    return count


def softmax_cross_entropy(logits: Any, labels: Any) -> Any:
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    log_probabilities = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return -log_probabilities[np.arange(len(labels)), labels].mean()


def nbody_step(mass: Any, pos: Any, vel: Any, dt: float, g: float, softening: float) -> None:
    delta = pos[None, :, :] - pos[:, None, :]
    inv_r3 = (delta**2).sum(axis=2) + softening**2
    np.power(inv_r3, -1.5, out=inv_r3, where=inv_r3 > 0)
    acc = g * (delta * inv_r3[:, :, None] * mass[None, :, None]).sum(axis=1)
    vel += acc * dt
    pos += vel * dt


def histogram_by_scatter(x: Any, weights: Any, bins: int) -> Any:
    counts = np.zeros(bins, np.int64)
    totals = np.zeros(bins)
    index = np.clip((x * bins).astype(np.int64), 0, bins - 1)
    np.add.at(counts, index, 1)
    np.add.at(totals, index, weights)
    return counts, np.divide(totals, counts, out=np.zeros(bins), where=counts > 0)


def durbin(r: Any) -> Any:
    y = np.empty_like(r)
    alpha = -r[0]
    beta = 1.0
    y[0] = -r[0]
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y


SPD = RNG.normal(size=(6, 6))
PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "jacobi_1d": (jacobi_1d, (4, RNG.normal(size=20), RNG.normal(size=20))),
    "fdtd_2d": (fdtd_2d, (3, *(RNG.normal(size=(7, 8)) for _ in range(3)), RNG.normal(size=3))),
    "gramschmidt": (gramschmidt, (RNG.normal(size=(6, 4)),)),
    "cholesky": (cholesky, (SPD @ SPD.T + np.eye(6),)),
    "floyd_warshall": (floyd_warshall, (RNG.integers(1, 30, (6, 6)).astype(np.int32),)),
    "correlation": (correlation, (5.0, 9.0, RNG.normal(size=(9, 5)))),
    "conv2d_bias": (
        conv2d_bias,
        tuple(
            a.astype(np.float32)
            for a in (RNG.normal(size=(2, 6, 5, 3)), RNG.normal(size=(3, 3, 3, 4)), RNG.normal(size=4))
        ),
    ),
    "cavity_pressure": (cavity_pressure, (RNG.normal(size=(6, 7)), RNG.normal(size=(6, 7)), 0.1, 0.2, 3)),
    "mandelbrot_masked": (mandelbrot_masked, (-2.0, 0.5, 9, 6, np.linspace(-1.2, 1.2, 7))),
    "softmax_cross_entropy": (
        softmax_cross_entropy,
        (RNG.normal(size=(6, 5)).astype(np.float32), np.array([0, 4, 2, 1, 1, 3])),
    ),
    "nbody_step": (nbody_step, (RNG.random(5), RNG.normal(size=(5, 3)), RNG.normal(size=(5, 3)), 0.01, 1.0, 0.1)),
    "histogram_by_scatter": (histogram_by_scatter, (RNG.random(50), RNG.random(50), 8)),
    "durbin": (durbin, (RNG.normal(size=8) * 0.1,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, agrees: Any) -> None:
    function, arguments = PROGRAMS[name]
    # some dozen operations and short sums, each in the order of the interpreter or NumPy: 256 ulp of order one
    agrees(function, *arguments, ulps=256, scale=1.0)


WORKLOADS = discover()


@pytest.mark.parametrize("program", WORKLOADS, ids=lambda program: program.name)
def test_workload(program: Workload, agrees: Any) -> None:
    # the deepest are twelve layers of matrix products; f32 results of order one agree to 1e-4
    agrees(program.function, *program.inputs("small", 0), ulps=1024, scale=1.0)


@pytest.mark.parametrize("program", WORKLOADS, ids=lambda program: program.name)
def test_a_workload_traces_the_same_twice(program: Workload) -> None:
    first, second = (trace(program.function, *program.inputs("small", 0)) for _ in range(2))
    assert [(n.name, n.op, n.location) for n in first.graph.nodes] == [
        (n.name, n.op, n.location) for n in second.graph.nodes
    ]
    assert (first.in_tree, first.out_tree, first.writebacks) == (second.in_tree, second.out_tree, second.writebacks)
