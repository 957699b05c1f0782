"""Programs that every choice of the clean-up concerns: each graph computes the same, in whatever kernels it runs."""

import numpy as np
import pytest

from autofuse.ir.interpreter import interpret
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.passes.choices import Choices, alternatives
from autofuse.passes.pipeline import can_change, clean
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.documents import document_of
from autofuse.testing.fusions import check_plan
from autofuse.testing.graphs import random_inputs
from autofuse.testing.partitions import context_of, identity_here
from autofuse.testing.sketches import Sketch
from tests.fixtures.randomplans import random_plan
from tests.ir.ops.test_contractions import layout

ALL = Choices("joined", "joined", "apart", "parts", "stored", "large", "distributed", "4")
SPLIT = Choices("split", "joined", "apart", "parts", "stored", "large", "distributed", "4")


class Motifs(Sketch):
    """Pieces of networks, of random sizes."""

    def __init__(self, rng):
        super().__init__("motifs")
        self.rng = rng
        self.rows, self.depth = self.size(), self.size()
        self.x = self.arg(f"f32[{self.rows},{self.depth}]", "x")

    def size(self, most=9):
        return int(self.rng.integers(2, most + 1))

    def columns(self, value, begin, end):
        rows = value.type.shape[0]
        return self.op("slice", value, start_indices=(0, begin), limit_indices=(rows, end), strides=(1, 1))

    def heads(self, biased):
        """Products of one input, with a vector added to each."""
        results = []
        for _ in range(3):
            width = self.size()
            product = self.dot(self.x, self.arg(f"f32[{self.depth},{width}]", "w"))
            if biased:
                product = self.op("add", product, self.broadcast(self.arg(f"f32[{width}]", "b"), product, 1))
            results.append(self.op("tanh", product))
        return results

    def recurrence(self):
        """A product per step, whose gates are slices."""
        steps, batch, features, state = 3, self.size(), self.size(), self.size(5)
        x = self.arg(f"f32[{steps},{batch},{features}]", "x")
        w, u = (self.arg(f"f32[{n},{2 * state}]", "w") for n in (features, state))
        h = self.arg(f"f32[{batch},{state}]", "h")
        for t in range(steps):
            row = self.op(
                "slice", x, start_indices=(t, 0, 0), limit_indices=(t + 1, batch, features), strides=(1, 1, 1)
            )
            gates = self.op("add", self.dot(self.reshape(row, batch, features), w), self.dot(h, u))
            keep = self.op("logistic", self.columns(gates, 0, state))
            h = self.op("multiply", keep, self.op("tanh", self.columns(gates, state, 2 * state)))
        return [h]

    def loop(self):
        """A recurrence, one product of whose iterations is not on it."""
        steps, batch, features, state = 3, self.size(), self.size(), self.size(5)
        x = self.arg(f"f32[{steps},{batch},{features}]", "x")
        w, u = (self.arg(f"f32[{n},{state}]", "w") for n in (features, state))
        h = self.arg(f"f32[{batch},{state}]", "h")
        body = Sketch("body", self)
        given, row = body.arg(f"f32[{batch},{state}]"), body.arg(f"f32[{batch},{features}]")
        after = body.op("tanh", body.op("add", body.dot(row, w), body.dot(given, u)))
        regions = [body.finish([after, after])]
        return self.emit_many("scan", [h, x], regions=regions, length=steps, carries=1, reverse=False)

    def stencil(self):
        """Steps that read neighbours."""
        u = self.arg("f32[80,3]", "u")
        body = Sketch("body", self)
        given = body.arg("f32[80,3]")
        zero = body.constant(np.array(0, np.float32))
        edges = {"edge_padding_high": (0, 0), "interior_padding": (0, 0)}
        low = body.op("pad", given, zero, edge_padding_low=(1, 0), **{**edges, "edge_padding_high": (-1, 0)})
        high = body.op("pad", given, zero, edge_padding_low=(-1, 0), **{**edges, "edge_padding_high": (1, 0)})
        after = body.op("tanh", body.op("subtract", body.op("add", low, high), given))
        return self.emit_many("scan", [u], regions=[body.finish([after])], length=19, carries=1, reverse=False)

    def joined_depths(self):
        """One product of two inputs."""
        h = self.arg(f"f32[{self.rows},{self.size()}]", "h")
        both = self.op("concatenate", self.x, h, dimension=1)
        return [self.dot(both, self.arg(f"f32[{both.type.shape[1]},{self.size()}]", "w"))]

    def joined_reductions(self):
        """A concatenation that is reduced along either axis."""
        y = self.op("tanh", self.arg(f"f32[{self.rows},{self.size()}]", "y"))
        both = self.op("concatenate", self.op("sin", self.x), y, dimension=1)
        return [self.reduce(self.op("multiply", both, both), 1), self.reduce(both, 0, combiner="maximum")]

    def turned(self):
        """A large array that two kernels read across its lines, and one that two products do."""
        z, v = self.arg("f32[40,33]", "z"), self.arg("f32[40,33]", "v")
        turned = self.transpose(z)
        results = [self.op(op, turned, self.arg("f32[33,40]", "p")) for op in ("multiply", "add")]
        for _ in range(2):
            factor = self.arg(f"f32[{self.size()},33]", "f")
            results.append(
                self.op(
                    "dot_general",
                    factor,
                    v,
                    lhs_batching_dimensions=(),
                    rhs_batching_dimensions=(),
                    lhs_contracting_dimensions=(1,),
                    rhs_contracting_dimensions=(1,),
                )
            )
        return results

    def convolved(self):
        """A convolution with channels first, that is not one of a window of one."""
        channels, outputs = self.size(4), self.size(4)
        x = self.arg(f"f32[2,{channels},7,6]", "x")
        w = self.arg(f"f32[{outputs},{channels},3,2]", "w")
        return [self.op("convolution", x, w, **layout("NCHW", "OIHW", "NCHW", padding=((1, 1), (1, 0))))]

    def table(self):
        """Numbers that do not depend on any argument."""
        count = self.op("iota", shape=(200, 100), dtype=self.x.type.dtype, iota_dimension=1)
        angle = self.op("multiply", count, self.splat(0.01, count))
        return [self.op("multiply", self.arg("f32[200,100]", "t"), self.op("sin", angle))]


