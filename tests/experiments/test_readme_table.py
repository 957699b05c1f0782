"""The README's measured table is made of the study's records."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "readme_table.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme_table", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["readme_table"] = module
    spec.loader.exec_module(module)
    return module


def row(name: str, ratio: float) -> SimpleNamespace:
    found = SimpleNamespace(value=ratio, low=ratio - 0.1, high=ratio + 0.1)
    times = {
        variant: SimpleNamespace(median=ms) for variant, ms in (("numpy", 4.0), ("unfused", 2.0), ("measured", 1.0))
    }
    return SimpleNamespace(
        program=name, over_numpy=found, over_unfused=found, times=times, kernels={"unfused": 9, "measured": 2}
    )


def test_the_section_gives_machine_means_and_chosen_programs(script: ModuleType) -> None:
    run = {"machine": {"model": "Some CPU", "threads": 2}, "settings": {"budget": 20.0}}
    failed = SimpleNamespace(program="failed", over_numpy=None, over_unfused=None)
    text = script.section(
        [row("softmax", 4.0), row("adam", 2.0), failed], run, ["adam"], lambda values: sum(values) / 2
    )
    assert "On Some CPU (2 threads), tuned plans of 2 programs are 3.0 times as fast as NumPy" in text
    assert "| `adam` | 4 ms | 2 ms | 1 ms | 9 / 2 | 2.0 [1.9, 2.1] |" in text
    assert "`softmax`" not in text


def test_only_what_stands_between_the_marks_is_replaced(script: ModuleType) -> None:
    readme = f"before\n{script.BEGIN}old\n{script.END}after\n"
    assert script.replaced(readme, "new\n") == f"before\n{script.BEGIN}new\n{script.END}after\n"
    with pytest.raises(ValueError, match="lacks the marks"):
        script.replaced("nothing here\n", "new\n")


def test_the_readme_has_the_marks(script: ModuleType) -> None:
    readme = (SCRIPT.parents[1] / "README.md").read_text()
    assert script.replaced(readme, "") != ""
