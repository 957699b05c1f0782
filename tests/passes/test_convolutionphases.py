"""Convolutions of dilated operands by phases, and into few features by shifted results, beside the interpreter's."""

import numpy as np
import pytest

from autofuse.ir import dtypes
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.types import TensorType
from autofuse.passes import convolutionphases, convolutions
from autofuse.passes.convolutionphases import SplitPhases
from autofuse.passes.convolutions import ShiftResults
from autofuse.passes.pipeline import clean
from tests.ir.ops.test_contractions import layout

LAYOUTS = {
    1: [("NCW", "OIW", "NCW"), ("NWC", "WIO", "NWC")],
    2: [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("NCHW", "HWIO", "NHWC")],
}


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch):
    monkeypatch.setattr(convolutionphases, "_LEAST_PRODUCTS", 0)
    monkeypatch.setattr(convolutions, "_LEAST_PRODUCTS", 0)


def convolution(lhs, rhs, names, dtype=dtypes.F32, **options):
    builder = GraphBuilder("convolution")
    operands = [builder.input(TensorType(shape, dtype), name) for shape, name in ((lhs, "x"), (rhs, "w"))]
    return builder.finish([builder.emit("convolution", operands, **layout(*names, **options))])


def require_alike(graph, other, dtype, seed=0, *, infinite=False):
    rng = np.random.default_rng(seed)
    x, w = ((rng.standard_normal(value.type.shape) * 4).astype(dtype.numpy) for value in graph.inputs)
    if infinite:
        w.reshape(-1)[rng.integers(w.size)] = np.inf
    with np.errstate(all="ignore"):
        (right,), (answer,) = interpret(graph, x, w), interpret(other, x, w)
    digits = {dtypes.F32: 1e-5, dtypes.F64: 1e-13, dtypes.BF16: 8e-3}.get(dtype, 0)
    np.testing.assert_allclose(answer.astype(np.float64), right.astype(np.float64), rtol=digits, atol=30 * digits)


DILATED = {
    "a gradient": {"padding": ((2, 1), (1, 2)), "lhs_dilation": (2, 2)},
    "of one dimension": {"padding": ((2, 2), (0, 3)), "lhs_dilation": (1, 3)},
    "strided": {"padding": ((2, 4), (3, 3)), "lhs_dilation": (2, 3), "window_strides": (3, 2)},
    "a dilated window": {"padding": ((2, 4), (3, 3)), "lhs_dilation": (2, 4), "rhs_dilation": (2, 3)},
    "cropped": {"padding": ((-1, 2), (1, -2)), "lhs_dilation": (2, 2)},
}


@pytest.mark.parametrize("dtype", [dtypes.F32, dtypes.BF16, dtypes.I32], ids=str)
@pytest.mark.parametrize("case", DILATED)
def test_phases(case, dtype):
    for names in LAYOUTS[2]:
        lhs = (2, 3, 5, 4) if names[0] == "NCHW" else (2, 5, 4, 3)
        rhs = {"OIHW": (4, 3, 3, 2), "HWIO": (3, 2, 3, 4)}[names[1]]
        graph = convolution(lhs, rhs, names, dtype, **DILATED[case])
        apart = SplitPhases().apply(graph)
        assert not any(2 in node.attrs["lhs_dilation"] for node in apart.nodes if node.op == "convolution")
        require_alike(graph, apart, dtype)


def test_phases_without_products():
    """Of a window of one element, every second result is zero."""
    graph = convolution((2, 5, 3), (1, 3, 4), LAYOUTS[1][1], lhs_dilation=(2,))
    apart = SplitPhases().apply(graph)
    assert sum(node.op == "convolution" for node in apart.nodes) == 1
    require_alike(graph, apart, dtypes.F32)


@pytest.mark.parametrize("seed", range(6))
def test_zeros_between_elements_meet_infinities(seed):
    """They are NaN in the whole."""
    graph = convolution((1, 5, 4, 3), (3, 3, 3, 4), LAYOUTS[2][1], padding=((2, 1), (1, 2)), lhs_dilation=(2, 2))
    require_alike(graph, SplitPhases().apply(graph), dtypes.F32, seed, infinite=True)
    require_alike(graph, clean(graph), dtypes.F32, seed, infinite=True)


def test_small_ones_stay(monkeypatch):
    monkeypatch.undo()
    graph = convolution((1, 5, 4, 3), (3, 3, 3, 4), LAYOUTS[2][1], padding=((2, 1), (1, 2)), lhs_dilation=(2, 2))
    assert SplitPhases().apply(graph) is graph
    graph = convolution((1, 5, 4, 16), (3, 3, 16, 3), LAYOUTS[2][1])
    assert ShiftResults().apply(graph) is graph


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300))
def test_random_phases(seed):
    rng = np.random.default_rng(seed)
    rank, groups = int(rng.integers(1, 3)), int(rng.choice([1, 1, 1, 2]))
    names = LAYOUTS[rank][rng.integers(len(LAYOUTS[rank]))]
    sizes = {"N": 2, "C": 2 * groups, "O": 3 * groups, "I": 2}
    extents, window = (dict(zip("HW"[-rank:], rng.integers(1, high, rank), strict=True)) for high in (7, 5))
    options = {
        "window_strides": tuple(map(int, rng.choice([1, 1, 2, 3], rank))),
        "lhs_dilation": tuple(map(int, rng.choice([1, 2, 2, 3], rank))),
        "rhs_dilation": tuple(map(int, rng.choice([1, 1, 2, 3], rank))),
        "padding": tuple((int(low), int(high)) for low, high in rng.integers(0, 5, (rank, 2))),
        "feature_group_count": groups,
    }
    lhs, rhs = (
        tuple(int({**sizes, **own}[c]) for c in axes) for axes, own in ((names[0], extents), (names[1], window))
    )
    for n, axis in enumerate("HW"[-rank:]):  # so that windows fit
        reach, have = (int(window[axis]) - 1) * options["rhs_dilation"][n] + 1, int(extents[axis])
        missing = reach - (have - 1) * options["lhs_dilation"][n] - 1 - sum(options["padding"][n])
        low, high = options["padding"][n]
        options["padding"] = tuple(
            (low, high + max(missing, 0)) if m == n else edges for m, edges in enumerate(options["padding"])
        )
    graph = convolution(lhs, rhs, names, **options)
    require_alike(graph, SplitPhases().apply(graph), dtypes.F32, seed, infinite=bool(seed % 3 == 0))
    require_alike(graph, clean(graph), dtypes.F32, seed)


@pytest.mark.parametrize("dtype", [dtypes.F32, dtypes.BF16, dtypes.I32], ids=str)
@pytest.mark.parametrize("made", [1, 3])
def test_few_features_are_shifted_results(made, dtype):
    for names in LAYOUTS[2]:
        lhs = (2, 16, 5, 6) if names[0] == "NCHW" else (2, 5, 6, 16)
        rhs = {"OIHW": (made, 16, 3, 2), "HWIO": (3, 2, 16, made)}[names[1]]
        graph = convolution(lhs, rhs, names, dtype, padding=((1, 1), (-1, 2)), rhs_dilation=(1, 2))
        shifted = ShiftResults().apply(graph)
        assert [node.op for node in shifted.nodes].count("dot_general") == 1
        require_alike(graph, shifted, dtype)
        if dtype is dtypes.F32:
            require_alike(graph, clean(graph), dtype, infinite=True)
