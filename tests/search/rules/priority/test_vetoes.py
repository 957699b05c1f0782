"""XLA:GPU's vetoes, each with a program just inside and just outside its limit."""

from dataclasses import replace

import numpy as np
import pytest

from autofuse.ir.dtypes import I32
from autofuse.search.rules.grouping import Grouping
from autofuse.search.rules.priority.cost_analysis import WorkCount
from autofuse.search.rules.priority.emitters import Emitters
from autofuse.search.rules.priority.gpu_devices import H100
from autofuse.search.rules.priority.gpu_module import Module
from autofuse.search.rules.priority.kernel_bodies import combined
from autofuse.search.rules.priority.vetoes import LATEST, Vetoes
from autofuse.testing.partitions import context_of
from autofuse.testing.sketches import Sketch


class Program:
    """Kernels of a program by the names of its nodes, each an instruction alone."""

    def __init__(self, build, *outputs, device=H100, **limits):
        self.module = Module(Grouping(context_of(build.finish(outputs))))
        self.vetoes = Vetoes(Emitters(device), WorkCount(device), replace(LATEST, **limits))

    def __getitem__(self, name):
        for kernel in self.module:
            atom = kernel.first.atom
            if kernel.first.opcode == name or (atom is not None and atom.nodes[0].name == name):
                return kernel
        raise KeyError(name)

    def fused(self, *names):
        """The kernel of several nodes, each of which reads those before it."""
        kernel = self[names[-1]]
        for name in reversed(names[:-1]):
            kernel = combined(self[name], kernel, kernel.number)
        return kernel

    def refusal(self, producer, consumer):
        first, second = (self[k] if isinstance(k, str) else k for k in (producer, consumer))
        return self.vetoes.refusal(first, second)


NOTHING = "fuses with nothing"
NESTED = "a reduction within a reduction"
TURNED = "a transpose within a reduction"
ENDED = "an end that makes a loop of a reduction"
BUDGET = "over budget"
CODE = "too much code"
IN_PLACE = "an update in place"


# ---- what fuses at all -----------------------------------------------------------------------------------------------


def test_products_fuse_with_nothing():
    build = Sketch("layer")
    x, w = build.arg("f32[64,32]", "x"), build.arg("f32[32,16]", "w")
    product = build.dot(build.op("exp", x, name="before"), w, "product")
    program = Program(build, build.op("tanh", product, name="after"))
    assert program.refusal("before", "product") == NOTHING
    assert program.refusal("product", "after") == NOTHING


def test_sorts_and_scans_fuse_with_nothing():
    build = Sketch("order")
    x = build.op("exp", build.arg("f32[64]"), name="before")
    summed = build.emit("cumulative", [x], name="summed", dimension=0, combiner="add", reverse=False)
    sorted_ = build.emit("sort", [x], name="sorted", dimension=0, descending=False, stable=True)
    program = Program(build, summed, sorted_)
    assert program.refusal("before", "summed") == NOTHING
    assert program.refusal("before", "sorted") == NOTHING


def test_a_bitcast_fuses_into_its_reader_but_takes_nothing_in():
    build = Sketch("flat")
    x = build.op("exp", build.arg("f32[8,8]"), name="before")
    program = Program(build, build.op("tanh", build.reshape(x, 64), name="after"))
    assert program.refusal("before", "bitcast") == NOTHING
    assert program.refusal("bitcast", "after") is None


def test_the_position_of_a_greatest_element_takes_producers_in_but_is_none():
    build = Sketch("best")
    x = build.op("exp", build.arg("f32[64,32]"), name="before")
    best = build.emit("argmax", [x], name="best", dimension=1, dtype=I32)
    program = Program(build, build.op("negate", best, name="after"))
    assert program.refusal("before", "best") is None
    assert program.refusal("best", "after") == NOTHING


# ---- reductions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reduced", "expected"), [(226, NESTED), (16, NESTED), (15, None)])
def test_a_reduction_of_16_or_more_does_not_nest(reduced, expected):
    build = Sketch("nested")
    inner = build.reduce(build.arg(f"f32[8,4,128,{reduced}]"), 3, name="inner")
    program = Program(build, build.reduce(inner, 2, name="outer"))
    assert program.refusal("inner", "outer") == expected


def test_a_reduction_ends_with_unary_operations_alone():
    build = Sketch("ends")
    x, y = build.arg("f32[28672,4096]", "x"), build.arg("f32[28672]", "y")
    total = build.reduce(x, 1, name="total")
    ends = [
        build.op("log", total, name="log"),
        build.op("add", total, y, name="sum"),
        build.op("multiply", total, build.splat(2.0, total), name="scaled"),
        build.op("logistic", total, name="squashed"),
        build.op("negate", build.emit("slice", [total], start_indices=(0,), limit_indices=(8,), strides=(1,))),
    ]
    program = Program(build, *ends)
    assert program.refusal("total", "log") is None
    for name in ("sum", "scaled", "squashed", "slice"):
        assert program.refusal("total", name) == ENDED


def test_a_reduction_that_is_a_loop_anyway_may_end_with_anything():
    build = Sketch("short")
    x, y = build.arg("f32[4096,24]", "x"), build.arg("f32[4096]", "y")
    program = Program(build, build.op("add", build.reduce(x, 1, name="total"), y, name="sum"))
    assert program.refusal("total", "sum") is None