def motifs(seed):
    build = Motifs(np.random.default_rng(seed))
    outputs = [
        *build.heads(biased=seed % 2 == 0),
        *build.recurrence(),
        *build.loop(),
        *build.stencil(),
        *build.joined_depths(),
        *build.joined_reductions(),
    ]
    return clean(build.finish([*outputs, *build.turned(), *build.table(), *build.convolved()]))


def check_variant(after, plan, original, arrays):
    """The plan agrees with the interpreter on its own graph, and with the original program."""
    assert plan.graph is after
    found = check_plan(plan, arrays)
    answers = zip(original.outputs, found, interpret(original, *arrays), bounds_of(original, arrays), strict=True)
    for value, result, right, bound in answers:
        check(f"%{value.name}", result, right, bound)


@pytest.mark.parametrize("choices", [*alternatives(), ALL, SPLIT], ids=lambda choices: choices.label)
def test_random_kernels_of_a_variant_compute_the_same(choices):
    original = motifs(0)
    assert can_change(original, choices)
    rng = np.random.default_rng(0)
    after = clean(original, choices=choices)
    check_variant(after, random_plan(after, rng), original, random_inputs(original, rng))


@pytest.mark.parametrize("choices", [ALL, SPLIT], ids=["joined", "split"])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_analytical_plan_of_a_variant_computes_the_same(choices, seed):
    original = motifs(seed)
    after = clean(original, choices=choices)
    context = context_of(after)
    plan = document_of(context, Analytical().partition(context), identity_here())
    check_variant(after, plan, original, random_inputs(original, np.random.default_rng(seed)))
