"""Every program in datasets/workloads runs under NumPy, deterministic and finite; some have another formula."""

import ast
import re
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import ndimage, special, stats

from autofuse.measurement.workloads import WORKLOADS_DIRECTORY, Workload, arrays, discover, load

LOOPS = discover(WORKLOADS_DIRECTORY / "loops")
PROGRAMS = [*discover(), *LOOPS]
F32 = 2e-5  # the f32 programs sum at most a few hundred terms here; the reference is in f64
F64 = 1e-11


def run(program: Workload, seed: int = 0) -> tuple[tuple[Any, ...], list[Any]]:
    """Untouched arguments, and everything the program returns or writes."""
    arguments = program.inputs("small", seed)
    return program.inputs("small", seed), [*arrays(program.function(*arguments)), *arrays(arguments)]


def result(name: str) -> tuple[tuple[Any, ...], Any]:
    program = load(name)
    arguments = program.inputs("small", 1)
    return arguments, program.function(*program.inputs("small", 1))


def f64(*arrays: Any) -> list[Any]:
    return [np.asarray(a, dtype=np.float64) for a in arrays]


def by_name(program: Workload) -> str:
    return program.name


def test_there_are_enough_programs() -> None:
    assert len(PROGRAMS) >= 24


@pytest.mark.parametrize("program", PROGRAMS, ids=by_name)
def test_a_program_is_deterministic_and_finite(program: Workload) -> None:
    _, first = run(program)
    _, again = run(program)
    assert first
    for one, other in zip(first, again, strict=True):
        assert_array_equal(one, other)
        if one.dtype.kind == "f":
            assert np.isfinite(one).all()


@pytest.mark.parametrize("program", PROGRAMS, ids=by_name)
def test_another_seed_gives_other_values_of_the_same_types(program: Workload) -> None:
    here, there = (arrays(program.inputs("small", seed)) for seed in (0, 1))
    assert [(a.shape, a.dtype) for a in here] == [(a.shape, a.dtype) for a in there]
    assert any(not np.array_equal(a, b) for a, b in zip(here, there, strict=True))


@pytest.mark.parametrize("program", PROGRAMS, ids=by_name)
def test_f32_stays_f32(program: Workload) -> None:
    arguments, results = run(program)
    if not any(a.dtype == np.float64 for a in arrays(arguments)):
        widened = [a.shape for a in results if a.dtype == np.float64 and a.shape]
        assert not widened, "a Python or NumPy f64 scalar has widened an f32 array"


@pytest.mark.parametrize("program", PROGRAMS, ids=by_name)
def test_a_program_knows_only_numpy(program: Workload) -> None:
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(program.file.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    allowed = {"__future__", "itertools", "math", "typing", "numpy"} | ({"autofuse"} if program in LOOPS else set())
    assert imported <= allowed
    assert program.summary.endswith(".")


def test_the_data_card_lists_every_program() -> None:
    card = (WORKLOADS_DIRECTORY / "README.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", card, re.MULTILINE))
    assert rows == {program.name: program.summary for program in PROGRAMS}


def test_fused_add_sum() -> None:
    (x, y, z), total = result("fused_add_sum")
    x, y, z = f64(x, y, z)
    assert_allclose(total, x.sum() + np.vdot(y, z), rtol=1e-4)  # cancellation: the sum is small beside its terms


def test_softmax() -> None:
    (x,), y = result("softmax")
    assert_allclose(y, special.softmax(x.astype(np.float64), axis=-1), rtol=F32)


def test_layer_norm_residual() -> None:
    (x, residual, gamma, beta), y = result("layer_norm_residual")
    h = np.add(*f64(x, residual))
    expected = (h - h.mean(1)[:, None]) / np.sqrt(h.var(1) + 1e-5)[:, None] * gamma + beta
    assert_allclose(y, expected, rtol=F32, atol=F32)


def test_causal_attention_of_a_step_ignores_later_steps() -> None:
    (q, k, v), y = result("attention")
    q, k, v = f64(q, k, v)
    step = 4
    scores = np.einsum("bhd,bhtd->bht", q[:, :, step], k[:, :, : step + 1]) / np.sqrt(q.shape[-1])
    expected = np.einsum("bht,bhtd->bhd", special.softmax(scores, axis=-1), v[:, :, : step + 1])
    assert_allclose(y[:, :, step], expected, rtol=1e-4, atol=F32)


def test_bert_layer_ends_in_a_layer_norm() -> None:
    (_, p), y = result("bert_layer")
    normal = (y.astype(np.float64) - p["beta2"]) / p["gamma2"]
    assert_allclose(normal.mean(-1), 0.0, atol=1e-4)
    assert_allclose(normal.std(-1), 1.0, atol=1e-4)