@pytest.mark.parametrize(("keeps", "expected"), [(True, TURNED), (False, None)])
def test_some_versions_keep_transposes_out_of_reductions(keeps, expected):
    build = Sketch("turned")
    total = build.reduce(build.transpose(build.arg("f32[128,128]")), 1, name="total")
    program = Program(build, build.op("exp", total), keeps_transposes_out_of_reductions=keeps)
    assert program.refusal("transpose", "total") == expected


# ---- budgets ---------------------------------------------------------------------------------------------------------


def columns(count, **options):
    """So many reductions over the rows of one value, as one kernel and another one beside it."""
    build = Sketch("columns")
    x = build.arg("f32[4096,1024]")
    names = [f"total{k}" for k in range(count + 1)]
    program = Program(build, *(build.reduce(x, 0, name=name) for name in names), **options)
    first = program[names[0]]
    for name in names[1:-1]:
        first = combined(program[name], first, 0, program[name].written)
    return program, first, program[names[-1]]


@pytest.mark.parametrize(("count", "expected"), [(1, False), (2, True)])
def test_two_column_reductions_fill_shared_memory(count, expected):
    program, first, second = columns(count)
    assert program.vetoes.over_budget(first, second, consumed=False) == expected


@pytest.mark.parametrize(("count", "expected"), [(7, False), (8, True)])
def test_a_kernel_has_at_most_8_reductions(count, expected):
    program, first, second = columns(count, device=replace(H100, shared_bytes=1 << 20))
    assert program.vetoes.over_budget(first, second, consumed=False) == expected


@pytest.mark.parametrize(("most", "expected"), [(5, None), (4, BUDGET)])
def test_a_kernel_has_only_so_many_buffers(most, expected):
    build = Sketch("three")
    x, y, z = (build.arg("f32[64]", name) for name in "xyz")
    product = build.op("multiply", build.op("add", x, y, name="sum"), z, name="product")
    assert Program(build, product, operands_and_outputs=most).refusal("sum", "product") == expected


def test_a_consumer_that_reads_no_more_than_before_is_never_over():
    build = Sketch("same")
    x = build.arg("f32[64]")
    product = build.op("multiply", build.op("exp", x, name="grown"), x, name="product")
    program = Program(build, product, operands_and_outputs=1)
    assert program.refusal("grown", "product") is None
    assert program.vetoes.over_budget(program["grown"], program["product"], consumed=False)


@pytest.mark.parametrize(("most", "expected"), [(4, None), (3, CODE)])
def test_code_counts_as_often_as_it_is_asked_for(most, expected):
    build = Sketch("twice")
    grown = build.op("exp", build.arg("f32[64]"), name="grown")
    total = build.op("add", grown, build.emit("reverse", [grown], dimensions=(0,)), name="total")
    program = Program(build, total, code_size=most)
    assert program.refusal("grown", program.fused("reverse", "total")) == expected


# ---- updates in place ------------------------------------------------------------------------------------------------


def update_of(build, x, update, *starts, name="updated"):
    indices = [build.constant(np.array(start, np.int32)) for start in starts]
    return build.op("dynamic_update_slice", x, update, *indices, name=name)


def test_what_makes_the_updated_buffer_may_be_elementwise_or_unread_elsewhere():
    build = Sketch("made")
    x, update = build.arg("f32[8,16]", "x"), build.arg("f32[4,4]", "update")
    turned = build.emit("reverse", [build.op("log", x, name="log")], dimensions=(0,))
    program = Program(build, update_of(build, turned, update, 0, 0), update_of(build, x, update, 0, 0, name="plain"))
    assert program.refusal("reverse", "updated") == IN_PLACE
    build = Sketch("made")
    x, update = build.arg("f32[8,16]", "x"), build.arg("f32[4,4]", "update")
    program = Program(build, update_of(build, build.op("log", x, name="log"), update, 0, 0))
    assert program.refusal("log", "updated") is None


@pytest.mark.parametrize(("start", "expected"), [(2, None), (3, IN_PLACE)])
def test_an_update_may_be_computed_from_what_it_replaces(start, expected):
    build = Sketch("replaced")
    x = build.arg("f32[8,16]", "x")
    part = build.emit("slice", [x], start_indices=(start, 0), limit_indices=(start + 4, 4), strides=(1, 1))
    program = Program(build, update_of(build, x, build.op("exp", part, name="grown"), 2, 0))
    assert program.refusal(program.fused("slice", "grown"), "updated") == expected


def test_an_update_computed_from_another_place_is_written_elsewhere():
    build = Sketch("reversed")
    x = build.arg("f32[8]", "x")
    program = Program(build, update_of(build, x, build.emit("reverse", [x], dimensions=(0,)), 0))
    assert program.refusal("reverse", "updated") == IN_PLACE


def test_an_update_of_other_values_may_be_anything():
    build = Sketch("other")
    x, y = build.arg("f32[8]", "x"), build.arg("f32[8]", "y")
    program = Program(build, update_of(build, x, build.emit("reverse", [y], dimensions=(0,)), 0))
    assert program.refusal("reverse", "updated") is None
