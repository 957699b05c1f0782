"""The floor stays below every price, and is what physics says where that is simple."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.cost_models.base import KernelFacts
from autofuse.ir.dtypes import BOOL, F32, F64, I32
from autofuse.ir.index import Affine, Element, Symbol, of
from autofuse.ir.pieces import Condition
from autofuse.ir.types import TensorType
from autofuse.lower.schedule import Schedule
from autofuse.lower.split import split_reductions
from autofuse.lower.statements import ArgReduce, Constant, Load, Map, Reduce, Store
from autofuse.lower.statements import Test as When
from autofuse.lower.tile import Buffer, Phase, RowGroup, Space, Stage, TileProgram
from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel
from autofuse.targets.cpu.cost.floor import LAUNCH_FLOOR_US, floor_us, headroom_of, peaks_of
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.device.defaults import default_calibration
from autofuse.targets.cpu.device.describe import CpuDescription
from autofuse.testing.cost_models import elementwise_kernel
from tests.fixtures.examples import examples


def machine(threads, l3_bytes=32 << 20):
    return CpuDescription(
        "x86_64",
        "a core",
        ("avx2", "fma"),
        threads,
        threads,
        threads,
        32 << 10,
        1 << 20,
        l3_bytes,
        64,
        1 << 36,
        None,
        default_calibration(256, threads, l3_bytes),
    )


EXTENTS = st.integers(1, 300) | st.sampled_from([0, 1024, 4096, 65536])
UNARY = st.sampled_from(["exp", "negate", "sqrt", "tanh", "abs", "floor"])


@st.composite
def programs(draw):
    """One phase over two symbols: loads that walk every way, a chain of maps, perhaps a reduction, a store."""
    rows, columns = Symbol("i0", draw(EXTENTS)), Symbol("k0", draw(EXTENTS))
    dtype = draw(st.sampled_from([F32, F64]))
    size = max(rows.extent * columns.extent, 1)
    body, last = [Constant(0, dtype, 0.0)], 0
    walks = {
        "rows": of(rows) * columns.extent + of(columns),
        "columns": of(columns) * rows.extent + of(rows),
        "row": of(rows),
        "column": of(columns),
        "one": Affine(),
    }
    for number in range(1, draw(st.integers(2, 4))):
        walk = draw(st.sampled_from(sorted(walks)))
        masked = draw(st.booleans())
        if masked:
            body.append(When(100 + number, (Condition(of(rows) - of(columns), 0, 1 << 20),)))
        body.append(Load(number, dtype, "x", walks[walk], 100 + number if masked else None, 0 if masked else None))
        last = number
    if draw(st.booleans()):
        body += [Load(20, I32, "at", of(rows)), Load(21, dtype, "x", Affine(0, ((Element("20", (), 0, size - 1), 1),)))]
        last = 21
    for number, opcode in enumerate(draw(st.lists(UNARY, max_size=4)), start=30):
        body.append(Map(number, dtype, opcode, (last,)))
        last = number
    buffers = [
        Buffer("x", TensorType((size,), dtype), Space.INPUT),
        Buffer("at", TensorType((rows.extent,), I32), Space.INPUT),
    ]
    schedule = cpu_schedule(vector_bits=draw(st.sampled_from([128, 256, 512])), unroll=draw(st.integers(1, 8)))
    if draw(st.booleans()):
        reduction = draw(
            st.sampled_from([Reduce(90, dtype, "add", last), Reduce(90, dtype, "maximum", last)])
            | st.just(ArgReduce(90, I32, "argmax", last, of(columns)))
        )
        stages = (Stage((columns,), (*body, reduction), columns), Stage((), (Store("y", of(rows), 90),), None))
        buffers.append(Buffer("y", TensorType((rows.extent,), reduction.dtype), Space.OUTPUT))
        phase = Phase((rows,), (RowGroup(stages),))
        made = TileProgram("p", tuple(buffers), ((phase,),), schedule)
        return split_reductions(made, draw(st.integers(0, 4)))
    stage = Stage((), (*body, Store("y", walks["rows"], last)), None)
    buffers.append(Buffer("y", TensorType((size,), dtype), Space.OUTPUT))
    lane = draw(st.sampled_from([columns, rows]))
    grid = (rows, columns) if lane is columns else (columns, rows)
    return TileProgram("p", tuple(buffers), ((Phase(grid, (RowGroup((stage,)),), lane),),), schedule)


@examples(150)
@given(programs(), st.sampled_from([1, 2, 16]))
def test_no_price_is_below_its_floor(program, threads):
    model = AnalyticalCpuModel(machine(threads))
    told = model.features(KernelFacts(program))
    prices = model.price([KernelFacts(program)])
    assert np.isfinite(prices.us).all()
    assert LAUNCH_FLOOR_US <= prices.floor_us[0] <= prices.us[0]
    # the formulas themselves, not only the clamp, respect physics
    assert prices.floor_us[0] <= 1.001 * max(model.breakdown(told).us, LAUNCH_FLOOR_US * told.launches)
    for buffer in told.buffers:
        assert 0 <= buffer.floor_read_bytes <= buffer.read_bytes
        assert 0 <= buffer.floor_written_bytes <= buffer.written_bytes
        assert buffer.read_bytes <= buffer.nbytes + 63


def test_large_kernels_are_bound_by_memory_bandwidth():
    description = machine(4)
    kernel = AnalyticalCpuModel(description).features(KernelFacts(elementwise_kernel(1 << 26)))
    cached = 4 * (description.l3_bytes + description.l2_bytes)  # threads may have several caches of the last level
    beyond = 2 * 2**28 - cached
    # no core has more misses under way than bring 160 GB/s
    assert floor_us(kernel, description) == pytest.approx(beyond / (4 * 160e3))
    measured = description.with_calibration(
        replace(description.calibration, source="measured", unmeasured=(), headroom=2.0)
    )
    at_peak = beyond / description.calibration.dram_bytes_per_us.all
    assert floor_us(kernel, measured) == pytest.approx(at_peak / 2)


def test_a_rate_that_was_not_measured_has_the_bound_of_any_core():
    description = machine(4)
    measured = replace(description.calibration, source="measured", unmeasured=("dram_bytes_per_us",))
    peaks = peaks_of(description.with_calibration(measured))
    assert peaks.dram_bytes_per_us == peaks_of(description).dram_bytes_per_us
    assert peaks.l3_bytes_per_us == 2 * measured.l3_bytes_per_us.all < peaks_of(description).l3_bytes_per_us
    assert headroom_of(description) is None


def test_a_larger_cache_lowers_the_floor():
    kernel = AnalyticalCpuModel(machine(1)).features(KernelFacts(elementwise_kernel(1 << 22)))
    assert floor_us(kernel, machine(1, 64 << 20)) < floor_us(kernel, machine(1, 16 << 20))


def test_bools_have_no_flops():
    i = Symbol("i0", 1 << 20)
    body = (Load(0, BOOL, "x", of(i)), Map(1, BOOL, "not", (0,)), Store("y", of(i), 1))
    buffers = (
        Buffer("x", TensorType((1 << 20,), BOOL), Space.INPUT),
        Buffer("y", TensorType((1 << 20,), BOOL), Space.OUTPUT),
    )
    phase = Phase((i,), (RowGroup((Stage((), body, None),)),), i)
    told = AnalyticalCpuModel(machine(1)).features(KernelFacts(TileProgram("p", buffers, ((phase,),), Schedule())))
    assert sum(stage.flops for p in told.phases for stage in p.stages) == 0