def test_conv_bn_relu() -> None:
    (x, w, bias, mean, var, gamma, beta), y = result("conv_bn_relu")
    x, w = f64(x, w)
    planes = [
        sum(ndimage.correlate(x[0, :, :, c], w[:, :, c, f], mode="constant") for c in range(x.shape[3]))
        for f in range(w.shape[3])
    ]
    expected = (np.stack(planes, axis=-1) + bias - mean) / np.sqrt(var + 1e-3) * gamma + beta
    assert_allclose(y[0], np.maximum(expected, 0.0), rtol=1e-4, atol=F32)


def test_black_scholes() -> None:
    (spot, strike, years), (call, put) = result("black_scholes")
    s, k, t = f64(spot, strike, years)
    d1 = (np.log(s / k) + (0.02 + 0.045) * t) / (0.3 * np.sqrt(t))
    discounted = k * np.exp(-0.02 * t)
    expected = s * stats.norm.cdf(d1) - discounted * stats.norm.cdf(d1 - 0.3 * np.sqrt(t))
    assert_allclose(call, expected, atol=1e-4)  # prices up to 30; the cdf's own error is 7.5e-8 of the strike
    assert_allclose(call - put, s - discounted, atol=1e-4)  # put-call parity


def test_adam_first_moments_and_step_length() -> None:
    (params, grads, first, second, step), (new, moments, _) = result("adam")
    for name in params:
        m = 0.9 * first[name].astype(np.float64) + 0.1 * grads[name]
        v = 0.999 * second[name].astype(np.float64) + 0.001 * grads[name].astype(np.float64) ** 2
        assert_allclose(moments[name], m, rtol=1e-4, atol=1e-8)
        move = 1e-3 * (m / (1 - 0.9 ** float(step))) / (np.sqrt(v / (1 - 0.999 ** float(step))) + 1e-8)
        assert_allclose(new[name], params[name] - move, rtol=F32, atol=1e-7)


def test_graph_laplacian_is_the_matrix_product() -> None:
    (x, neighbours, weights), y = result("graph_laplacian")
    vertices = x.shape[0]
    adjacency = np.zeros((vertices, vertices))
    np.add.at(adjacency, (np.arange(vertices)[:, None], neighbours), weights)
    laplacian = np.diag(adjacency.sum(1)) - adjacency
    assert_allclose(y, laplacian @ x, rtol=1e-4, atol=F32)


def test_hdiff_without_limited_fluxes_is_two_laplacians() -> None:
    program = load("hdiff")
    _, out, coeff = program.inputs("small", 0)
    rows, columns, levels = out.shape
    # On a quadratic along one axis the Laplacian is constant, so all fluxes vanish and the field stays.
    field = np.broadcast_to(np.arange(rows + 4.0)[:, None, None] ** 2, (rows + 4, columns + 4, levels))
    assert program.function(field, out, coeff) is None
    assert_allclose(out, field[2:-2, 2:-2], rtol=F64)


def test_jacobi_2d_writes_both_arguments() -> None:
    program = load("jacobi_2d")
    a, b = program.inputs("small", 0)
    kernel = 0.2 * ndimage.generate_binary_structure(2, 1)
    expected = previous = a.copy()
    for _ in range(2 * 5):
        previous = expected.copy()
        expected[1:-1, 1:-1] = ndimage.correlate(expected, kernel)[1:-1, 1:-1]
    program.function(a, b)
    assert_allclose(a, expected, rtol=F64)
    assert_allclose(b, previous, rtol=F64)


def test_heat_3d_is_a_seven_point_stencil() -> None:
    (field,), y = result("heat_3d")
    kernel = 0.125 * ndimage.generate_binary_structure(3, 1)
    kernel[1, 1, 1] = 1.0 - 6 * 0.125
    expected = field.copy()
    for _ in range(4):
        expected[1:-1, 1:-1, 1:-1] = ndimage.correlate(expected, kernel)[1:-1, 1:-1, 1:-1]
    assert_allclose(y, expected, rtol=F64)


def test_cross_entropy() -> None:
    (logits, labels), loss = result("cross_entropy")
    picked = special.log_softmax(logits.astype(np.float64), axis=1)[np.arange(len(labels)), labels]
    assert_allclose(loss, -picked.mean(), rtol=F32)


def test_softmax_cross_entropy_grad_is_the_derivative_of_its_loss() -> None:
    program = load("softmax_cross_entropy_grad")
    logits, labels = program.inputs("small", 0)
    logits = logits.astype(np.float64)
    _, grad = program.function(logits, labels)
    nudge = np.zeros_like(logits)
    nudge[3, 5] = 1e-5
    slope = (program.function(logits + nudge, labels)[0] - program.function(logits - nudge, labels)[0]) / 2e-5
    assert_allclose(grad[3, 5], slope, rtol=1e-5)


def test_layer_norm_backward_is_a_derivative() -> None:
    program = load("layer_norm_backward")
    grad, x, gamma = f64(*program.inputs("small", 0))

    def loss(x: Any) -> Any:
        return (grad * gamma * (x - x.mean(1)[:, None]) / np.sqrt(x.var(1) + 1e-5)[:, None]).sum()

    nudge = np.zeros_like(x)
    nudge[2, 7] = 1e-5
    grad_x, _, grad_beta = program.function(grad, x, gamma)
    assert_allclose(grad_x[2, 7], (loss(x + nudge) - loss(x - nudge)) / 2e-5, rtol=1e-5)
    assert_allclose(grad_beta, np.einsum("rw->w", grad), rtol=F64, atol=F64)


