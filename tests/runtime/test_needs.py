"""Plans that need more memory than there is say so before any of it is taken."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from autofuse.errors import PlanError
from autofuse.host.available import available_bytes
from autofuse.ir.graph import Value
from autofuse.runtime.needs import interpreted_bytes
from autofuse.targets.cpu.executable import build_executable
from autofuse.testing.fusions import LIMITS
from autofuse.testing.partitions import plan_of
from autofuse.testing.sketches import Sketch

HUGE = (1 << 20, 1 << 20)


def test_results_and_temporaries_that_cannot_be_are_refused_before_they_are_allocated() -> None:
    sketch = Sketch("huge")
    x = sketch.arg("f64[1048576]")
    wide = sketch.op("broadcast_in_dim", x, shape=HUGE, broadcast_dimensions=(1,), name="wide")
    plan = plan_of(sketch.finish([sketch.op("exp", wide, name="grown")]), [["wide", "grown"]])
    with pytest.raises(
        PlanError, match=r"plan huge: a call needs \d+ bytes beside its arguments \(8796093022208 for res"
    ):
        build_executable(plan, LIMITS)


def test_what_is_evaluated_node_by_node_counts_while_it_is_alive() -> None:
    sketch = Sketch("calls")
    x = sketch.arg("f64[100]")
    first = sketch.op("exp", x, name="first")
    second = sketch.op("exp", first, name="second")
    third = sketch.op("exp", second, name="third")
    assert interpreted_bytes(sketch.finish([third])) == 2 * 800
    both = Sketch("both")
    y = both.arg("f64[100]")
    assert interpreted_bytes(both.finish([both.op("exp", y), both.op("sin", y)])) == 2 * 800


def window(graph: Sketch, x: Value, points: int) -> Value:
    """Sums over all of a vector, each padded by so many points."""
    per_axis = {"window_strides": (1,), "base_dilations": (1,), "window_dilations": (1,)}
    padding = ((points - 1, 0),)
    return graph.op("reduce_window", x, window_dimensions=(points,), padding=padding, combiner="add", **per_axis)


def test_padding_that_an_op_makes_for_a_while_counts() -> None:
    sketch = Sketch("padded")
    x = sketch.arg("f64[100]")
    assert interpreted_bytes(sketch.finish([window(sketch, x, 1 << 40)])) == 800 + 8 * (100 + (1 << 40) - 1)
    layers = Sketch("layers")
    images, kernels = layers.arg("f32[1,1,12]"), layers.arg("f32[1,1,3]")
    names = ("input_batch_dimension", "output_batch_dimension", "kernel_output_feature_dimension")
    features = ("input_feature_dimension", "output_feature_dimension", "kernel_input_feature_dimension")
    spatial = ("input_spatial_dimensions", "output_spatial_dimensions", "kernel_spatial_dimensions")
    found = layers.op(
        "convolution",
        images,
        kernels,
        window_strides=(1 << 40,),
        padding=((1 << 40, 0),),
        lhs_dilation=(1,),
        rhs_dilation=(1,),
        feature_group_count=1,
        batch_group_count=1,
        **dict.fromkeys(names, 0),
        **dict.fromkeys(features, 1),
        **dict.fromkeys(spatial, (2,)),
    )
    assert interpreted_bytes(layers.finish([found])) == 4 * found.type.size + 4 * (12 + (1 << 40)) + 4 * 3 * 2


def test_what_is_available_is_the_least_of_all_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 4 kB\nSwapFree: 1 kB\n")
    (tmp_path / "proc/self/status").write_text("VmSize: 2 kB\n")
    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _: (unlimited, unlimited))
    assert available_bytes(tmp_path) == 5 << 10
    monkeypatch.setattr(resource, "getrlimit", lambda _: (3 << 10, unlimited))
    assert available_bytes(tmp_path) == 1 << 10
    assert available_bytes(tmp_path / "nowhere") <= 3 << 10
    assert np.iinfo(np.int64).max > 1 << 62
