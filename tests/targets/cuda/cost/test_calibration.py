"""Rates are measured by kernels: on a simulated device that works at other rates than its data sheet says."""

import pytest

from autofuse.errors import BackendError, MeasureError
from autofuse.lazydataclass import fields, replace
from autofuse.targets.cuda.cost import calibration
from autofuse.targets.cuda.cost.rates import sheet_rates
from autofuse.targets.cuda.cost.ratestore import keep_rates, kept_rates, rates_path
from autofuse.targets.cuda.gpus import H200
from autofuse.targets.cuda.reporting import calibrated
from autofuse.targets.cuda.target import CudaTarget
from autofuse.testing.simt.device import SLOWER, SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget

SMALL = replace(H200, name="small", multiprocessors=2, l2_bytes=1 << 18, memory_bytes_per_s=8e9, f32_flops=1e12)
"""Few kernels fill it, so that the shim is quick."""
TRUE = replace(
    sheet_rates(SMALL), launch_us=3.5, memory_bytes_per_s=6e9, l2_bytes_per_s=15e9, issues_per_s=9e9, product_flops=5e10
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def small() -> SimulatedTarget:
    return SimulatedTarget(SMALL, SimulatedDriver(SMALL, rates=TRUE), "simulated")


def test_the_true_rates_are_found_and_kept():
    target, said = small(), []
    found = calibrated(target, 0.001, lambda share, what: said.append((share, what)), lambda: target.clock() // SLOWER)
    rates = kept_rates(target.driver)
    assert rates.source == "measured"
    for name in ("launch_us", "memory_bytes_per_s", "l2_bytes_per_s", "issues_per_s", "product_flops"):
        assert getattr(rates, name) == pytest.approx(getattr(TRUE, name), rel=0.05), name
    assert rates.alone_us < 0.01 * TRUE.launch_us  # the simulated device starts all kernels alike
    assert said[0] == (0.0, "launches")
    assert said[-1] == (1.0, "done")
    assert "memory   6 GB/s" in found.text
    assert found.facts["conditions"]["before"] == "unknown: the device is simulated"


def test_a_kernel_alone_starts_later_than_one_behind_another(monkeypatch):
    """What is timed alone is told from what a kernel of a plan takes."""
    target, measured = small(), calibration._us
    monkeypatch.setattr(calibration, "_us", lambda *given: measured(*given) + 2.5)
    rates = calibration.measured_rates(
        target, sheet_rates(SMALL), 0.001, lambda *_: None, lambda: target.clock() // SLOWER
    )
    assert rates.alone_us == pytest.approx(2.5, rel=0.05)
    for name in ("launch_us", "memory_bytes_per_s", "l2_bytes_per_s", "issues_per_s", "product_flops"):
        assert getattr(rates, name) == pytest.approx(getattr(TRUE, name), rel=0.05), name


def test_rates_are_kept_for_one_device_and_driver():
    target = small()
    path = keep_rates(target.driver, TRUE, {})
    assert kept_rates(target.driver) == replace(TRUE, source="measured")
    other = SimulatedDriver(replace(SMALL, clock_hz=1e9))
    assert rates_path(other) != path
    assert kept_rates(other) is None


@pytest.mark.parametrize("text", ["", "{", '{"rates": {}, "conditions": 1}', '{"rates": 3, "conditions": {}}'])
def test_a_file_that_cannot_be_read_is_as_none(text):
    target = small()
    keep_rates(target.driver, TRUE, {}).write_text(text)
    assert kept_rates(target.driver) is None


def test_rates_that_are_not_positive_are_as_none():
    target = small()
    for field in fields(TRUE):
        if field.name != "source":
            keep_rates(target.driver, replace(TRUE, **{field.name: 0.0}), {})
            assert kept_rates(target.driver) is None


def test_a_device_that_is_not_here_cannot_be_calibrated():
    with pytest.raises(BackendError, match="small is not here"):
        calibrated(CudaTarget(SMALL, None), 1.0, lambda *_: None)


def test_a_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(MeasureError, match="cannot keep the calibration"):
        keep_rates(small().driver, TRUE, {})
