"""Calibrations: found again, put together from what was measured, and (slow) measured."""

import json
from dataclasses import replace

import pytest

from autofuse.cost_models.features import DotFeatures
from autofuse.errors import ArgumentError
from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel
from autofuse.targets.cpu.cost.calibration import (
    _stream_sizes,
    assembled,
    calibrate,
    last_cache_bytes,
    measured_calibration,
)
from autofuse.targets.cpu.cost.probes import (
    THIN_COLUMNS,
    THIN_DEPTH,
    THIN_ROWS,
    Estimate,
    Probe,
    instruction_probes,
    narrow,
    run_probes,
)
from autofuse.targets.cpu.decisions import VECTOR_BITS
from autofuse.targets.cpu.device.calibrationstore import CalibrationStore
from autofuse.targets.cpu.device.describe import OP_CLASSES
from autofuse.targets.cpu.device.detect import detect
from autofuse.targets.cpu.native.threadcount import get_num_threads
from autofuse.testing.cost_models import elementwise_kernel
from autofuse.testing.devices import SERVER, server


def estimates(**values):
    return {name: Estimate(value, value, value, 9) for name, value in values.items()}


def test_every_class_of_operation_has_a_probe():
    names = {probe.name for probe in instruction_probes()}
    assert {f"{kind}/{dtype}" for kind in OP_CLASSES for dtype in ("f32", "f64")} <= names


def test_what_was_not_measured_keeps_its_default():
    usual = SERVER.calibration
    found = assembled(SERVER, estimates(**{"exp/f32": 123.0}), [8 << 20, 16 << 20])
    assert found.source == "measured"
    assert found.elements_per_us["exp/f32"] == 123.0
    assert found.elements_per_us["exp/f64"] == usual.elements_per_us["exp/f64"]
    assert found.l1_bytes_per_us == usual.l1_bytes_per_us
    assert found.fork_join_us == usual.fork_join_us


def test_narrow_vectors_are_measured_by_the_same_kernels():
    found = {probe.name: probe for probe in narrow(instruction_probes(), 256)}
    assert {f"{kind}/{dtype}/narrow" for kind in OP_CLASSES for dtype in ("f32", "f64")} <= found.keys()
    assert {probe.program.schedule[VECTOR_BITS] for probe in found.values()} == {256}
    assert len({probe.program.name for probe in (*instruction_probes(), *found.values())}) == 2 * len(found)


def test_narrow_vectors_that_were_not_measured_are_as_much_slower_as_usual():
    found = assembled(
        SERVER, estimates(**{"exp/f32": 120.0, "divide/f32": 30.0, "log/f32/narrow": 7.0, "l1": 9.0}), [8]
    )
    narrow_rates = found.narrow_elements_per_us
    assert [narrow_rates[f"{kind}/f32"] for kind in ("exp", "divide", "log")] == [60.0, 30.0, 7.0]
    assert found.narrow_l1_bytes_per_us == 4.5
    assert found.unmeasured == tuple(sorted({*SERVER.calibration.unmeasured} - {"l1_bytes_per_us"}))


def test_what_a_thin_product_takes_beside_multiplying_lays_out_its_right_factor():
    model = AnalyticalCpuModel(SERVER)
    dot = DotFeatures(THIN_ROWS, THIN_COLUMNS, THIN_DEPTH, 1, THIN_ROWS, "f32", True, 0.0)
    elements = THIN_COLUMNS * THIN_DEPTH
    us = model.multiplying_us(dot) + 50.0
    assert assembled(SERVER, estimates(thin=1 / us), [8]).packed_elements_per_us == pytest.approx(elements / 50)
    # faster than the products that were measured: hardly any of it
    us = model.multiplying_us(dot) / 2
    assert assembled(SERVER, estimates(thin=1 / us), [8]).packed_elements_per_us == pytest.approx(elements / us / 0.05)


def test_one_core_alone_scales_as_usual():
    machine = replace(server(1), threads=2)
    usual = machine.calibration.dram_bytes_per_us
    found = assembled(machine, estimates(stream_8=30.0, stream_16=10.0, l1=7.0), [8, 16])
    assert found.dram_bytes_per_us.one == 10
    assert found.dram_bytes_per_us.all == pytest.approx(10 * usual.all / usual.one)
    assert (found.l1_bytes_per_us.one, found.l1_bytes_per_us.all) == (7, 14)


def test_the_last_cache_ends_where_bandwidth_falls():
    # the mean of the first and the last speed, 17.3, lies 0.285 of the way from 20 to 12 on a logarithmic scale
    assert last_cache_bytes({8: 30.0, 16: 29.0, 32: 20.0, 64: 12.0, 128: 10.0}) == round(32 * 2**0.2816)
    assert last_cache_bytes({8: 10.0, 16: 10.0}) == 16
    # a small set that was slower than the largest one is served by the same cache as that
    assert last_cache_bytes({8: 27.6, 16: 28.0, 32: 33.0, 64: 34.0}) == 64
    assert last_cache_bytes({8: 27.6, 16: 28.0, 32: 12.0}) == last_cache_bytes({8: 28.0, 16: 28.0, 32: 12.0})
    assert last_cache_bytes({}) is None


