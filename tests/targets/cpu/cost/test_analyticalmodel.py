"""The analytical model on an uncalibrated eight-core machine: what must cost more, costs more."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from autofuse.cost_models.base import KernelFacts
from autofuse.errors import BackendError
from autofuse.ir.dtypes import F32, F64
from autofuse.ir.index import Affine, Symbol, of
from autofuse.ir.types import TensorType
from autofuse.lower.split import split_reductions
from autofuse.lower.statements import Load, Map, Store
from autofuse.lower.tile import Buffer, Dot, Matrix, Phase, RowBlock, RowGroup, Space, Stage, TileProgram
from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel
from autofuse.targets.cpu.cost.extract import features
from autofuse.targets.cpu.cost.instructions import InstructionModel
from autofuse.targets.cpu.cost.roofline import MemoryModel
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.testing.cost_models import CostModelContract, elementwise_kernel, row_sum_kernel
from autofuse.testing.devices import server


class TestContract(CostModelContract):
    def model(self):
        return AnalyticalCpuModel(server(8))


def price(program, threads=8, **facts):
    return float(AnalyticalCpuModel(server(threads)).price([KernelFacts(program, **facts)]).us[0])


def bound(program, threads=8):
    return AnalyticalCpuModel(server(threads)).price([KernelFacts(program)]).bound[0]


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_more_bytes_never_cost_less(threads):
    prices = [price(elementwise_kernel(1 << n), threads) for n in range(25)]
    # the second worker joins at some size, where the fork costs more than it saves for a moment
    assert all(after >= before * 0.75 for before, after in pairwise(prices))
    assert prices[-1] > 1000 * prices[5]


def test_more_operations_never_cost_less():
    opcodes = ("negate", "exp", "sqrt", "tanh", "log", "sin", "erf")
    prices = [price(elementwise_kernel(1 << 20, opcodes[:n])) for n in range(1, len(opcodes) + 1)]
    assert prices == sorted(prices)


def test_doubles_cost_more_than_floats():
    assert price(elementwise_kernel(1 << 20, dtype=F64)) > 1.5 * price(elementwise_kernel(1 << 20, dtype=F32))


def test_a_fused_chain_costs_less_than_its_parts():
    parts = sum(price(elementwise_kernel(1 << 20, (op,))) for op in ("negate", "abs", "floor"))
    assert price(elementwise_kernel(1 << 20, ("negate", "abs", "floor"))) < 0.5 * parts


def test_narrow_vectors_cost_what_they_were_measured_to():
    usual = server(1)
    rates = {name: rate * (1 if name == "exp/f32" else 0.5) for name, rate in usual.calibration.elements_per_us.items()}
    numbers = replace(usual.calibration, narrow_elements_per_us=rates)
    model = AnalyticalCpuModel(usual.with_calibration(numbers))

    def factor(opcode):
        kernel = elementwise_kernel(1 << 12, (opcode,) * 8)
        wide, half = (replace(kernel, schedule=cpu_schedule(vector_bits=bits)) for bits in (512, 256))
        us = model.price([KernelFacts(wide), KernelFacts(half)]).us
        return us[1] / us[0]

    assert factor("exp") == pytest.approx(1.0, abs=0.1)
    assert factor("negate") == pytest.approx(2.0, abs=0.2)


def test_a_sum_into_one_point_costs_more_than_a_split_one():
    whole = row_sum_kernel(1, 1 << 22)
    split = split_reductions(whole, 16)
    assert len(split.launches) == 2
    assert price(split) < 0.5 * price(whole)


def test_large_copies_are_memory_bound_and_long_arithmetic_is_not():
    assert bound(elementwise_kernel(1 << 24, ("abs",))) == "memory"
    assert bound(elementwise_kernel(1 << 16, ("sin", "erf") * 4)) == "compute"


def test_more_threads_help_large_kernels_only():
    large, small = elementwise_kernel(1 << 22, ("erf",)), elementwise_kernel(256, ("erf",))
    assert price(large, 8) < 0.2 * price(large, 1)
    assert price(small, 8) == pytest.approx(price(small, 1))


def matmul(rows, columns, depth, panel_rows, dots="library"):
    """`relu`-less product with a negating epilogue, in row blocks."""
    i, j = Symbol("i0", rows), Symbol("j0", columns)
    row_block = RowBlock(i, Symbol("row", panel_rows), panel_rows)
    x, w, s, y = (
        Buffer("x", TensorType((rows, depth), F32), Space.INPUT),
        Buffer("w", TensorType((depth, columns), F32), Space.INPUT),
        Buffer("s", TensorType((panel_rows, columns), F32), Space.SCRATCH),
        Buffer("y", TensorType((rows, columns), F32), Space.OUTPUT),
    )
    dot = Dot(
        Matrix("s", Affine(), columns, 1),
        Matrix("x", of(i) * depth, depth, 1),
        Matrix("w", Affine(), columns, 1),
        panel_rows,
        columns,
        depth,
        F32,
    )
    body = (
        Load(0, F32, "s", of(row_block.local) * columns + of(j)),
        Map(1, F32, "negate", (0,)),
        Store("y", of(i) * columns + of(j), 1),
    )
    phase = Phase((i,), (dot, RowGroup((Stage((j,), body, j),))), None, row_block)
    return TileProgram("mm", (x, w, s, y), ((phase,),), cpu_schedule(dots=dots))


def test_products_run_at_the_speed_of_the_library():
    program = matmul(1024, 1024, 1024, 512)
    ideal = 2 * 1024**3 / (server(1).calibration.blas_gflops["f32"].one * 1e3)
    assert bound(program, 1) == "library"
    assert ideal < price(program, 1) < 1.5 * ideal


def test_generated_products_come_close_to_the_arithmetic_peak():
    program = matmul(1024, 1024, 1024, 512, dots="auto")
    peak = server(1).calibration.fma_flops_per_us["f32"]
    assert bound(program, 1) == "compute"
    assert 1.0 < price(program, 1) * peak / (2 * 1024**3) < 1.3


def test_narrow_row_blocks_pay_for_packing():
    prices = [price(matmul(1024, 1024, 256, rows), 1) for rows in (16, 64, 128, 256)]
    assert prices == sorted(prices, reverse=True)
    assert prices[0] > 1.2 * prices[-1]


def test_small_products_are_not_packed_where_vectors_are_wide():
    per_call = [price(matmul(rows, 64, 64, rows), 1) / rows for rows in (240, 250)]  # 0.98 and 1.02 million
    assert per_call[1] > 1.2 * per_call[0]


@pytest.mark.parametrize("dots", ["library", "generated"])
def test_products_wait_for_bytes_from_beyond_the_second_cache(dots):
    """The product's own work, and 32 MB of rows that are read for 16 flops a byte: neither hides the other."""
    model = AnalyticalCpuModel(server(1))
    kernel = model.features(KernelFacts(matmul(1 << 16, 32, 128, 256, dots=dots)))
    told = model.breakdown(kernel)
    near, far = MemoryModel(server(1)).near_and_far_us(kernel.phases[0], kernel, 1.0)
    work = told.compute + told.library
    assert near < work < 3 * far
    assert told.us == pytest.approx(work + far + told.overhead + server(1).calibration.unhidden * near)


