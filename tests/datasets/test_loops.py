"""The programs of datasets/workloads/loops under NumPy, checked by other formulas."""

import math
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, linalg, ndimage, signal

from autofuse.measurement.workloads import WORKLOADS_DIRECTORY, load


def loaded(name: str) -> Any:
    return load(name, WORKLOADS_DIRECTORY / "loops")


def result(name: str) -> tuple[tuple[Any, ...], Any]:
    program = loaded(name)
    return program.inputs("small", 1), program.function(*program.inputs("small", 1))


def test_a_pendulum_follows_the_equations_of_one() -> None:
    (angles, spins, w1, b1, w2, b2, steps), ends = result("pendulum")
    angle, spin, cost = float(angles[3]), float(spins[3]), 0.0
    for _ in range(steps):
        hidden = np.tanh(np.array([math.cos(angle), math.sin(angle), spin]) @ w1 + b1)
        torque = 2.0 * math.tanh((hidden @ w2 + b2).item())
        cost += math.remainder(angle, 2 * math.pi) ** 2 + 0.1 * spin**2 + 0.001 * torque**2
        spin = min(max(spin + 0.05 * (15.0 * math.sin(angle) + 3.0 * torque), -8.0), 8.0)
        angle += 0.05 * spin
    assert_allclose([end[3] for end in ends], [angle, spin, cost], rtol=1e-4)  # f32 over few steps


def test_lorenz_is_near_the_exact_trajectory() -> None:
    (x, y, z, steps), ends = result("lorenz")
    for i in range(len(x)):
        exact = integrate.solve_ivp(
            lambda _, s: (10.0 * (s[1] - s[0]), s[0] * (28.0 - s[2]) - s[1], s[0] * s[1] - 8.0 / 3.0 * s[2]),
            (0.0, 0.01 * steps),
            (x[i], y[i], z[i]),
            rtol=1e-10,
            atol=1e-10,
        ).y[:, -1]
        assert_allclose([end[i] for end in ends], exact, rtol=1e-3, atol=1e-3)  # the method's error at this step


def test_a_glider_of_life_moves_by_one_cell_in_four_generations() -> None:
    world = np.zeros((8, 9), np.uint8)
    world[[0, 1, 2, 2, 2], [1, 2, 0, 1, 2]] = 1
    moved = np.roll(world, (1, 1), axis=(0, 1))
    assert_array_equal(loaded("life").function(world, 4), moved)
    assert_array_equal(loaded("life").function(world, 4 * 8 * 9), world)  # round the torus


def test_escape_time_counts_python_complex_iterations() -> None:
    (cx, cy, iterations), count = result("escape_time")
    for index in np.ndindex(cx.shape):
        z, expected = 0j, 0
        while expected < iterations and abs(z) < 2.0:
            z = z * z + complex(cx[index], cy[index])
            expected += 1
        assert count[index] == expected


def test_lstm_scan_is_the_loop_over_time() -> None:
    arguments, (history, last) = result("lstm_scan")
    expected, cell = load("lstm_sequence").function(*arguments)
    assert_array_equal(history, expected)
    assert_array_equal(last, cell)


def test_heat_2d_is_a_five_point_stencil() -> None:
    (plate, steps), after = result("heat_2d")
    kernel = 0.2 * ndimage.generate_binary_structure(2, 1)
    expected = plate
    for _ in range(steps):
        expected = np.pad(ndimage.correlate(expected, kernel, mode="constant")[1:-1, 1:-1], 1)
    assert_allclose(after, expected, rtol=1e-11)


def test_value_iteration_is_optimal() -> None:
    (chances, reward), (value, policy, sweeps) = result("value_iteration")
    states = np.arange(len(value))
    moves, earned = chances[policy, states], reward[policy, states]
    assert_allclose(
        value, np.linalg.solve(np.eye(len(value)) - 0.9 * moves, earned), atol=1e-5
    )  # within 1e-6 / (1 - 0.9)
    assert_allclose((reward + 0.9 * chances @ value).max(0), value, atol=1e-6)  # no action is better
    assert 10 < sweeps < 500


def test_metropolis_samples_its_density() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 4000), np.float32)
    y = 0.25 * x * x + 0.5 * y * np.float32(0.7071)  # as the density has it: x and the bend are normal
    _, mean, taken = loaded("metropolis").function(np.array([0, 1], np.uint32), x, y, 60)
    assert abs(mean.mean() - 0.25) < 0.02  # of 4000 chains
    assert 0.4 < taken.mean() / 60 < 0.9


def test_jacobi_1d_goes_by_turns() -> None:
    (a, b, steps), (left, right) = result("jacobi_1d")
    for _ in range(steps):
        b = np.concatenate([b[:1], ndimage.uniform_filter1d(a, 3)[1:-1], b[-1:]])
        a = np.concatenate([a[:1], ndimage.uniform_filter1d(b, 3)[1:-1], a[-1:]])
    assert_allclose(left, a, rtol=1e-11)
    assert_allclose(right, b, rtol=1e-11)


