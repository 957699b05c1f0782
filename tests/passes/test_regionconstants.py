"""Arrays written out in the body of a loop or a branch."""

import numpy as np
import pytest

import autofuse as af
from autofuse.frontend.traced import trace
from autofuse.fusion.candidate import is_inlined
from autofuse.ir.graph import Graph
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.passes.pipeline import clean


def counted(x):
    h = 0.0
    for i in range(20):
        point = np.array([0.0, -3.0]) + h * np.array([x[i] - 0.5, 1.0])
        h += np.sqrt((point**2).sum()) * 0.1
    return h


def ended_by_data(x):
    t = 0.0
    for _ in range(20):
        point = t * np.array([0.3, 1.0])
        if point[1] + x[0] > 3:
            break
        t += 0.3
    return t


def in_branches(x):
    out = np.zeros((20, 3))
    for i in range(20):
        for j in range(3):
            if x[i] > 0.5:
                out[i, j] = (np.array([1.0, 2.0, 3.0]) * x[i])[j]
            else:
                out[i] = np.array([4.0, 5.0, 6.0])
    return out


def lookups(x):
    table = 0.0
    for i in range(20):
        table = table * 0.5 + np.array([1.0, 7.0, 2.0])[i % 3] * x[i]
    return table


def arrays_in(graph: Graph):
    for node in graph.nodes:
        for region in node.regions:
            yield from (n for n in region.nodes if role_of(n) is Role.CONSTANT and not is_inlined(n))
            yield from arrays_in(region)


@pytest.mark.parametrize("function", [counted, ended_by_data, in_branches, lookups])
def test_such_arrays_are_read_from_memory(function):
    x = np.random.default_rng(3).random(20)
    graph = clean(trace(function, x).graph)
    assert not list(arrays_in(graph))
    assert clean(graph) is graph
    for policy in ("analytical", "unfused"):
        np.testing.assert_allclose(af.compile(function, x, policy=policy)(x), function(x), rtol=1e-12)
