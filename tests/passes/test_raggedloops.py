"""What graphs are finished with: in loops over slices that grow and shrink, sums, masks and updates in place."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.interpreter import interpret
from autofuse.passes.pipeline import clean, finished

N = 20


def forward(lower, x):
    for i in range(N):
        x[i] = (x[i] - lower[i, :i] @ x[:i]) / (lower[i, i] + 4.0)
    return x


def column(m, x):
    for k in range(1, N):
        m[k:, k] = m[k:, k] - m[k:, :k] @ m[k, :k]
        x[k] = m[k:, k][0]
    return m


def whole(m, x):
    for _ in range(N):
        x = 0.1 * (m @ x)
    return x


def body_of(function):
    """The body of the loop, which computes what it did before clean-up."""
    rng = np.random.default_rng(0)
    arguments = rng.random((N, N)), rng.random(N)
    graph = af.trace(function, *arguments)
    after = finished(clean(graph))
    for before, now in zip(interpret(graph, *arguments), interpret(after, *arguments), strict=True):
        np.testing.assert_allclose(now, before, rtol=1e-12)
    (loop,) = [node for node in after.nodes if node.regions]
    return loop.regions[-1]


@pytest.mark.parametrize("function", [forward, column])
def test_products_of_such_slices_are_sums(function):
    ops = [node.op for node in body_of(function).nodes]
    assert "dot_general" not in ops
    assert "reduce" in ops


def test_other_products_stay():
    assert "dot_general" in [node.op for node in body_of(whole).nodes]


def test_a_mask_is_compared_where_it_is_read():
    body = body_of(column)
    masks = [node.output for node in body.nodes if node.op in ("compare", "and")]
    assert masks
    assert all(len(body.users[mask]) == 1 for mask in masks)
    assert all(mask.type.shape == user.output.type.shape for mask in masks for user in body.users[mask])


def test_updates_of_the_state_may_be_made_in_place():
    updates = [node for node in body_of(column).nodes if node.op == "dynamic_update_slice"]
    assert updates
    assert all(node.attrs.get("overwrites") for node in updates)
