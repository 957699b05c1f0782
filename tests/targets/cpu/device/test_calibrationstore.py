import dataclasses
from pathlib import Path

import pytest

from autofuse.errors import MeasureError
from autofuse.host.folders import cache_folder
from autofuse.targets.cpu.device.calibrationstore import CalibrationStore
from autofuse.targets.cpu.device.defaults import default_calibration
from autofuse.targets.cpu.device.describe import CpuDescription

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
    other = dataclasses.replace(CPU, threads=1)
    assert store.describe(other) is other


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
