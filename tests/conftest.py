"""Options of the whole test suite."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

_CACHE = tempfile.TemporaryDirectory(prefix="autofuse-tests-")
# before any test module is imported: compiled objects and calibrations of the user neither help nor suffer
os.environ["AUTOFUSE_CACHE"] = os.path.join(_CACHE.name, "objects")
os.environ["XDG_CACHE_HOME"] = os.path.join(_CACHE.name, "cache")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files from what the code makes now")


class Golden:
    """Compares generated text with the files of tests/golden/."""

    def __init__(self, update: bool) -> None:
        self.folder = Path(__file__).parent / "golden"
        self.update = update

    def check(self, name: str, text: str) -> None:
        """Fail, saying how to regenerate, when the golden file is missing or differs."""
        path = self.folder / name
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        again = "if the change is meant, run pytest with --update-golden and review the difference"
        assert path.is_file(), f"golden file {path} is missing; {again}"
        assert path.read_text() == text, f"generated text differs from {path}; {again}"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(bool(request.config.getoption("--update-golden")))
