"""Building small graphs, feeding them numbers that break careless rewriting, and comparing bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.types import parse_type

FLOAT_SPECIALS = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 2.0, 0.5)


class Sketch(GraphBuilder):
    """A builder with short forms for tests."""

    def arg(self, spec, name="x"):
        return self.input(parse_type(spec), name)

    def scalar(self, number, dtype):
        return self.constant(np.array(number, parse_type(f"{dtype}[]").dtype.numpy))

    def splat(self, number, like):
        scalar = self.scalar(number, like.type.dtype.name)
        return self.emit("broadcast_in_dim", [scalar], shape=like.type.shape, broadcast_dimensions=())


@pytest.fixture
def sketch():
    return Sketch("sketch")


def special_input(type_, seed):
    """Random elements with every special number among them."""
    rng = np.random.default_rng(seed)
    kind, dtype = type_.dtype.kind, type_.dtype.numpy
    if kind == "bool":
        return rng.integers(0, 2, type_.shape).astype(np.bool_)
    if kind != "float":
        limits = np.iinfo(dtype)
        specials = np.array([0, 1, limits.min, limits.max, limits.max - 1, 2, 7], dtype)
        random = rng.integers(limits.min, limits.max, type_.shape, dtype, endpoint=True)
        return np.where(rng.random(type_.shape) < 0.5, rng.choice(specials, type_.shape), random)
    with np.errstate(all="ignore"):
        specials = np.array(FLOAT_SPECIALS).astype(dtype)
        random = rng.standard_normal(type_.shape).astype(dtype)
        return np.where(rng.random(type_.shape) < 0.5, rng.choice(specials, type_.shape), random)


def bits(array):
    """The bits, all NaN alike: IEEE leaves sign and payload of a computed NaN open."""
    if array.dtype.kind == "b":
        return array.view(np.uint8)
    if array.dtype.kind in "fV":
        array = np.where(array != array, array.dtype.type(np.nan), array)
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


@pytest.fixture
def assert_same():
    """Check that two graphs give the same bits (or, with `rtol`, near numbers) on special and random inputs."""

    def check(before, after, rtol=None, seeds=(0, 1, 2)):
        assert [v.type for v in after.inputs] == [v.type for v in before.inputs]
        assert [v.type for v in after.outputs] == [v.type for v in before.outputs]
        for seed in seeds:
            arrays = [special_input(value.type, seed + 10 * i) for i, value in enumerate(before.inputs)]
            for old, new in zip(interpret(before, *arrays), interpret(after, *arrays), strict=True):
                if rtol is None:
                    np.testing.assert_array_equal(bits(new), bits(old))
                else:
                    np.testing.assert_allclose(new, old, rtol=rtol, atol=rtol)

    return check


@pytest.fixture
def ops():
    """The op names of a graph, in order, without constants."""
    return lambda graph: [node.op for node in graph.nodes if node.op != "constant"]


@pytest.fixture
def assert_same_products():
    """Check that two graphs give the same bits on small integers held in floats, which every order of sums keeps."""

    def check(before, after):
        assert [v.type for v in after.outputs] == [v.type for v in before.outputs]
        rng = np.random.default_rng(0)
        arrays = [rng.integers(-4, 5, value.type.shape).astype(value.type.dtype.numpy) for value in before.inputs]
        for old, new in zip(interpret(before, *arrays), interpret(after, *arrays), strict=True):
            np.testing.assert_array_equal(new, old)

    return check