def test_rotary_embedding_keeps_lengths() -> None:
    (x, gain, wq, cos, _), q = result("rms_norm_rope")
    x, gain, wq = f64(x, gain, wq)
    h = x / np.sqrt((x**2).mean(1) + 1e-6)[:, None] * gain
    heads = (h @ wq).reshape(x.shape[0], -1, 2 * cos.shape[-1]).transpose(1, 0, 2)
    assert_allclose(np.linalg.norm(q, axis=-1), np.linalg.norm(heads, axis=-1), rtol=F32)
    assert_allclose(q[:, 0], heads[:, 0], rtol=F32, atol=F32)  # position 0 is not rotated


def test_kmeans_distances() -> None:
    (points, centroids), (nearest, inertia) = result("kmeans_distances")
    distance = np.linalg.norm(points[:, None].astype(np.float64) - centroids[None], axis=2) ** 2
    assert_array_equal(nearest, distance.argmin(1))
    assert_allclose(inertia, distance.min(1).sum(), rtol=1e-4)


def test_cartpole_step_follows_the_equations_and_resets() -> None:
    (state, action, fresh), (new, reward, done) = result("cartpole_step")
    assert 0 < done.sum() < len(done)
    x, velocity, angle, spin = f64(*state[~done].T)
    force = np.where(action[~done] == 1, 10.0, -10.0)
    push = (force + 0.05 * spin**2 * np.sin(angle)) / 1.1
    spin_rate = (9.8 * np.sin(angle) - np.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
    acceleration = push - 0.05 * spin_rate * np.cos(angle) / 1.1
    expected = np.array([x, velocity, angle, spin]) + 0.02 * np.array([velocity, acceleration, spin, spin_rate])
    assert_allclose(new[~done].T, expected, rtol=1e-4, atol=F32)
    assert_array_equal(new[done], fresh[done])
    assert_array_equal(reward, np.where(done, 0.0, 1.0))


def test_image_pipeline_keeps_a_flat_image() -> None:
    program = load("image_pipeline")
    flat = np.full((7, 9, 3), 131, dtype=np.uint8)
    assert_array_equal(program.function(flat), flat[1:-1, 1:-1])


def test_mandelbrot_counts_python_complex_iterations() -> None:
    program = load("mandelbrot")
    cx, cy = f64(*program.inputs("small", 0))
    expected = np.zeros(cx.shape)
    for index in np.ndindex(cx.shape):
        z = 0j
        while expected[index] < 20 and abs(z) < 2.0:
            z = z * z + complex(cx[index], cy[index])
            expected[index] += 1
    assert_array_equal(program.function(cx, cy), expected)


def test_lstm_and_gru_states_stay_in_their_range() -> None:
    _, (history, _) = result("lstm_sequence")
    assert np.abs(history).max() < 1.0
    (_, h, *_), new = result("gru_cell")
    assert np.abs(new).max() <= max(1.0, np.abs(h).max())


def test_cumulative_is_a_moving_score() -> None:
    (series,), score = result("cumulative")
    window = np.lib.stride_tricks.sliding_window_view(series[:, 1:], 20, axis=1)
    expected = (series[:, 20:] - window.mean(-1)) / window.std(-1)
    assert_allclose(score, expected, rtol=1e-8)  # prefix sums cancel a few digits


def test_gaussian_mixture() -> None:
    (x, mean, var, weight), (responsibility, likelihood) = result("gaussian_mixture")
    density = np.array(
        [w * stats.norm.pdf(x, m, np.sqrt(v)).prod(1) for w, m, v in zip(weight, mean, var, strict=True)]
    ).T
    assert_allclose(responsibility, density / density.sum(1)[:, None], rtol=1e-9, atol=1e-14)
    assert_allclose(likelihood, np.log(density.sum(1)).mean(), rtol=F64)


def test_nbody_forces_sum_to_zero() -> None:
    (_, mass), acceleration = result("nbody_acceleration")
    assert_allclose((mass[:, None] * acceleration).sum(0), 0.0, atol=F64)


def test_concat_users() -> None:
    (x, y), (scaled, norm) = result("concat_users")
    x, y = f64(x, y)
    assert_allclose(scaled[:, : x.shape[1]], 0.5 * np.sin(x) + 1.0, rtol=F32)
    assert_allclose(norm**2, (np.sin(x) ** 2).sum(1) + (np.cos(y) ** 2).sum(1), rtol=F32)


def test_top1_accuracy() -> None:
    (features, w, b, labels), (accuracy, confidence) = result("top1_accuracy")
    probability = special.softmax(features.astype(np.float64) @ w + b, axis=1)
    assert accuracy == (probability.argmax(1) == labels).mean()
    assert_allclose(confidence, probability.max(1).mean(), rtol=F32)
