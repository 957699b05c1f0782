"""The command line as a whole: help, version, errors on one line, exit codes, pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import autofuse
from autofuse.cli import explain as explain_command
from autofuse.cli.main import COMMANDS, one_line, usage

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "autofuse"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def test_help_names_every_subcommand(cli: Any) -> None:
    done = cli("--help")
    assert done.code == 0
    assert done.out.strip() == usage()
    assert all(name in done.out for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_subcommand_has_help_and_a_module(command: str, capsys: pytest.CaptureFixture[str], cli: Any) -> None:
    assert import_module(f"autofuse.cli.{command}").__doc__
    with pytest.raises(SystemExit) as left:
        cli(command, "--help")
    assert left.value.code == 0
    assert f"usage: autofuse {command}" in capsys.readouterr().out


def test_version(cli: Any) -> None:
    assert cli("--version") == (0, f"autofuse {autofuse.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give a subcommand: tune, run"),
        (("tun",), "'tun' is no subcommand; did you mean tune?"),
        (("tune",), "the following arguments are required: FILE.py:FUNC"),
        (("tune", "a.py:f", "--budgt", "3"), "did you mean --budget?"),
        (("tune", "a.py:f", "--budget", "-3"), "-3 is not a positive number"),
        (("tune", "a.py:f", "--max-trials", "0"), "'0' is not a whole number from 1"),
        (("compare", "a.py:f", "--policies", "unfused", "--untuned", "rule:xla"), "must be among --policies unfused"),
        (("explain", "p.json", "--rules", "r.toml"), "--rules: is for --why-not"),
        (("run", "p.json", "--on-mismatch", "retun"), "did you mean retune?"),
        (("run", "nowhere.json"), "nowhere.json: there is no such plan file"),
        (("db", "exprt", "x.db"), "did you mean export?"),
        (("db", "info", "nowhere.db"), "nowhere.db: there is no such file"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_code_2(cli: Any, arguments: tuple[str, ...], message: str) -> None:
    done = cli(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("autofuse: ")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_long_messages_are_joined() -> None:
    assert one_line("model.py:3: no\n    x.foo()\n  instead: y\n") == "model.py:3: no | x.foo() | instead: y"


def test_an_interrupt_exits_with_130(cli: Any, monkeypatch: pytest.MonkeyPatch, plan: Path) -> None:
    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(explain_command, "run", interrupted)
    done = cli("explain", plan)
    assert done.code == 130
    assert done.err == "autofuse: interrupted\n"


def test_a_closed_pipe_is_quiet(plan: Path) -> None:
    """What `autofuse explain p.json | head -0` does."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, "explain", str(plan)], stdout=writer, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False
    )
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == b""


def test_piped_output_has_no_control_characters(plan: Path) -> None:
    done = subprocess.run([*COMMAND, "explain", str(plan)], capture_output=True, env=ENVIRONMENT, check=True)
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"\r" not in done.stdout