def test_a_matrix_times_a_vector_waits_for_the_matrix_alone():
    model = AnalyticalCpuModel(replace(server(1), calibration=replace(server(1).calibration, unhidden=0.0)))
    told = model.breakdown(model.features(KernelFacts(matmul(4096, 1, 4096, 256))))
    assert told.us == pytest.approx(max(told.memory, told.compute + told.library) + told.overhead)


def test_a_thin_product_takes_longer_than_its_flops():
    per_row = [price(matmul(rows, 4096, 256, rows), 1) / rows for rows in (8, 64, 512)]
    assert per_row[0] > 1.7 * per_row[1] > 1.7 * per_row[2]


def test_dividing_and_other_work_hide_each_other_in_part():
    (stage,) = features(elementwise_kernel(64)).phases[0].stages
    model = InstructionModel(server(1))
    divided, added = {("divide", "f32"): 1e6}, {("add", "f32"): 5e6}
    first, second, both = (
        model.stage_us(replace(stage, operations=work), 512) for work in (divided, added, divided | added)
    )
    assert both == pytest.approx(max(first, second) + 0.6 * min(first, second), rel=0.01)


def test_dividing_once_costs_a_part_of_dividing_a_vector():
    (stage,) = features(elementwise_kernel(64)).phases[0].stages
    model, divisions = InstructionModel(server(1)), {("divide", "f32"): 1e6}
    vectors, scalars = (
        model.stage_us(replace(stage, operations=wide, scalar_operations=single), 512)
        for wide, single in ((divisions, {}), ({}, divisions))
    )
    # 128 of 512 bits, half as long again for waiting; the divider has 0.85 of what a vector takes
    assert scalars == pytest.approx(1.5 * vectors / 0.85 / 4, rel=0.01)


@pytest.mark.parametrize(("elements", "dearer"), [(1000, 1.0), (1 << 20, 1.2), (1 << 26, 1.0)])
def test_operands_lie_nearer_in_a_kernel_that_runs_over_and_over(elements, dearer):
    facts = [KernelFacts(elementwise_kernel(elements))]
    planned, alone = (AnalyticalCpuModel(server(2), alone=alone).price(facts).us[0] for alone in (False, True))
    # a megabyte in and out fits the caches once, not twice; little fits anywhere, and much nowhere
    assert planned >= dearer * alone
    assert dearer > 1.0 or planned == pytest.approx(alone)


def test_an_unknown_opcode_is_refused():
    with pytest.raises(BackendError, match="frobnicate"):
        price(elementwise_kernel(8, ("frobnicate",)))


def test_the_price_of_a_kernel_of_nothing_is_its_launch():
    program = elementwise_kernel(0)
    assert 0 < price(program) < 1
    assert not math.isnan(price(program))
