"""What a timed call takes beside its kernel."""

import pytest

from autofuse.targets.base import find_target
from autofuse.targets.cpu.entrycost import EntryCost, entry_cost


def test_a_line_goes_through_what_was_measured():
    line = EntryCost.through((2, 0.1), (18, 0.26))
    assert (line.call_us, line.array_us) == (pytest.approx(0.08), pytest.approx(0.01))
    assert line.of(2) == pytest.approx(0.1)
    assert line.of(18) == pytest.approx(0.26)


def test_noise_makes_no_line_that_falls_or_begins_below_nothing():
    assert EntryCost.through((2, 0.3), (18, 0.2)) == EntryCost(0.3, 0.0)
    assert EntryCost.through((2, 0.0), (18, 0.8)).of(0) == 0.0


def test_it_is_measured_once_in_a_process():
    assert entry_cost() is entry_cost()
    assert find_target("cpu", threads=1).entry_us(3) == entry_cost().of(3) > 0.0
