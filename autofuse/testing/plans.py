"""A small plan that uses every part of the format, for tests of whatever reads, writes or keeps plans."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from autofuse.ir.digest import digest
from autofuse.ir.dtypes import F32
from autofuse.ir.graph import Graph
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.tree import Branch, Leaf, Static
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import replace
from autofuse.lower.schedule import Schedule
from autofuse.plan.document import Certificate, Launch, PlanDocument, PlannedKernel
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.identity import CpuIdentity

EXAMPLE_IDENTITY = CpuIdentity(
    product="Example CPU",
    architecture="x86_64",
    isa=("avx2", "fma"),
    cores=2,
    threads=2,
    l1d_bytes=32 << 10,
    l2_bytes=1 << 20,
    l3_bytes=8 << 20,
    llvm="20.1.8",
    generator="cpu/1",
    numpy="2.4.0",
)
"""Of no machine in particular."""


def example_graph(*, large: bool = True) -> Graph:
    """`y = exp(x * w); x[:] = y + c; return y.sum(1)`, with constants w and c that are large (or one element each)."""
    build = GraphBuilder("example")
    shape = (16, 64) if large else (1, 1)
    x = build.input(TensorType(shape, F32), "x")
    w = build.constant(np.linspace(-1, 1, shape[0] * shape[1], dtype=np.float32).reshape(shape), "w")
    half = np.linspace(2, 3, shape[0] * shape[1]).astype(ml_dtypes.bfloat16).reshape(shape)
    c = build.emit("convert", [build.constant(half, "c")], dtype=F32, name="c32")
    y = build.emit("exp", [build.emit("multiply", [x, w], name="scaled")], name="y")
    new = build.emit("add", [y, c], name="new_x")
    total = build.emit("reduce", [y], dimensions=(1,), combiner="add", name="total")
    return build.finish([total, new])


def example_plan(*, large: bool = True, identity: CpuIdentity = EXAMPLE_IDENTITY) -> PlanDocument:
    """A plan of two kernels on two lanes for `example_graph`; `large` decides whether there is a side file."""
    graph = example_graph(large=large)
    first = PlannedKernel(
        name="loop_exp",
        kind="loop",
        nodes=("scaled", "y"),
        outputs=("y",),
        schedule=cpu_schedule(unroll=8, vector_bits=256),
        digest="0123456789abcdef",
        predicted_us=1.25,
        measured_us=1.5,
        bound="memory",
    )
    second = replace(first, name="reduction_add", kind="reduction", nodes=("total",), outputs=("total",))
    third = PlannedKernel("loop_add", "loop", ("c32", "new_x"), ("new_x",), Schedule(), "fedcba9876543210")
    return PlanDocument(
        name="example",
        backend="cpu",
        numerics="strict",
        graph=graph,
        graph_digest=digest(graph),
        in_tree=Branch("tuple", (0, 1), (Branch("dict", ("x",), (Leaf(),)), Static(2.5))),
        out_tree=Leaf(),
        parameters=("state", "rate"),
        writebacks=(0,),
        kernels=(first, second, third),
        order=(Launch(0, 0), Launch(2, 1), Launch(1, 0)),
        identity=identity,
        certificate=Certificate(
            policy="measured",
            seed=0,
            budget="60 s",
            candidates=12,
            classes=9,
            measured=7,
            schedules_tried=40,
            rounds=3,
            space_digest="00112233445566778899aabbccddeeff",
            k=2.0,
            epsilon=0.05,
            floor_bound_us=2.0,
            statistical_bound_us=2.75,
            sum_us=4.0,
            e2e_us=3.5,
            refused=4,
            dominated=2,
            cut_off=0,
        ),
        notes=("x is copied: it is not contiguous",),
    )
