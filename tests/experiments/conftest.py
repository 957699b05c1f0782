"""The modules of a study, for its tests."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autofuse.errors import ArgumentError

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


@pytest.fixture(scope="module")
def study(request: pytest.FixtureRequest) -> Iterator[dict[str, ModuleType]]:
    """The modules that the test module names in MODULES, found as the scripts in its folder STUDY find them.

    Studies have modules of the same names, so none of them stays loaded.
    """
    before, path = set(sys.modules), list(sys.path)
    sys.path[:0] = [str(request.module.STUDY), str(EXPERIMENTS / "common")]
    try:
        yield {name: importlib.import_module(name) for name in request.module.MODULES}
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            if str(EXPERIMENTS) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


@pytest.fixture
def fault_of(study: dict[str, ModuleType], request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., str]:
    """What is wrong with the study's parameters once `before` reads `after`: `fault_of(form, before, after)`."""

    def fault(form: Any, before: str, after: str) -> str:
        text = (request.module.STUDY / "study.toml").read_text()
        assert before in text
        path = tmp_path / "study.toml"
        path.write_text(text.replace(before, after, 1))
        with pytest.raises(ArgumentError) as caught:
            study["settings"].read(path, form)
        found = str(caught.value)
        assert found.startswith(f"{path}: ")
        return found.removeprefix(f"{path}: ")

    return fault
