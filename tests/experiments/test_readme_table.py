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


class Ratio(SimpleNamespace):
    """As the study's, for a table."""

    def __str__(self) -> str:
        return f"{self.value:.2f} [..]"


def ratio(value: float) -> Ratio:
    return Ratio(value=value)


def row(name: str, over: float, ahead: str) -> SimpleNamespace:
    """A program that takes autofuse 1 ms, JAX `over` ms and NumPy 4 ms."""
    against = {
        "numpy": SimpleNamespace(name="numpy", over=ratio(4.0), ahead="ours"),
        "jax": SimpleNamespace(name="jax", over=ratio(over), ahead=ahead),
    }
    times = {"numpy": ratio(4.0), "jax": ratio(over), "jax idiomatic": ratio(over + 1), "autofuse": ratio(1.0)}
    return SimpleNamespace(
        program=name, against={"fresh": against}, times={"fresh": times}, best=lambda column: against["jax"]
    )


def test_the_section_gives_machine_means_and_chosen_programs(script: ModuleType) -> None:
    run = {"machine": {"model": "Some CPU"}, "settings": {"budget": 20.0, "threads": 2}}
    failed = SimpleNamespace(program="failed", best=lambda column: None)
    rows = [row("softmax", 3.0, "ours"), row("adam", 0.5, "theirs"), failed]
    text = script.section(rows, run, ["adam"], lambda values: sum(values) / 2)
    assert "On Some CPU (2 threads), tuned plans of 2 programs are 4.0 times as fast as NumPy, and 1.75 times" in text
    assert "ahead on 1 programs, behind on 1, and not to be told apart on 0" in text
    assert "| `adam` | 4 | 0.5 | - | - | 1 | 0.50 [..] jax |" in text
    assert "`softmax`" not in text


def test_only_what_stands_between_the_marks_is_replaced(script: ModuleType) -> None:
    readme = f"before\n{script.BEGIN}old\n{script.END}after\n"
    assert script.replaced(readme, "new\n") == f"before\n{script.BEGIN}new\n{script.END}after\n"
    with pytest.raises(ValueError, match="lacks the marks"):
        script.replaced("nothing here\n", "new\n")


def test_the_readme_has_the_marks(script: ModuleType) -> None:
    readme = (SCRIPT.parents[1] / "README.md").read_text()
    assert script.replaced(readme, "") != ""