def test_fdtd_2d_updates_each_field_from_the_other() -> None:
    (ex, ey, hz, source), found = result("fdtd_2d")
    rows, columns = hz.shape
    for t in range(len(source)):
        for i in range(rows):
            for j in range(columns):
                ey[i, j] = source[t] if i == 0 else ey[i, j] - 0.5 * (hz[i, j] - hz[i - 1, j])
                ex[i, j] -= 0.5 * (hz[i, j] - hz[i, j - 1]) if j else 0.0
        for i in range(rows - 1):
            for j in range(columns - 1):
                hz[i, j] -= 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])
    for one, other in zip(found, (ex, ey, hz), strict=True):
        assert_allclose(one, other, rtol=1e-9, atol=1e-11)


def test_seidel_2d_reads_the_new_row_above() -> None:
    (grid, sweeps), after = result("seidel_2d")
    side = len(grid)
    for _ in range(sweeps):
        for i in range(1, side - 1):
            old = grid[i].copy()
            for j in range(1, side - 1):
                grid[i, j] = 0.2 * (grid[i - 1, j] + grid[i + 1, j] + old[j - 1] + old[j] + old[j + 1])
    assert_allclose(after, grid, rtol=1e-11)


def test_adi_is_half_explicit_and_half_implicit() -> None:
    (u, steps), after = result("adi")
    n = len(u)
    second = np.diag(np.full(n - 1, 1.0), 1) + np.diag(np.full(n - 1, 1.0), -1) - 2.0 * np.eye(n)
    for _ in range(2 * steps):
        u = np.linalg.solve(np.eye(n) - 0.4 * second, u + 0.4 * u @ second).T
    assert_allclose(after, u, rtol=1e-9)


def test_deriche_is_a_convolution_with_both_halves_of_its_kernel() -> None:
    (image,), smooth = result("deriche")
    x = image.astype(np.float64)
    decay = math.exp(-0.25)
    gain = (1.0 - decay) ** 2 / (1.0 + 0.5 * decay - decay * decay)
    k = np.arange(x.shape[1])
    kernel = gain * (0.25 * k + 1.0) * decay**k  # of Deriche's page: k (|x| alpha + 1) exp(-alpha |x|)
    both = np.concatenate([kernel[:0:-1], kernel])
    expected = np.array([np.convolve(row, both)[len(k) - 1 : 2 * len(k) - 1] for row in x])
    assert_allclose(smooth, expected, rtol=1e-3, atol=1e-3)


def test_products_by_rows() -> None:
    (data,), cov = result("covariance")
    assert_allclose(cov, np.cov(data, rowvar=False), rtol=1e-9, atol=1e-12)
    (c, a), updated = result("syrk")
    assert_allclose(updated, np.where(np.tri(len(c)) > 0, 1.2 * c + 1.5 * a @ a.T, c), rtol=1e-11)
    (a, b), product = result("trmm")
    assert_allclose(product, 1.5 * (np.tril(a, -1) + np.eye(len(a))).T @ b, rtol=1e-11)


def test_factorisations() -> None:
    (a,), factor = result("cholesky")
    assert_allclose(factor, np.linalg.cholesky(a), rtol=1e-9, atol=1e-11)
    (a,), both = result("lu")
    assert_allclose((np.tril(both, -1) + np.eye(len(a))) @ np.triu(both), a, rtol=1e-9)
    (r,), y = result("durbin")
    assert_allclose(y, linalg.solve_toeplitz(np.concatenate([[1.0], r[:-1]]), -r), rtol=1e-8)


def test_histogram_bins_is_numpys_histogram() -> None:
    (values, weights, bins), (counts, sums) = result("histogram_bins")
    assert_array_equal(counts, np.histogram(values, bins, (-3.0, 3.0))[0])
    assert_allclose(sums, np.histogram(values, bins, (-3.0, 3.0), weights=weights)[0], rtol=1e-9)


def test_graph_network_adds_the_messages_of_each_edge() -> None:
    (nodes, source, target, weight, bias, rounds), after = result("graph_network")
    state = nodes.astype(np.float64)
    for _ in range(rounds):
        sums = np.zeros_like(state)
        for edge in range(len(source)):
            sums[target[edge]] += np.maximum(state[source[edge]] * weight[edge] + bias, 0.0)
        state = 0.5 * (nodes + sums)
    assert_allclose(after, state, rtol=1e-4, atol=1e-5)


def test_plasma_1d_weighs_with_hats_and_integrates_the_charge() -> None:
    (x, v, cells, steps), (places, speeds) = result("plasma_1d")
    hats = np.arange(cells)
    for _ in range(steps):
        far = np.abs(x[:, None] - hats)
        shares = np.maximum(1.0 - np.minimum(far, cells - far), 0.0)
        assert_allclose(shares.sum(), x.size)
        field = np.tril(np.ones((cells, cells))) @ (1.0 - shares.sum(0) * cells / x.size)
        v = v - 0.05 * shares @ (field - field.mean())
        x = (x + 0.05 * v) % cells
    assert_allclose((places, speeds), (x, v), rtol=1e-8, atol=1e-8)


def test_conv_loops_is_a_correlation() -> None:
    (image, weights, bias), out = result("conv_loops")
    expected = [
        [
            sum(signal.correlate2d(one[..., c], weights[..., c, f], "valid") for c in range(one.shape[-1])) + bias[f]
            for f in range(weights.shape[-1])
        ]
        for one in image
    ]
    assert_allclose(out, np.maximum(np.moveaxis(np.array(expected), 1, -1), 0.0), rtol=1e-4)
