"""Python loops that tracing unrolled are found, and what only looks like one is not."""

import numpy as np
import pytest

import autofuse as af
from autofuse.frontend.traced import trace
from autofuse.frontend.unrolled import unrolled_loop

X = np.linspace(0.0, 1.0, 64)


def relaxed(steps):
    def relaxation(x):
        for _ in range(steps):
            x = np.tanh(x * 0.5 + 0.1)
        return x

    return relaxation


def descent(w, x, y):
    for _ in range(12):
        w = w - 0.01 * x.T @ (x @ w - y)
    return w


def recurrence(x, h):
    states = []
    for t in range(12):
        h = np.tanh(x[t] + h)
        states.append(h)
    return np.stack(states)


def in_place(u):
    for _ in range(12):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])


def test_a_loop_is_named_with_its_line_and_its_steps():
    loop = unrolled_loop(trace(relaxed(40), X, roll=False).graph)
    assert loop is not None
    assert loop.steps == 40
    line = relaxed(1).__code__.co_firstlineno + 2
    assert f"test_unrolled.py:{line} in relaxation" in str(loop)
    assert "af.scan" in str(loop)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (descent, (np.ones(3), np.ones((5, 3)), np.ones(5))),
        (recurrence, (np.ones((12, 4)), np.ones(4))),
        (in_place, (X.copy(),)),
    ],
)
def test_the_loops_of_numerical_work_are_found(function, args):
    assert unrolled_loop(trace(function, *args).graph, 8).steps == 12


def test_steps_that_do_not_need_one_another_are_no_loop():
    def updated(parameters):
        return [p - 0.1 * p for p in parameters]

    assert unrolled_loop(trace(updated, [X] * 40).graph, 8) is None


def test_a_long_formula_is_no_loop():
    def formula(x):
        return np.exp(x + x * (x + x * (x + x * (x + x * (x + x * (x + x * (x + x * (x + x * x))))))))

    assert unrolled_loop(trace(formula, X).graph, 8) is None


def layers(count, width=4):
    """Parameters of a network: each layer has arrays of its own."""
    return [{"w": np.eye(width), "gain": np.ones(width)} for _ in range(count)]


def normalised(x, gain):
    return (x - x.mean(-1, keepdims=True)) * gain


def test_layers_with_parameters_of_their_own_are_no_loop():
    def network(x, parameters):
        for layer in parameters:
            x = np.tanh(normalised(x, layer["gain"]) @ layer["w"])
            x = x + normalised(x, layer["gain"])
        return x

    assert unrolled_loop(trace(network, np.ones((2, 4)), layers(24)).graph, 8) is None


def test_layers_whose_parameters_are_slices_of_one_array_are_a_loop():
    def network(x, weights):
        for number in range(24):
            x = np.tanh(x @ weights[number])
        return x

    assert unrolled_loop(trace(network, np.ones((2, 4)), np.ones((24, 4, 4)), roll=False).graph, 8).steps == 24


def test_a_loop_over_time_with_parameters_is_a_loop():
    def recurrent(x, h, layer):
        for t in range(40):
            h = np.tanh(normalised(x[t] + h, layer["gain"]) @ layer["w"])
        return h

    loop = unrolled_loop(trace(recurrent, np.ones((40, 4)), np.ones(4), layers(1)[0], roll=False).graph)
    assert loop.steps == 40


def test_a_step_that_does_the_same_twice_is_one_step():
    def powers(x):
        for _ in range(12):
            x = x * x * x * x
        return x

    assert unrolled_loop(trace(powers, X).graph, 8).steps == 12
    assert unrolled_loop(trace(powers, X).graph) is None


def test_a_scan_is_no_unrolled_loop():
    def scanned(x):
        return af.fori_loop(0, 100, lambda _, x: np.tanh(x * 0.5 + 0.1), x)

    assert unrolled_loop(trace(scanned, X).graph, 8) is None
