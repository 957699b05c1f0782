"""The documents: the README's Python runs, links lead somewhere, commands exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from autofuse.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")])
SMALLER = {"(4096, 2048)": "(64, 48)", "f32[4096,2048]": "f32[64,48]", "budget=20.0": "budget=1.0, progress=False"}


def test_the_tour_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in one namespace, on a smaller array and with a smaller budget."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    text = "\n".join(blocks)
    for large, small in SMALLER.items():
        text = text.replace(large, small)
    tour = tmp_path / "tour.py"
    tour.write_text(text)
    namespace: dict[str, Any] = {}
    exec(compile(text, str(tour), "exec"), namespace)
    assert namespace["y"].shape == (64, 48)
    assert (tmp_path / "softmax.json").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if not link.startswith(("http://", "https://")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_named_exist(page: Path) -> None:
    blocks = re.findall(r"^```\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    for command in re.findall(r"^autofuse ([a-z]+)", "\n".join(blocks), re.MULTILINE):
        assert command in COMMANDS


def test_make_targets_named_in_the_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for target in re.findall(r"`make ([a-z-]+)`", page.read_text()):
            assert target in targets, f"{page.name}: make {target}"