def test_forks_are_what_all_threads_add():
    alone = {f"fork_{n}": 0.025 for n in range(8)}
    shared = {f"fork_{n}@all": 0.125 for n in range(8)}
    # 40 us of work alone are 5 for each of eight threads; together they took 8
    assert assembled(server(8), estimates(**alone, **shared), [8, 16]).fork_join_us == pytest.approx(8 - 5)


def test_a_fork_that_takes_no_time_was_not_measured():
    alone = {f"fork_{n}": 0.025 for n in range(8)}
    shared = {f"fork_{n}@all": 0.2 for n in range(8)}  # as long as a share of the work alone: the latter was disturbed
    found = assembled(server(8), estimates(**alone, **shared), [8, 16])
    assert found.fork_join_us == server(8).calibration.fork_join_us > 0
    assert "fork_join_us" in found.unmeasured


def test_streams_go_beyond_the_cache_of_the_host():
    machine = replace(SERVER, l3_bytes=260 << 20, memory_bytes=64 << 30)
    assert _stream_sizes(machine)[-1] >= 512 << 20
    assert _stream_sizes(replace(machine, memory_bytes=2 << 30))[-1] <= 128 << 20


def test_all_threads_may_have_more_cache_than_one():
    one = {f"stream_{size}": rate for size, rate in ((8, 30.0), (16, 10.0), (32, 10.0))}
    together = {f"stream_{size}@all": rate for size, rate in ((8, 60.0), (16, 60.0), (32, 10.0))}
    found = assembled(SERVER, estimates(**one, **together), [8, 16, 32])
    assert 8 < found.effective_l3_bytes < 16 < found.effective_l3_all_bytes < 32


def test_far_steps_cost_what_more_pages_add():
    reads = dict(zip((64, 512, 1024, 2048, 4096, 32768), (4.0, 2.0, 2.5, 1.0, 1.0, 0.5), strict=True))
    found = assembled(
        SERVER,
        estimates(**{f"far_{kind}_{pages}": rate for pages, rate in reads.items() for kind in ("read", "write")}),
        [8, 16],
    )
    # a step among more pages never costs less: 1024 are taken to cost what 512 do
    assert [step.read_us for step in found.far_steps] == pytest.approx([0, 0.25, 0.25, 0.75, 0.75, 1.75])
    assert "far_steps" not in found.unmeasured


def test_what_is_not_hidden_is_a_share_of_the_shorter_part():
    # 8 bytes at 8 a microsecond and an exponential at 2: 1 us and 0.5; together they took 1.2
    found = assembled(SERVER, estimates(overlap=1 / 1.2, stream_8=8.0, **{"exp/f32": 2.0}), [8, 16])
    assert found.unhidden == pytest.approx(0.2 / 0.5)
    assert "unhidden" not in found.unmeasured
    assert "far_steps" in found.unmeasured


def test_stored_numbers_are_found_again(tmp_path):
    store, machine = CalibrationStore(tmp_path), detect()
    assert store.describe(machine).calibration.source == "defaults"
    store.save(machine, replace(machine.calibration, source="measured", fork_join_us=7.5))
    assert store.describe(detect()).calibration.fork_join_us == 7.5


def test_a_fork_of_no_time_that_was_kept_is_not_believed(tmp_path):
    store, machine = CalibrationStore(tmp_path), server(8)
    store.save(machine, replace(machine.calibration, source="measured", unmeasured=(), fork_join_us=0.0))
    found = store.describe(machine).calibration
    assert (found.fork_join_us, found.unmeasured) == (machine.calibration.fork_join_us, ("fork_join_us",))


def test_a_model_states_the_numbers_it_uses():
    model = AnalyticalCpuModel(SERVER)
    assert json.loads(json.dumps(model.describe()))["device"] == model.description.to_json()


def test_the_time_must_be_positive():
    with pytest.raises(ArgumentError, match="seconds=0"):
        measured_calibration(0)


def test_probes_are_timed_and_uncompilable_ones_left_out():
    good = Probe("good", elementwise_kernel(64, name="good"), 64.0)
    bad = Probe("bad", elementwise_kernel(64, ("frobnicate",), name="bad"), 64.0)
    found = run_probes([good, bad], 0.0, least=3)
    assert set(found) == {"good"}
    assert 0 < found["good"].low <= found["good"].value <= found["good"].high
    assert found["good"].samples == 3
    assert run_probes([bad], 0.0) == {}


@pytest.mark.slow
def test_calibration_with_a_tiny_budget(tmp_path):
    store, steps, before = CalibrationStore(tmp_path), [], get_num_threads()
    found = calibrate(0.2, lambda done, text: steps.append((done, text)), store=store, force=True)
    assert found.calibration.source == "measured"
    assert store.describe(detect()) == found
    assert get_num_threads() == before
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1][0] == 1.0
