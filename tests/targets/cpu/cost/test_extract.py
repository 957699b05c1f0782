"""One lowering, and one walk over it, serve all schedules that arrange vectors alike."""

from itertools import product

import numpy as np
import pytest

from autofuse.errors import LegalityError
from autofuse.lazydataclass import replace
from autofuse.lower.lowering import lower
from autofuse.targets.cpu.cost import extract
from autofuse.targets.cpu.cost.extract import FeatureReader, features
from autofuse.targets.cpu.decisions import CPU_DECISIONS, cpu_schedule
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.devices import server
from autofuse.testing.fusions import whole_kernel
from autofuse.testing.graphs import random_graph
from autofuse.testing.sketches import Sketch

LIMITS = CpuTarget(server(2)).limits


def softmax():
    sketch = Sketch("softmax")
    x = sketch.arg("f32[64, 1000]")
    top = sketch.broadcast(sketch.reduce(x, 1, name="top", combiner="maximum"), x, 0)
    shifted = sketch.op("exp", sketch.op("subtract", x, top, name="d"), name="e")
    total = sketch.broadcast(sketch.reduce(shifted, 1, name="total"), x, 0)
    return whole_kernel(sketch.finish([sketch.op("divide", shifted, total, name="y")]))


def schedules(**more):
    values = {"unroll": (1, 4, 8), "vector_bits": (256, 512), "stream_stores": (None, True, False), **more}
    return [cpu_schedule(**dict(zip(values, chosen, strict=True))) for chosen in product(*values.values())]


def test_shared_walks_tell_what_single_ones_do(monkeypatch):
    walks = []
    walked = extract._walked
    monkeypatch.setattr(extract, "_walked", lambda *given: walks.append(given) or walked(*given))
    program = lower(softmax(), cpu_schedule(), "kernel", LIMITS)
    steered = [replace(program, schedule=schedule) for schedule in schedules(dots=("auto", "library"))]
    reader = FeatureReader()
    shared = [reader.features(one) for one in steered]
    assert len(walks) == 6  # of 36: three unrollings, two widths
    assert shared == [features(one) for one in steered]


def test_a_reader_keeps_lowerings_apart():
    reader = FeatureReader()
    for rows in (8, 64):
        sketch = Sketch("rows")
        graph = sketch.finish([sketch.op("exp", sketch.arg(f"f32[{rows}, 100]"), name="y")])
        program = lower(whole_kernel(graph), cpu_schedule(), "kernel", LIMITS)
        assert reader.features(program) == features(program)


@pytest.mark.parametrize("seed", range(8))
def test_what_the_code_generator_alone_reads_changes_no_lowering(seed):
    kernel = softmax() if seed == 0 else whole_kernel(random_graph(np.random.default_rng(seed)))
    try:
        lower(kernel, cpu_schedule(), "kernel", LIMITS)
    except LegalityError:
        pytest.skip("no kernel")
    for schedule in schedules():
        lowering = CPU_DECISIONS.lowering(schedule)
        assert {name for name, _ in lowering.chosen} <= {"vector_bits"}
        written = lower(kernel, schedule, "kernel", LIMITS)
        assert written == replace(lower(kernel, lowering, "kernel", LIMITS), schedule=schedule)
