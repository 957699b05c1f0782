import dataclasses
import json

import pytest

from autofuse.errors import MeasureError
from autofuse.strictjson import Item
from autofuse.targets.cpu.device.defaults import default_calibration
from autofuse.targets.cpu.device.describe import (
    CALIBRATION_VERSION,
    OP_CLASSES,
    Calibration,
    CpuDescription,
    Rate,
    calibration_from,
)

CPU = CpuDescription(
    architecture="x86_64",
    model="Test CPU",
    isa=("avx2", "fma"),
    cores=4,
    logical=8,
    threads=4,
    l1d_bytes=32 << 10,
    l2_bytes=1 << 20,
    l3_bytes=16 << 20,
    line_bytes=64,
    memory_bytes=8 << 30,
    quota_cores=None,
    calibration=default_calibration(256, 4, 16 << 20),
)


def read(data: object) -> Calibration:
    return calibration_from(Item(data, "calibration", MeasureError, "calibration"))


def test_json_round_trip():
    assert read(json.loads(json.dumps(CPU.calibration.to_json()))) == CPU.calibration
    assert json.loads(json.dumps(CPU.to_json()))["calibration"] == CPU.calibration.to_json()


def test_calibrations_of_the_format_before_are_read():
    data = json.loads(json.dumps(CPU.calibration.to_json())) | {"version": CALIBRATION_VERSION - 1, "unmeasured": []}
    for name in ("narrow_elements_per_us", "narrow_l1_bytes_per_us", "packed_elements_per_us"):
        del data[name]
    found = read(data)
    assert found.unmeasured == ("narrow_elements_per_us", "narrow_l1_bytes_per_us", "packed_elements_per_us")
    assert dataclasses.replace(found, unmeasured=CPU.calibration.unmeasured) == CPU.calibration
    with pytest.raises(MeasureError, match="unknown key 'narrow_l1_bytes_per_us'"):
        read({**data, "narrow_l1_bytes_per_us": 1.0})
    with pytest.raises(MeasureError, match="is missing"):
        read({**data, "version": CALIBRATION_VERSION})


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("effective_l3_bytes",), -1, "effective_l3_bytes: must be an integer"),
        (("effective_l3_bytes",), True, "effective_l3_bytes: must be an integer"),
        (("source",), "guessed", "source: must be one of"),
        (("unmeasured",), ["luck"], "unmeasured.0.: must be one of"),
        (("far_steps",), [{"pages": 0, "read_us": 0, "write_us": 0}], "far_steps.0..pages: must be an integer"),
        (("unhidden",), 1.5, "unhidden: must be a number"),
        (("headroom",), 0.5, "headroom: must be a number"),
        (("extra",), 1, "unknown key 'extra'"),
        (("version",), 0, "version: .*calibrate again"),
        (("fork_join_us",), -1, "fork_join_us: must be a number"),
        (("elements_per_us", "exp/f32"), 0, "exp/f32: must be a number"),
        (("dram_bytes_per_us", "all"), "fast", "dram_bytes_per_us.all: must be a number"),
    ],
)
def test_defects_are_named_by_path(path, value, message):
    data = json.loads(json.dumps(CPU.calibration.to_json()))
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(MeasureError, match=message):
        read(data)


def test_key_ignores_the_product_name_and_heeds_the_threads():
    assert dataclasses.replace(CPU, model="Other").key() == CPU.key()
    assert dataclasses.replace(CPU, threads=2).key() != CPU.key()
    assert dataclasses.replace(CPU, isa=("avx2",)).key() != CPU.key()


def test_defaults_order_the_memory_levels_and_grow_with_the_vectors():
    wide, narrow = default_calibration(512, 8, 1 << 30), default_calibration(128, 8, 1 << 30)
    for numbers in (wide, narrow):
        levels = [numbers.l1_bytes_per_us, numbers.l2_bytes_per_us, numbers.l3_bytes_per_us, numbers.dram_bytes_per_us]
        assert [r.one for r in levels] == sorted((r.one for r in levels), reverse=True)
        assert all(rate.all >= rate.one for rate in levels)
    assert wide.throughput("exp", "f32") == 4 * narrow.throughput("exp", "f32")
    assert all(wide.throughput(c, "f32") >= wide.throughput(c, "f64") for c in OP_CLASSES)


def test_defaults_do_not_believe_in_the_whole_cache_of_a_host():
    assert default_calibration(512, 2, 480 << 20).effective_l3_bytes == 8 << 20


def test_a_single_core_forks_nothing():
    assert default_calibration(256, 1, 0).fork_join_us == 0.0
    assert default_calibration(256, 1, 0).dram_bytes_per_us == Rate(10e3, 10e3)
