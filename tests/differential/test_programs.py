"""Generated NumPy programs compute what NumPy computes: interpreted, and compiled under each policy.

A failure names its seed: `python -m tests.programs.campaign SEED --keep FOLDER` makes the program, small, again.
"""

from pathlib import Path

import pytest

from tests.programs.campaign import run_seeds
from tests.programs.checking import RULES, check_program
from tests.programs.source import read

FAILED = sorted((Path(__file__).parents[1] / "programs" / "cases").glob("*.py"))
POLICIES = ("unfused", "analytical", "greedy", *RULES)
BLOCK = 500
MOST_REFUSED = 0.12


def words(tally):
    return "\n".join(f"seed {f['seed']}: {f['kind']}, {f['where']}: {f['message']}" for f in tally.failures)


def check_seeds(seeds):
    """Nothing is wrong, nothing ends in an internal error, and few programs are refused."""
    tally = run_seeds(seeds)
    assert not tally.failures, words(tally)
    assert tally.kinds["refused"] <= MOST_REFUSED * len(seeds), tally.refusals.most_common(10)
    return tally


@pytest.mark.slow
def test_generated_programs():
    check_seeds(range(25))


@pytest.mark.slow
@pytest.mark.parametrize(("count", "most_unused"), [(200, 75), (500, 60)])
def test_generated_programs_use_nearly_all_that_there_is(count, most_unused):
    tally = check_seeds(range(count))
    assert tally.kinds["raises"], "no program that NumPy refuses"
    assert len(tally.unused) < most_unused, tally.unused


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(500, 20_000, BLOCK))
def test_twenty_thousand_programs(begin):
    check_seeds(range(begin, begin + BLOCK))


@pytest.mark.parametrize("number", range(len(FAILED)), ids=[path.stem for path in FAILED])
def test_programs_that_once_failed(number, tmp_path):
    """Under the policies that users meet, and one of the others, by turns."""
    others = ("greedy", *RULES)
    check_case(FAILED[number], tmp_path, ("unfused", "analytical", others[number % len(others)]))


@pytest.mark.slow
@pytest.mark.parametrize("path", FAILED, ids=lambda path: path.stem)
def test_programs_that_once_failed_under_every_policy(path, tmp_path):
    check_case(path, tmp_path, POLICIES)


def check_case(path, folder, policies):
    verdict = check_program(read(path), folder, policies)
    assert verdict.kind in ("right", "raises"), f"{verdict.where}: {verdict.message}"
