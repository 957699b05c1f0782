"""Programs in the style of benchmark suites: Python loops over time, rows, columns, windows and bins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class Kernel:
    """A program, and what it becomes."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    """Shapes of random arrays, and numbers as they are."""
    loops: tuple[str, ...]
    """Loops of its graph, from the outside to the inside."""
    rtol: float = 1e-9
    dtype: str = "f8"


def arrays(name: str) -> tuple[Any, ...]:
    """Arguments for a kernel."""
    rng = np.random.default_rng(3)
    kernel = KERNELS[name]
    return tuple(
        rng.random(item).astype(kernel.dtype) if isinstance(item, tuple) else item for item in kernel.arguments
    )


def jacobi_1d(a, b, steps):
    for _ in range(1, steps):
        b[1:-1] = 0.33333 * (a[:-2] + a[1:-1] + a[2:])
        a[1:-1] = 0.33333 * (b[:-2] + b[1:-1] + b[2:])


def jacobi_2d(a, b, steps):
    for _ in range(1, steps):
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        a[1:-1, 1:-1] = 0.2 * (b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1])


def heat_3d(a, b, steps):
    def step(new, old):
        inner = old[1:-1, 1:-1, 1:-1]
        new[1:-1, 1:-1, 1:-1] = (
            0.125 * (old[2:, 1:-1, 1:-1] - 2.0 * inner + old[:-2, 1:-1, 1:-1])
            + 0.125 * (old[1:-1, 2:, 1:-1] - 2.0 * inner + old[1:-1, :-2, 1:-1])
            + 0.125 * (old[1:-1, 1:-1, 2:] - 2.0 * inner + old[1:-1, 1:-1, :-2])
            + inner
        )

    for _ in range(1, steps):
        step(b, a)
        step(a, b)


def fdtd_2d(ex, ey, hz, source):
    for t in range(source.shape[0]):
        ey[0, :] = source[t]
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])


def seidel_2d(a, steps):
    n = a.shape[0]
    for _ in range(steps):
        for i in range(1, n - 1):
            a[i, 1:-1] += a[i - 1, :-2] + a[i - 1, 1:-1] + a[i - 1, 2:] + a[i, 2:]
            a[i, 1:-1] += a[i + 1, :-2] + a[i + 1, 1:-1] + a[i + 1, 2:]
            for j in range(1, n - 1):
                a[i, j] += a[i, j - 1]
                a[i, j] /= 9.0


def adi(u, steps):
    n = u.shape[0]
    v, p, q = np.empty(u.shape), np.empty(u.shape), np.empty(u.shape)
    a, b, c = 0.3, 1.7, 0.2
    for _ in range(1, steps + 1):
        v[0, 1 : n - 1] = 1.0
        p[1 : n - 1, 0] = 0.0
        q[1 : n - 1, 0] = v[0, 1 : n - 1]
        for j in range(1, n - 1):
            p[1 : n - 1, j] = -c / (a * p[1 : n - 1, j - 1] + b)
            q[1 : n - 1, j] = (
                -0.1 * u[j, 0 : n - 2] + 1.2 * u[j, 1 : n - 1] - 0.1 * u[j, 2:n] - a * q[1 : n - 1, j - 1]
            ) / (a * p[1 : n - 1, j - 1] + b)
        v[n - 1, 1 : n - 1] = 1.0
        for j in range(n - 2, 0, -1):
            v[j, 1 : n - 1] = p[1 : n - 1, j] * v[j + 1, 1 : n - 1] + q[1 : n - 1, j]
        u[1 : n - 1, 1 : n - 1] = v[1 : n - 1, 1 : n - 1]


def deriche(image):
    width = image.shape[1]
    y1, y2 = np.empty_like(image), np.empty_like(image)
    y1[:, 0] = 0.5 * image[:, 0]
    y1[:, 1] = 0.5 * image[:, 1] + 0.2 * image[:, 0] + 0.3 * y1[:, 0]
    for j in range(2, width):
        y1[:, j] = 0.5 * image[:, j] + 0.2 * image[:, j - 1] + 0.3 * y1[:, j - 1] + 0.1 * y1[:, j - 2]
    y2[:, -1] = 0.0
    y2[:, -2] = 0.2 * image[:, -1]
    for j in range(width - 3, -1, -1):
        y2[:, j] = 0.2 * image[:, j + 1] + 0.1 * image[:, j + 2] + 0.3 * y2[:, j + 1] + 0.1 * y2[:, j + 2]
    return y1 + y2


def vertical_advection(field, wind):
    levels = field.shape[2]
    ccol, dcol, out = np.empty(field.shape), np.empty(field.shape), np.empty(field.shape)
    ccol[:, :, 0] = 0.25 * wind[:, :, 1]
    dcol[:, :, 0] = field[:, :, 0]
    for k in range(1, levels - 1):
        gav = -0.25 * (wind[1:, :, k] + wind[:-1, :, k])
        bet = 1.0 / (3.0 + gav - ccol[1:, :, k - 1])
        ccol[1:, :, k] = 0.3 * wind[1:, :, k + 1] * bet
        dcol[1:, :, k] = (field[1:, :, k] - gav * dcol[1:, :, k - 1]) * bet
        ccol[0, :, k] = 0.0
        dcol[0, :, k] = field[0, :, k]
    for k in range(levels - 1, -1, -1):
        if k == levels - 1:
            data = field[:, :, k]
        else:
            data = dcol[:, :, k] - ccol[:, :, k] * data
        out[:, :, k] = 0.2 * (data - field[:, :, k])
    return out


def cavity_flow(u, v, p, steps, inner):
    b = np.zeros_like(u)
    for _ in range(steps):
        un, vn = u.copy(), v.copy()
        b[1:-1, 1:-1] = (u[1:-1, 2:] - u[1:-1, :-2]) / 2 + (v[2:, 1:-1] - v[:-2, 1:-1]) / 2
        for _ in range(inner):
            pn = p.copy()
            p[1:-1, 1:-1] = (pn[1:-1, 2:] + pn[1:-1, :-2] + pn[2:, 1:-1] + pn[:-2, 1:-1]) / 4 - 0.25 * b[1:-1, 1:-1]
            p[:, -1] = p[:, -2]
            p[0, :] = p[1, :]
            p[-1, :] = 0
        u[1:-1, 1:-1] = un[1:-1, 1:-1] - 0.01 * un[1:-1, 1:-1] * (un[1:-1, 1:-1] - un[1:-1, :-2])
        u[1:-1, 1:-1] -= 0.005 * (p[1:-1, 2:] - p[1:-1, :-2])
        v[1:-1, 1:-1] = vn[1:-1, 1:-1] - 0.005 * (p[2:, 1:-1] - p[:-2, 1:-1])
        u[-1, :] = 1
        v[:, 0] = 0


def nbody(mass, pos, vel, steps):
    def acceleration(pos):
        x, y = pos[:, 0:1], pos[:, 1:2]
        dx, dy = x.T - x, y.T - y
        inverse = (dx**2 + dy**2 + 0.01) ** (-1.5)
        return np.hstack(((dx * inverse) @ mass, (dy * inverse) @ mass))

    def energy(pos, vel):
        x = pos[:, 0:1]
        return 0.5 * np.sum(mass * vel**2), np.sum(np.abs(x.T - x) * mass)

    kinetic, potential = np.ndarray(steps + 1, dtype=np.float64), np.ndarray(steps + 1, dtype=np.float64)
    kinetic[0], potential[0] = energy(pos, vel)
    acc = acceleration(pos)
    t = 0.0
    for i in range(steps):
        vel += acc * 0.01 / 2.0
        pos += vel * 0.01
        acc = acceleration(pos)
        vel += acc * 0.01 / 2.0
        t += 0.01
        kinetic[i + 1], potential[i + 1] = energy(pos, vel)
    return kinetic, potential, t


def convolution(x, w):
    size = w.shape[0]
    images, height, width, _ = x.shape
    out = np.empty((images, height - size + 1, width - size + 1, w.shape[3]), dtype=np.float32)
    for i in range(height - size + 1):
        for j in range(width - size + 1):
            window = x[:, i : i + size, j : j + size, :, np.newaxis]
            out[:, i, j, :] = np.sum(window * w[np.newaxis, :, :, :], axis=(1, 2, 3))
    return out


def histogram(data, radius, bins):
    most = radius.max()
    means = np.zeros(bins)
    for i in range(bins):
        inner, outer = most * i / bins, most * (i + 1) / bins
        means[i] = data[np.logical_and(inner <= radius, radius < outer)].mean()
    return means


def mandelbrot(c, steps):
    z, count = np.zeros_like(c), np.zeros(c.shape, np.int32)
    for _ in range(steps):
        z = z * z + c
        count[np.abs(z) < 2] += 1
    return count


def covariance(data):
    columns, rows = data.shape[1], float(data.shape[0])
    data -= np.mean(data, axis=0)
    cov = np.zeros((columns, columns))
    for i in range(columns):
        cov[i:columns, i] = data[:, i] @ data[:, i:columns] / (rows - 1.0)
        cov[i, i:columns] = cov[i:columns, i]
    return cov


def correlation(data):
    columns, rows = data.shape[1], float(data.shape[0])
    deviation = np.std(data, axis=0)
    deviation[deviation <= 0.1] = 1.0
    data -= np.mean(data, axis=0)
    data /= np.sqrt(rows) * deviation
    corr = np.eye(columns)
    for i in range(columns - 1):
        corr[i + 1 : columns, i] = corr[i, i + 1 : columns] = data[:, i] @ data[:, i + 1 : columns]
    return corr


def syrk(c, a):
    for i in range(a.shape[0]):
        c[i, : i + 1] *= 0.3
        for k in range(a.shape[1]):
            c[i, : i + 1] += 1.5 * a[i, k] * a[: i + 1, k]


def trmm(a, b):
    for i in range(b.shape[0]):
        for j in range(b.shape[1]):
            b[i, j] += np.dot(a[i + 1 :, i], b[i + 1 :, j])
    b *= 1.5


def symm(c, a, b):
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            c[:i, j] += 1.5 * b[i, j] * a[i, :i]
            inner = b[:i, j] @ a[i, :i]
            c[i, j] = 0.2 * c[i, j] + 1.5 * b[i, j] * a[i, i] + 1.5 * inner


def cholesky(a):
    a += a.shape[0] * np.eye(a.shape[0])
    a[0, 0] = np.sqrt(a[0, 0])
    for i in range(1, a.shape[0]):
        for j in range(i):
            a[i, j] -= np.dot(a[i, :j], a[j, :j])
            a[i, j] /= a[j, j]
        a[i, i] -= np.dot(a[i, :i], a[i, :i])
        a[i, i] = np.sqrt(a[i, i])


def lu(a):
    a += a.shape[0] * np.eye(a.shape[0])
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, a.shape[0]):
            a[i, j] -= a[i, :i] @ a[:i, j]


def elimination(a):
    a += a.shape[0] * np.eye(a.shape[0])
    for k in range(a.shape[0] - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])


def durbin(r):
    y = np.empty_like(r)
    alpha, beta, y[0] = -r[0], 1.0, -r[0]
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y


def gram_schmidt(a):
    q, r = np.zeros_like(a), np.zeros((a.shape[1], a.shape[1]))
    for k in range(a.shape[1]):
        r[k, k] = np.sqrt(np.dot(a[:, k], a[:, k]))
        q[:, k] = a[:, k] / r[k, k]
        for j in range(k + 1, a.shape[1]):
            r[k, j] = np.dot(q[:, k], a[:, j])
            a[:, j] -= q[:, k] * r[k, j]
    return q, r


def triangular_solve(lower, x, b):
    for i in range(lower.shape[0]):
        x[i] = (b[i] - lower[i, :i] @ x[:i]) / (lower[i, i] + 4.0)


KERNELS = {
    "jacobi_1d": Kernel(jacobi_1d, ((30,), (30,), 1000), ("scan 999",)),
    "jacobi_2d": Kernel(jacobi_2d, ((9, 11), (9, 11), 40), ("scan 39",)),
    "heat_3d": Kernel(heat_3d, ((6, 7, 8), (6, 7, 8), 20), ("scan 19",)),
    "fdtd_2d": Kernel(fdtd_2d, ((9, 12), (9, 12), (9, 12), (25,)), ("scan 25",)),
    "seidel_2d": Kernel(seidel_2d, ((20, 20), 17), ("scan 17", "scan 18", "scan 18")),
    "adi": Kernel(adi, ((20, 20), 16), ("scan 16", "scan 18", "scan 18")),
    "deriche": Kernel(deriche, ((7, 30),), ("scan 28", "scan 28")),
    "vertical_advection": Kernel(vertical_advection, ((5, 4, 30), (5, 4, 30)), ("scan 28", "scan 28")),
    "cavity_flow": Kernel(cavity_flow, ((9, 9), (9, 9), (9, 9), 16, 20), ("scan 16", "scan 20")),
    "nbody": Kernel(nbody, ((6, 1), (6, 2), (6, 2), 20), ("scan 20",)),
    "convolution": Kernel(convolution, ((2, 20, 19, 3), (3, 3, 3, 4)), ("scan 18", "scan 17"), 1e-4, "f4"),
    "histogram": Kernel(histogram, ((200,), (200,), 20), ("scan 20",)),
    "mandelbrot": Kernel(mandelbrot, ((30,), 40), ("scan 40",)),
    "covariance": Kernel(covariance, ((12, 20),), ("scan 20",)),
    "correlation": Kernel(correlation, ((12, 20),), ("scan 19",)),
    "syrk": Kernel(syrk, ((20, 20), (20, 18)), ("scan 20", "scan 18")),
    "trmm": Kernel(trmm, ((20, 20), (20, 18)), ("scan 20", "scan 18")),
    "symm": Kernel(symm, ((20, 18), (20, 20), (20, 18)), ("scan 20", "scan 18")),
    "cholesky": Kernel(cholesky, ((20, 20),), ("scan 19", "while")),
    "lu": Kernel(lu, ((20, 20),), ("scan 20", "while", "while")),
    "elimination": Kernel(elimination, ((20, 20),), ("scan 19",)),
    "durbin": Kernel(durbin, ((20,),), ("scan 19",), 1e-6),
    "gram_schmidt": Kernel(gram_schmidt, ((20, 18),), ("scan 18", "while"), 1e-7),
    "triangular_solve": Kernel(triangular_solve, ((20, 20), (20,), (20,)), ("scan 20",)),
}
