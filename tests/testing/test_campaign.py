"""Plan files changed at random: refused by one error, or right; and the campaign itself finds what it is for."""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures import campaign as campaigns
from tests.fixtures.campaign import Campaign, check_text, make_plans
from tests.fixtures.guarded import Guarded, TouchedError
from tests.fixtures.ordeals import Ordeals

CASES = sorted((Path(__file__).parent / "hostile_plans").glob("*.json"))
"""Plans that once crashed, were wrong, or ended in a traceback, cut down."""


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    made = Campaign(tmp_path_factory.mktemp("campaign"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def ordeals() -> Iterator[Ordeals]:
    """A child for all cases that stand here; who dies of one is followed by another."""
    child = Ordeals()
    yield child
    child.close()


def failures_of(campaign: Campaign, seeds: range) -> list[tuple[int, str, str, str]]:
    known = len(campaign.tally.failures)
    tally = campaign.run(seeds)
    print("\n".join(tally.lines()))
    return tally.failures[known:]


@pytest.mark.slow
def test_two_hundred_changed_plans_are_refused_or_right(campaign: Campaign) -> None:
    assert failures_of(campaign, range(200)) == []


@pytest.mark.slow
def test_ten_thousand_changed_plans_are_refused_or_right(campaign: Campaign) -> None:
    assert failures_of(campaign, range(1000, 11_000)) == []


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_a_plan_that_once_failed_is_refused_or_right(case: Path, tmp_path: Path, ordeals: Ordeals) -> None:
    verdict, words = check_text(case.read_bytes(), tmp_path, ordeals)
    assert verdict in campaigns.GOOD, words


def test_outputs_that_trade_places_in_the_text_are_right_by_the_text(tmp_path: Path, ordeals: Ordeals) -> None:
    """And those that stand twice, or are arguments."""
    (source,) = (path for path in make_plans(tmp_path, ["choose"]) if path.name == "choose-unfused.json")
    plan = json.loads(source.read_text())
    line = next(number for number, text in enumerate(plan["graph"]) if text.strip().startswith("return"))
    first, second, third = plan["graph"][line].split("return ")[1].split(", ")
    for names in ((third, first, second), (first, first, second), ("%x", second, "%x")):
        plan["graph"][line] = "  return " + ", ".join(names)
        assert check_text(json.dumps(plan).encode(), tmp_path, ordeals) == ("right", "")


def test_memory_beyond_an_array_ends_the_process_and_a_canary_tells(tmp_path: Path) -> None:
    """The guards themselves: a write just behind an array, and one in the slack before it."""
    imports = "import ctypes; from tests.fixtures.guarded import Guarded"
    beyond = f"{imports}; memory = Guarded(100); ctypes.memset(memory.address, 0, 101)"
    assert subprocess.run([sys.executable, "-c", beyond], check=False, cwd=tmp_path).returncode == -signal.SIGSEGV
    memory = Guarded(100)
    ctypes.memset(memory.address - 1, 0, 1)
    with pytest.raises(TouchedError, match="argument: 1 bytes around it were written"):
        memory.check("argument")
