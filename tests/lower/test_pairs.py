"""Kernels in which an argument is walked in two ways and others in one: rows against rows, several sums at once."""

import numpy as np
import pytest

from autofuse.frontend.traced import trace
from autofuse.fusion import domain
from autofuse.fusion.atoms import AtomGraph
from autofuse.ir.graph import Graph
from autofuse.passes.pipeline import clean
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.search.space.candidates import Bounds
from autofuse.search.space.enumeration import enumerated
from autofuse.testing.fusions import LIMITS
from autofuse.testing.graphs import random_inputs
from tests.fixtures.kernelchecks import check_fused, check_kernel

FEW = Bounds(sets_per_atom=24, classes=120)


def accelerations(position, mass):
    x, y = position[:, 0], position[:, 1]
    dx, dy = x[None, :] - x[:, None], y[None, :] - y[:, None]
    squared = dx * dx + dy * dy + 0.01
    pull = mass[None, :] / (squared * np.sqrt(squared))
    return (dx * pull).sum(axis=1), (dy * pull).sum(axis=1)


def test_sums_over_pairs_of_rows_are_one_kernel_with_two_results():
    rng = np.random.default_rng(0)
    check_fused(accelerations, rng.standard_normal((13, 2)), rng.uniform(0.5, 1.5, 13))


class Pairs:
    """A random function of pairs of rows."""

    def __init__(self, rng):
        rows, self.columns = int(rng.integers(2, 9)), int(rng.integers(1, 4))
        self.signs, self.axes = rng.integers(0, 2, 6), rng.integers(0, 2, 4)
        self.ops, self.turns = rng.integers(0, 4, 8), rng.integers(0, 3, 4)
        self.arrays = [
            rng.standard_normal((rows, self.columns)).astype(np.float32),
            rng.standard_normal(rows).astype(np.float32),
            rng.standard_normal((rows, rows)).astype(np.float32),
        ]

    def __call__(self, p, w, q):
        columns = [p[:, number] for number in range(self.columns)]
        pairs = [c[None, :] - c[:, None] if self.signs[n] else c[None, :] * c[:, None] for n, c in enumerate(columns)]
        total = self._total(pairs, q)
        weighed = w[None, :] * total if self.ops[7] < 2 else w[:, None] + total
        results = []
        for number, part in enumerate([*pairs[:2], weighed]):
            reduction = np.max if self.ops[(number + 3) % 8] == 3 else np.sum
            results.append(reduction(part * weighed, axis=int(self.axes[number])))
        if self.signs[4]:
            results.append(total)
        return tuple(results)

    def _total(self, pairs, q):
        total = pairs[0]
        for number, pair in enumerate(pairs[1:]):
            joined = (total * pair, total + pair * pair, np.maximum(total, pair), total - pair)
            total = joined[self.ops[number]]
        total = np.sqrt(np.abs(total) + 0.5) if self.ops[6] < 2 else total * 0.5 + 1
        if self.turns[0] == 1:
            total = total + total.T
        if self.turns[1] == 1:
            total = total * q
        return total + q.T if self.turns[2] == 1 else total


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 300))])
def test_kernels_whose_values_are_partly_tied_are_right(seed, monkeypatch):
    found = []
    real = domain._partly_tied
    monkeypatch.setattr(domain, "_partly_tied", lambda *args: found.append(real(*args)) or found[-1])
    rng = np.random.default_rng(seed)
    pairs = Pairs(rng)
    graph = clean(trace(pairs.__call__, *pairs.arrays).graph)
    for candidate in enumerated(SpaceBuilder(AtomGraph(graph, contract=bool(seed % 2)), LIMITS), FEW).candidates:
        kernel = candidate.kernel
        found.clear()
        domain.choose_domain(kernel)
        if found:
            inputs = random_inputs(Graph("kernel", kernel.inputs, kernel.nodes, kernel.outputs), rng)
            check_kernel(kernel, inputs)
