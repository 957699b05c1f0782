"""The analytical model of GPUs: what must cost more, costs more; each term by hand where it is simple."""

import numpy as np
import pytest

import autofuse as af
from autofuse.cost_models.base import KernelFacts
from autofuse.cost_models.compiled import CompiledFacts, LaunchFacts
from autofuse.ir.dtypes import F32, F64, I32
from autofuse.lazydataclass import replace
from autofuse.targets.cuda.cost.counts import counted
from autofuse.targets.cuda.cost.model import GpuModel
from autofuse.targets.cuda.cost.rates import sheet_rates
from autofuse.targets.cuda.gpus import A100, ALL, H200, L4
from autofuse.testing.cost_models import CostModelContract, elementwise_kernel, row_sum_kernel

LARGE = 1 << 26
"""Elements: no cache holds them."""


class TestContract(CostModelContract):
    def model(self):
        return GpuModel(H200)


def compiled(registers=32, spilled=0, shared=0):
    return CompiledFacts((LaunchFacts(registers, spilled, spilled, shared),))


def terms(program, facts=None, gpu=H200):
    (found,) = GpuModel(gpu).launches(KernelFacts(program, facts))
    return found


def us(program, facts=None, gpu=H200):
    return float(GpuModel(gpu).price([KernelFacts(program, facts)]).us[0])


@pytest.mark.parametrize("gpu", ALL.values(), ids=lambda gpu: gpu.name)
def test_a_large_copy_takes_what_its_bytes_take(gpu):
    found = terms(elementwise_kernel(LARGE, ("negate",)), compiled(), gpu)
    assert found.bound == "memory"
    assert found.memory == pytest.approx(8 * LARGE / sheet_rates(gpu).memory_bytes_per_s * 1e6, rel=0.02)


def test_bytes_in_flight_limit_memory():
    program = elementwise_kernel(LARGE, ("negate",))
    few = terms(program, compiled(registers=32, shared=200 << 10))  # one block on each multiprocessor
    many = terms(program, compiled(registers=32))
    assert few.flight_bytes < many.flight_bytes
    rate = H200.multiprocessors * few.flight_bytes / 0.7e-6  # Little's law
    assert few.memory == pytest.approx(8 * LARGE / rate * 1e6, rel=0.02)


def test_blocks_that_wait_in_turn_are_hidden_by_others_that_a_multiprocessor_holds():
    """One block at a time waits in each wave; of two, one may wait while the other works, and of eight any."""
    arrays = [np.zeros(1 << 20, np.float32) for _ in range(12)]
    plan = af.compile(lambda *x: sum(x), *arrays, backend="cuda", device="h200", deadline=None)
    (program,) = (lowered.program for lowered in plan.lowered)
    one, two, eight = (terms(program, compiled(registers)) for registers in (168, 120, 32))
    busy = max(13 * arrays[0].nbytes / sheet_rates(H200).memory_bytes_per_s * 1e6, one.l2, one.issue)
    assert one.bound == "serial"
    assert one.serial == pytest.approx(busy + (one.waves - 1) * 0.7)
    assert two.serial == pytest.approx(busy / 2 + (two.waves - 1) * 0.7)
    assert eight.serial < eight.memory
    assert one.us > two.us >= eight.us


def test_more_registers_never_make_a_kernel_faster():
    program = elementwise_kernel(LARGE, ("exp", "log"))
    found = [us(program, compiled(registers)) for registers in (32, 64, 128, 255)]
    assert found == sorted(found)


def test_spills_cost_what_crosses_the_caches():
    program = elementwise_kernel(LARGE, ("negate",))
    found = [us(program, compiled(spilled=n)) for n in (0, 64, 512, 4096)]
    assert found == sorted(found)
    assert found[-1] > 3 * found[0]


def test_exponentials_are_bound_by_special_functions_or_issue_and_not_by_memory():
    found = terms(elementwise_kernel(LARGE, ("exp",) * 40), compiled())
    assert found.bound == "compute"
    assert found.special == pytest.approx(40 * LARGE / (16 * H200.multiprocessors * H200.clock_hz) * 1e6, rel=0.02)


def test_f64_is_slow_where_there_are_few_units_for_it():
    one, many = elementwise_kernel(LARGE, ("negate",) * 8, F64), elementwise_kernel(LARGE, ("negate",) * 8, F32)
    assert terms(one, compiled(), L4).issue > 10 * terms(many, compiled(), L4).issue
    assert terms(one, compiled()).issue < 10 * terms(many, compiled()).issue


