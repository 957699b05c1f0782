"""Generated NumPy programs compute what NumPy computes: interpreted, and compiled under each policy."""

from pathlib import Path

import pytest

from tests.programs.checking import RULES, check_program
from tests.programs.source import read

CASES = Path(__file__).parents[1] / "programs" / "cases"
POLICIES = ("unfused", "analytical", "greedy", *RULES)


@pytest.mark.parametrize("path", sorted(CASES.glob("*.py")), ids=lambda path: path.stem)
def test_programs_that_once_failed(path, tmp_path):
    verdict = check_program(read(path), tmp_path, POLICIES)
    assert verdict.kind in ("right", "raises"), f"{verdict.where}: {verdict.message}"
