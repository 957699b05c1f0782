"""The documents: the examples of the README and the how-to run, links lead somewhere, commands exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import autofuse as af
from autofuse.cli.main import COMMANDS, main

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("datasets/*/README.md")]
)
DECISIONS = ROOT / "docs" / "decisions"
SMALLER = {
    r"budget=[0-9.]+": "budget=1.0, progress=False",
    r"--budget [0-9]+ (?=--db)": "--max-trials 20 ",
    r"--budget [0-9]+": "--budget 1",
    r"\b4096, ?2048\b": "64,48",
    r"\b2048, ?64\b": "48,8",
    r"\b2048, ?4096\b": "32,48",
    r"\b4096, ?512\b": "48,16",
}
"""What a test leaves out of examples: size and time."""
NOT_HERE = re.compile(r"^(make|pip|dask|AUTOFUSE_PERF=1 perf|python experiments/\S+|autofuse tune \S+ --backend cuda) ")
"""Commands that need a network, another program, a GPU, or minutes."""
BLOCK = re.compile(r"^```(python|toml|)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def as_script(page: Path) -> str:
    """All examples of a page in order, in one namespace: commands go to a shell."""
    lines = ["import subprocess"]
    for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        for pattern, small in SMALLER.items():
            text = re.sub(pattern, small, text)
        if kind == "python":
            lines.append(text)
            continue
        if kind == "toml":
            lines.append(f"open('rules.toml', 'w').write({text!r})")
            continue
        commands = [line for line in text.splitlines() if not NOT_HERE.match(line)]
        named = [re.sub(r"\b(KERNEL|NAME)\b", "' + plan_in(line).kernels[0].name + '", repr(line)) for line in commands]
        for command, line in zip(named, commands, strict=True):
            lines += [f"line = {line!r}", f"subprocess.run(['bash', '-ec', {command}], check=True)"]
    return "\n".join(lines)


PREAMBLE = """
def plan_in(line):
    import re
    import autofuse
    return autofuse.load(re.search(r"[a-z]+[.]json", line)[0])
"""


SCRIPT = """
import numpy as np
import autofuse as af

af.compile(np.exp, af.spec("f32[8]"))(np.zeros(8, np.float32))
"""


def run_page(page: Path, folder: Path) -> None:
    """Run the examples of a page as a user would, in an empty folder, with commands that are this checkout's."""
    for name, target in (("autofuse", "-m autofuse"), ("python", "")):
        wrapper = folder / "bin" / name
        wrapper.parent.mkdir(exist_ok=True)
        wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" {target} "$@"\n')
        wrapper.chmod(0o755)
    first = next(text for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == "python")
    (folder / "model.py").write_text(first)
    (folder / "script.py").write_text(SCRIPT)
    (folder / "page.py").write_text(PREAMBLE + as_script(page), encoding="utf-8")
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{page.name}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.slow
def test_the_examples_of_the_readme_run(tmp_path: Path) -> None:
    run_page(ROOT / "README.md", tmp_path)
    assert (tmp_path / "softmax.json").is_file()


@pytest.mark.slow
def test_the_examples_of_the_howto_run(tmp_path: Path) -> None:
    run_page(ROOT / "docs" / "howto.md", tmp_path)
    assert list((tmp_path / "dump").rglob("*.ll"))


def test_the_examples_of_the_page_on_gpus_run(tmp_path: Path) -> None:
    run_page(ROOT / "docs" / "gpu.md", tmp_path)
    assert (tmp_path / "forward-h200.json").is_file()


def test_the_product_of_the_readme_is_right_at_its_full_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A depth of 2048 before a function that is steep where products cancel."""
    plan = af.compile(lambda x, w: np.tanh(x @ w), af.spec("f32[4096,2048]"), af.spec("f32[2048,64]"))
    plan.save(tmp_path / "scale.json")
    assert main(["run", str(tmp_path / "scale.json"), "--check"]) == 0
    assert "checked: agrees with the interpreter" in capsys.readouterr().out


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


def test_every_decision_has_a_number_of_its_own_and_stands_in_the_list() -> None:
    records = sorted(path.name for path in DECISIONS.glob("*.md") if path.name != "README.md")
    assert all(re.match(r"\d{4}-", name) for name in records)
    assert len({name[:4] for name in records}) == len(records)
    rows = re.findall(r"^\| \[(\d{4})\]\(([^)]+)\) \|", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    assert sorted(name for _, name in rows) == records, "docs/decisions/README.md lists each record once"
    assert all(name.startswith(number) for number, name in rows)


def test_files_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    folders = [ROOT / "autofuse", ROOT / "search", ROOT / "cost_models"]
    there = [str(path) for folder in folders for path in folder.rglob("*.py")]
    for name in set(re.findall(r"`((?:\w+/)*\w+\.py)`", text)):
        assert any(path.endswith(f"/{name}") for path in there), name
    for folder in set(re.findall(r"\b((?:autofuse|search|cost_models)/(?:\w+/)*)", text)):
        assert (ROOT / folder).is_dir(), folder
