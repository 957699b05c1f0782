"""What cores have done is read as Linux writes it, and what others did meanwhile is told from that."""

import os

import pytest

from autofuse.host.cputimes import CpuTimes, cpu_times, others_between

CORES = os.cpu_count() or 1
START = CpuTimes(busy=5.0, stolen=1.0, own=4.0, total=20.0)


def test_a_system_that_does_not_say(tmp_path):
    assert cpu_times(tmp_path / "none") is None
    assert others_between(None, START) is None
    assert others_between(START, None) is None
    assert others_between(START, START) is None


def test_the_times_are_read_as_linux_writes_them(tmp_path):
    tick = os.sysconf("SC_CLK_TCK")
    stat = tmp_path / "stat"
    stat.write_text("cpu  " + " ".join(str(n * tick) for n in (1, 2, 3, 40, 5, 6, 7, 8, 0, 0)) + "\ncpu0 1\n")
    times = cpu_times(stat)
    assert (times.busy, times.stolen, times.total) == (19.0, 8.0, 72.0)


@pytest.mark.parametrize(
    ("busy", "stolen", "own", "cores"), [(10, 0, 10, 0.0), (15, 0, 10, 0.5), (10, 5, 10, 0.5), (5, 0, 10, 0)]
)
def test_what_others_took_is_in_cores(busy, stolen, own, cores):
    later = CpuTimes(START.busy + busy, START.stolen + stolen, START.own + own, START.total + 10.0 * CORES)
    assert others_between(START, later) == pytest.approx(cores)
