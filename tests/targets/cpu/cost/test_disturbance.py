"""A busy machine is known by what its cores did beside, by what its host took, and by samples that lie apart."""

import os

import pytest

from autofuse.host.cputimes import CpuTimes
from autofuse.targets.cpu.cost import calibration
from autofuse.targets.cpu.cost.calibration import BusyError, CalibrationReport, calibrate
from autofuse.targets.cpu.cost.disturbance import disturbance
from autofuse.targets.cpu.cost.probes import Estimate
from autofuse.targets.cpu.device.calibrationstore import CalibrationStore
from autofuse.targets.cpu.device.detect import detect

CORES = os.cpu_count() or 1
START = CpuTimes(busy=0.0, stolen=0.0, own=0.0, total=0.0)


def after(own=10.0, others=0.0, stolen=0.0):
    """Ten seconds later, in seconds of cores."""
    return CpuTimes(busy=own + others, stolen=stolen, own=own, total=10.0 * CORES)


def estimates(wide, number=8):
    return {str(n): Estimate(1.0, 0.5 if n < wide else 0.99, 1.5 if n < wide else 1.01, 5) for n in range(number)}


def test_an_idle_machine_is_not_busy():
    assert disturbance(START, after(others=0.3), estimates(wide=1), contended=False) == ""


@pytest.mark.parametrize(
    ("later", "wide", "contended", "words"),
    [
        (after(others=9.0), 0, False, f"other processes kept 0.9 of {CORES} cores busy"),
        (after(stolen=CORES * 2.0), 0, False, "took 20% of its cores' time"),
        (after(), 5, False, "5 of 8 numbers are known to no better than 25%"),
        (after(), 0, True, "not all threads got a core of their own"),
    ],
)
def test_what_disturbs_is_said(later, wide, contended, words):
    assert words in disturbance(START, later, estimates(wide), contended)


def test_a_system_that_does_not_say_is_judged_by_the_numbers_alone():
    assert disturbance(None, None, estimates(wide=0), contended=False) == ""


@pytest.fixture
def busy(monkeypatch):
    report = CalibrationReport(detect(), {}, contended=True, busy="other processes kept 1.5 of 2 cores busy")
    monkeypatch.setattr(calibration, "measured_calibration", lambda *_: report)
    return report


def test_what_a_busy_machine_gives_is_not_kept_unless_forced(busy, tmp_path):
    store = CalibrationStore(tmp_path)
    with pytest.raises(BusyError, match=r"1\.5 of 2 cores busy; no numbers are kept.*--force"):
        calibrate(store=store)
    assert store.load(busy.description) is None
    calibrate(store=store, force=True)
    assert store.load(busy.description) is not None
