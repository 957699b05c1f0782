import dataclasses
from pathlib import Path

import pytest

from autofuse.errors import MeasureError
from autofuse.host.folders import cache_folder
from autofuse.targets.cpu.device.calibrationstore import CalibrationStore
from autofuse.targets.cpu.device.defaults import default_calibration
from autofuse.targets.cpu.device.describe import CpuDescription, Rate

CPU = CpuDescription(
    "x86_64", "Test", ("avx2",), 2, 2, 2, 32768, 1 << 20, 0, 64, 1 << 30, None, default_calibration(256, 2, 0)
)
MEASURED = dataclasses.replace(CPU.calibration, source="measured", fork_join_us=0.75)


def test_saved_numbers_are_found_again(tmp_path):
    store = CalibrationStore(tmp_path / "new")
    assert store.load(CPU) is None
    store.save(CPU, MEASURED)
    assert store.load(CPU) == MEASURED
    assert store.problem is None
    assert store.describe(CPU).calibration.fork_join_us == 0.75
    assert [p.name for p in (tmp_path / "new").iterdir()] == [store.path(CPU).name]


def test_numbers_of_another_cpu_are_not_used(tmp_path):
    store = CalibrationStore(tmp_path)
    store.save(CPU, MEASURED)
    other = dataclasses.replace(CPU, l2_bytes=2 << 20)
    assert store.describe(other) is other


def test_what_more_threads_do_tells_of_fewer(tmp_path):
    store, four = CalibrationStore(tmp_path), dataclasses.replace(CPU, logical=4, threads=4)
    store.save(four, dataclasses.replace(MEASURED, dram_bytes_per_us=Rate(10.0, 25.0), effective_l3_all_bytes=99))
    three, two, one = (store.describe(dataclasses.replace(four, threads=threads)).calibration for threads in (3, 2, 1))
    assert [found.dram_bytes_per_us.all for found in (three, two, one)] == [25.0, 20.0, 10.0]
    assert [found.fork_join_us for found in (three, two, one)] == [0.75, 0.75, 0.0]
    assert [found.effective_l3_all_bytes for found in (two, one)] == [99, MEASURED.effective_l3_bytes]
    store.save(dataclasses.replace(four, threads=2), MEASURED)
    assert store.describe(dataclasses.replace(four, threads=2)).calibration == MEASURED
    assert store.describe(dataclasses.replace(four, threads=1)).calibration == MEASURED.of_fewer(1)
    fewer = dataclasses.replace(four, threads=8, logical=8)
    assert store.describe(fewer) is fewer


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 99}', "\udcff", "[" * 5000])
def test_a_damaged_file_is_a_miss_with_a_reason(tmp_path, text):
    store = CalibrationStore(tmp_path)
    store.save(CPU, MEASURED)
    store.path(CPU).write_bytes(text.encode(errors="surrogateescape"))
    assert store.load(CPU) is None
    assert store.problem is not None
    assert str(store.path(CPU)) in store.problem


def test_an_unwritable_folder_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MeasureError, match="XDG_CACHE_HOME"):
        CalibrationStore(tmp_path / "file" / "sub").save(CPU, MEASURED)


def test_folder_follows_xdg(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/autofuse")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert cache_folder() == Path.home() / ".cache/autofuse"
