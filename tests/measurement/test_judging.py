"""Answers are judged by bounds of all elements, or of a part and the device's own values."""

import numpy as np
import pytest

from autofuse.ir.interpreter import interpret
from autofuse.measurement import judging, references
from autofuse.measurement.checks import WrongAnswerError
from autofuse.measurement.intermediates import Intermediates
from autofuse.measurement.judging import Judge
from autofuse.measurement.references import References
from autofuse.targets.base import find_target
from autofuse.testing.graphs import random_inputs
from autofuse.testing.sketches import softmax_graph

GRAPH = softmax_graph(400, 30)
INPUTS = random_inputs(GRAPH, np.random.default_rng(0))
(RIGHT,) = interpret(GRAPH, *INPUTS)
NEAR = np.nextafter(RIGHT, np.float32(1))
"""As a device computes it."""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Parts are some rows."""
    monkeypatch.setattr(judging, "_ELEMENTS", 1000)
    monkeypatch.setattr(references, "LEAST_ELEMENTS", 1000)


@pytest.fixture
def judged(monkeypatch):
    """Elements of the outputs for which bounds were computed."""
    sizes = []
    bounds_of = judging.bounds_of

    def counting(graph, arrays):
        sizes.append(sum(value.type.size for value in graph.outputs))
        return bounds_of(graph, arrays)

    monkeypatch.setattr(judging, "bounds_of", counting)
    return sizes


def altered(place, times):
    array = NEAR.copy()
    array[place] *= np.float32(times)
    return array


def test_what_is_equal_to_the_interpreters_needs_no_bounds(judged):
    Judge(GRAPH, INPUTS, [RIGHT], exact=True).check([RIGHT.copy()])
    assert judged == []


def test_beside_the_interpreters_answer_all_elements_have_bounds(judged):
    judge = Judge(GRAPH, INPUTS, [RIGHT], exact=True)
    for _ in range(2):
        judge.check([NEAR])
    assert judged == [RIGHT.size]
    with pytest.raises(WrongAnswerError, match=r"%\w+\[17, 3\] is off"):
        judge.check([altered((17, 3), 1.01)])


def test_beside_the_devices_a_part_has(judged):
    judge = Judge(GRAPH, INPUTS, [NEAR], exact=False)
    for answer in (NEAR, RIGHT, np.nextafter(NEAR, np.float32(1))):
        judge.check([answer])
    assert len(judged) == 1
    assert judged[0] < RIGHT.size / 5


@pytest.mark.parametrize("place", [0, 399])
def test_the_part_has_the_ends(place, judged):
    judge = Judge(GRAPH, INPUTS, [NEAR], exact=False)
    with pytest.raises(WrongAnswerError, match="a part of"):
        judge.check([altered((place, 3), 1.001)])
    assert len(judged) == 1


def test_what_is_far_from_the_devices_is_judged_in_full(judged):
    """Whoever is wrong: here it is the answer, there the device."""
    judge = Judge(GRAPH, INPUTS, [NEAR], exact=False)
    judge.prepare()
    rows = judge._part.sample.positions[GRAPH.outputs[0], 0]
    row = next(row for row in range(400) if row not in rows)
    asked = []
    with pytest.raises(WrongAnswerError, match=rf"%\w+\[{row}, 3\] is off"):
        judge.check([altered((row, 3), 2)], lambda: asked.append(1))
    assert asked == [1]
    assert judged[1:] == [RIGHT.size]
    judge = Judge(GRAPH, INPUTS, [altered((row, 3), 2)], exact=False)
    judge.check([NEAR])
    assert judged[3:] == [RIGHT.size]


def test_where_there_is_no_part_all_is_judged(judged):
    graph = softmax_graph(4, 30)
    inputs = random_inputs(graph, np.random.default_rng(0))
    (right,) = interpret(graph, *inputs)
    Judge(graph, inputs, [np.nextafter(right, np.float32(1))], exact=False).check([right])
    assert judged == [right.size]


# ---- references ------------------------------------------------------------------------------------------------------


class Falsified:
    """A target whose kernels give something else at one place."""

    def __init__(self, row):
        self.target, self.row, self.asked = find_target("cpu", threads=1), row, 0

    def runners(self, kernel, schedules):
        self.asked += 1
        (runner,) = self.target.runners(kernel, schedules)
        row = self.row

        class Runner:
            def run_into(self, inputs, outs):
                done = runner.run_into(inputs, outs)
                outs[0][row] *= np.float32(1.01)
                return done

        return [Runner()]


def test_large_nodes_are_computed_by_the_target():
    held = Intermediates(GRAPH, INPUTS, 1 << 30, References(GRAPH, find_target("cpu", threads=1)).of)
    (found,) = held.of(GRAPH.outputs)
    np.testing.assert_allclose(found, RIGHT, rtol=1e-6)
    assert not held.are_exact(GRAPH.nodes)
    Judge(GRAPH, INPUTS, [found], exact=False).check([NEAR])


def test_small_nodes_are_not(monkeypatch):
    monkeypatch.setattr(references, "LEAST_ELEMENTS", 1 << 20)
    held = Intermediates(GRAPH, INPUTS, 1 << 30, References(GRAPH, Falsified(0)).of)
    assert held.of(GRAPH.outputs)[0].tobytes() == RIGHT.tobytes()
    assert held.are_exact(GRAPH.nodes)


def test_what_is_wrong_in_a_part_is_left_to_the_interpreter():
    """Once for all."""
    target = Falsified(399)
    held = Intermediates(GRAPH, INPUTS, 0, References(GRAPH, target).of)
    assert held.of(GRAPH.outputs)[0].tobytes() == RIGHT.tobytes()
    assert held.are_exact(GRAPH.nodes)
    asked = target.asked
    held.of(GRAPH.outputs)
    assert target.asked == asked > 0