@pytest.mark.parametrize("gpu", [H200, A100, L4], ids=lambda gpu: gpu.name)
def test_integers_and_comparisons_have_units_of_their_own_and_f32_too(gpu):
    """Of 64 lanes for the former; of f32 an A100 has as many, and others twice."""
    clocks = 40 * LARGE / (gpu.multiprocessors * gpu.clock_hz) * 1e6
    integers = terms(elementwise_kernel(LARGE, ("add",) * 40, I32), compiled(), gpu)
    assert integers.issue == pytest.approx(clocks / 64, rel=0.02)
    comparisons = terms(elementwise_kernel(LARGE, ("maximum",) * 40), compiled(), gpu)
    assert comparisons.issue >= integers.issue
    floats = terms(elementwise_kernel(LARGE, ("add",) * 40), compiled(), gpu)
    assert floats.issue >= clocks / (64 if gpu is A100 else 128)
    assert (floats.issue > 0.9 * integers.issue) == (gpu is A100)


@pytest.mark.parametrize(
    ("columns", "pitch", "first", "instructions"),
    [(640, 644, 4, 0), (640, 644, 1, 2), (640, 644, 3, 2), (643, 647, 0, 0), (643, 648, 0, 12), (643, 648, 1, 12)],
)
def test_packs_that_lie_across_two_take_instructions(columns, pitch, first, instructions):
    """At a known place the load of another pack; where that differs from row to row, choices word by word."""
    x = np.zeros((512, pitch), np.float32)
    plan = af.compile(lambda x: x[:, first : first + columns] * 2, x, backend="cuda", device="h200", deadline=None)
    (program,) = (lowered.program for lowered in plan.lowered)
    (launch,) = counted(program, "sm_90").launches
    assert launch.shift_slots == pytest.approx(instructions * 512 * columns / 4 / 32, rel=0.01)


def test_a_small_kernel_costs_a_launch():
    found = terms(elementwise_kernel(64, ("negate",)), compiled())
    assert found.bound == "overhead"
    assert found.us < 2 * found.start


def test_a_last_wave_that_is_nearly_empty_costs_more_than_its_share():
    blocks_held = 8 * H200.multiprocessors
    whole = row_sum_kernel(blocks_held * 4, 4096)
    more = row_sum_kernel(blocks_held * 4 + 1, 4096)
    first, second = terms(whole, compiled()), terms(more, compiled())
    assert second.issue > first.issue * (blocks_held * 4 + 1) / (blocks_held * 4)


def test_every_floor_is_below_its_price_on_every_device():
    programs = [elementwise_kernel(n, ops) for n in (1, 1000, LARGE) for ops in (("negate",), ("exp",) * 50)]
    programs += [row_sum_kernel(n, m) for n in (1, 300) for m in (1, 5000)]
    for gpu in ALL.values():
        found = GpuModel(gpu).price([KernelFacts(program) for program in programs])
        assert (found.floor_us <= found.us).all()
        assert (found.floor_us > 0).all()


def test_a_floor_counts_bytes_that_must_move_at_the_sheets_rate():
    found = GpuModel(H200).price([KernelFacts(elementwise_kernel(LARGE, ("negate",)))])
    assert found.floor_us[0] == pytest.approx(8 * LARGE / H200.memory_bytes_per_s * 1e6)


def test_measured_rates_are_used_and_described():
    rates = replace(sheet_rates(H200), source="measured", memory_bytes_per_s=1e12, launch_us=5.0)
    model = GpuModel(H200, rates)
    found = model.price([KernelFacts(elementwise_kernel(LARGE, ("negate",)))])
    assert found.us[0] == pytest.approx(8 * LARGE / 1e12 * 1e6 + 5.0, rel=0.02)
    assert found.sigma[0] < GpuModel(H200).price([KernelFacts(elementwise_kernel(1))]).sigma[0]
    assert model.describe() != GpuModel(H200).describe()


def test_what_a_launch_costs_is_said_term_by_term():
    text = terms(elementwise_kernel(LARGE, ("exp",)), compiled()).text()
    for word in ("memory", "l2", "issue", "special", "start", "KiB in flight", "waves"):
        assert word in text


def softmax(x):
    power = np.exp(x - x.max(1, keepdims=True))
    return power / power.sum(1, keepdims=True)


def test_a_row_that_registers_hold_is_in_flight_whole_and_is_read_once():
    """As the generator makes it: 64 elements of a thread, all loaded before the first is needed."""
    plan = af.compile(softmax, np.zeros((4096, 4096), np.float32), backend="cuda", device="h200")
    (kernel,) = plan.lowered
    found = terms(kernel.program, compiled(registers=80))
    assert found.flight_bytes == 6 * 128 * 4 * 64  # six blocks of 128 threads fit, of 80 registers each
    assert found.memory == pytest.approx(2 * 4096**2 * 4 / sheet_rates(H200).memory_bytes_per_s * 1e6, rel=0.05)
    assert found.shared < 1.0
