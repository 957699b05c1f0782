"""Kernels of a plan that are alike are lowered once, to what each would be by itself."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import autofuse as af
from autofuse.fusion.candidate import candidate_of
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import TileProgram
from autofuse.runtime import likekernels
from autofuse.runtime.likekernels import LikeKernels
from autofuse.runtime.planlowering import lower_kernel, lower_plan
from autofuse.testing.fusions import LIMITS
from autofuse.testing.sketches import Sketch


@pytest.fixture
def lowerings(monkeypatch):
    """The names of kernels that were lowered."""
    names = []

    def counted(candidate, schedule, name, limits):
        names.append(name)
        return lower(candidate, schedule, name, limits)

    monkeypatch.setattr(likekernels, "lower", counted)
    return names


def layers(*widths):
    """One layer after the other: `tanh(softmax(x @ w))`, of these widths."""
    build = Sketch("layers")
    x = build.arg(f"f32[12,{widths[0]}]")
    for number, (rows, columns) in enumerate(pairwise(widths)):
        weights = build.arg(f"f32[{rows},{columns}]", f"w{number}")
        x = build.op("tanh", build.softmax(build.dot(x, weights, f"product_{number}")), name=f"layer_{number}")
    graph, kernels, nodes = build.finish([x]), [], []
    for node in graph.nodes:
        nodes.append(node.name)
        if node.name.startswith("layer"):
            kernels.append(candidate_of(graph, nodes, [node.name]))
            nodes = []
    return kernels


def require_as_alone(candidates):
    alike = LikeKernels(LIMITS)
    for number, candidate in enumerate(candidates):
        found = alike.lowered(candidate, Schedule(), f"kernel_{number}")
        assert found == lower(candidate, Schedule(), f"kernel_{number}", LIMITS)


def test_equal_layers_are_lowered_once(lowerings):
    candidates = layers(16, 16, 16, 16)
    require_as_alone(candidates)
    assert lowerings == ["kernel_0"]


def test_layers_of_other_widths_are_not_alike(lowerings):
    require_as_alone(layers(16, 16, 16, 8, 8))
    assert lowerings == ["kernel_0", "kernel_2", "kernel_3"]


def test_schedules_are_told_apart(lowerings):
    alike, (first, second) = LikeKernels(LIMITS), layers(16, 16, 16)
    alike.lowered(first, Schedule(), "plain")
    alike.lowered(second, Schedule.from_json({"unroll": 4}), "unrolled")
    assert lowerings == ["plain", "unrolled"]


def test_kernels_that_read_values_in_other_places_are_not_alike(lowerings):
    build = Sketch("places")
    x, y = build.arg("f32[8]"), build.arg("f32[8]", "y")
    graph = build.finish([build.op("subtract", x, y, name="a"), build.op("subtract", x, x, name="b")])
    require_as_alone([candidate_of(graph, [name], [name]) for name in "ab"])
    assert len(lowerings) == 2


def test_kernels_that_write_other_values_are_not_alike(lowerings):
    build = Sketch("outputs")
    kernels = []
    for name in "ab":
        inner = build.op("tanh", build.arg("f32[8]", f"x{name}"), name=f"inner_{name}")
        kernels.append(([f"inner_{name}", name], build.op("exp", inner, name=name)))
    graph = build.finish([value for _, value in kernels])
    (first, _), (second, _) = kernels
    require_as_alone([candidate_of(graph, first, ["a"]), candidate_of(graph, second, ["inner_b", "b"])])
    assert len(lowerings) == 2


def test_names_that_follow_from_no_value_are_left_to_lowering(lowerings, monkeypatch):
    monkeypatch.setattr(likekernels, "_names", lambda *_: None)
    require_as_alone(layers(16, 16, 16))
    assert lowerings == ["kernel_0", "kernel_1"]


def test_the_kernels_of_a_plan_are_those_lowered_one_by_one(lowerings):
    rng = np.random.default_rng(0)
    parameters = [rng.standard_normal((9, 7)).astype("f4") for _ in range(5)]

    def step(*arrays):
        norms = [np.sqrt((array * array).sum()) + np.float32(1) for array in arrays]
        return tuple(array * np.float32(0.9) + np.tanh(array / norm) for array, norm in zip(arrays, norms, strict=True))

    plan = af.compile(step, *parameters)
    limits = plan.target.limits
    lowerings.clear()
    kernels = lower_plan(plan.document, limits)
    assert len(lowerings) < len(kernels)
    for kernel in kernels:
        assert isinstance(kernel.program, TileProgram)
        assert kernel.program == lower_kernel(plan.document.graph, kernel.planned, limits).program
    for found, expected in zip(plan(*parameters), step(*parameters), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
