"""`max_memory=`: what a backward pass needs of the forward pass is computed again where there is no room to keep it."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse as af
from autofuse.api.programs import program_of
from autofuse.errors import SearchError
from autofuse.search.plans.memorylimit import MemoryLimit
from autofuse.targets.base import find_target

LAYERS, ROWS, WIDTH = 6, 256, 16
ARRAY = ROWS * WIDTH * 4


def gradient(x, weights):
    """The gradient of a network, written out: each layer's activations are read again in the reverse order."""
    kept = []
    for w in weights:
        bent, wave = np.tanh(x @ w), np.sin(x)
        kept.append((w, bent, wave))
        x = bent * wave + x
    for w, bent, wave in reversed(kept):
        x = ((bent - x * wave) @ w.T) * (1 - bent * bent) + x * np.cos(wave)
    return x


def arguments():
    rng = np.random.default_rng(0)
    weights = [0.3 * rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) for _ in range(LAYERS)]
    return rng.standard_normal((ROWS, WIDTH)).astype(np.float32), weights


def peak(plan):
    document = plan.document
    limit = MemoryLimit(1, program_of(document), find_target(threads=1).limits)
    return limit.memory(document.kernels, document.order).peak_bytes


@pytest.mark.slow
def test_less_is_kept_where_memory_is_short(tmp_path):
    free = af.compile(gradient, *arguments(), threads=1)
    limit = int(0.75 * peak(free))
    short = af.compile(gradient, *arguments(), threads=1, max_memory=limit)
    assert peak(short) <= limit
    assert short.document.variant.choices.startswith("kept=")
    assert "graph variant: kept=" in short.explain()
    found = short(*arguments())
    np.testing.assert_allclose(found, free(*arguments()), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(af.load(short.save(tmp_path / "short.json"))(*arguments()), found)


def test_where_there_is_room_everything_is_kept():
    plan = af.compile(gradient, *arguments(), threads=1, max_memory=1 << 30)
    assert plan.document.variant is None


@pytest.mark.slow
def test_a_limit_that_no_graph_keeps_is_refused():
    with pytest.raises(SearchError, match=f"max_memory={4 * ARRAY}: no plan was found that takes so little"):
        af.compile(gradient, *arguments(), threads=1, max_memory=4 * ARRAY)


@pytest.mark.slow
def test_a_variant_that_is_asked_for_is_the_only_one():
    usual = af.compile(gradient, *arguments(), threads=1, variants="kept=2")
    assert usual.document.variant.choices == "kept=2"
    with pytest.raises(SearchError):
        af.compile(gradient, *arguments(), threads=1, variants="columns=joined", max_memory=8 * ARRAY)


@pytest.mark.slow
def test_tuned_plans_keep_the_limit_too():
    limit = int(0.75 * peak(af.compile(gradient, *arguments(), threads=1)))
    plan = af.tune(gradient, *arguments(), threads=1, max_memory=limit, budget=20.0, progress=False)
    assert peak(plan) <= limit
    assert plan.document.variant.choices.startswith("kept=")
