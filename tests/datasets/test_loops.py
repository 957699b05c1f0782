"""The programs of datasets/workloads/loops under NumPy, checked by other formulas."""

import math
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, ndimage

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
