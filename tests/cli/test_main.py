"""The command line as a whole: help, version, errors on one line, exit codes, pipes."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import autofuse
from autofuse.cli import explain as explain_command
from autofuse.cli.main import COMMANDS, one_line, usage

COMMAND = [sys.executable, "-m", "autofuse"]


def test_help_names_every_subcommand(cli: Any) -> None:
    done = cli("--help")
    assert done.code == 0
    assert done.out.strip() == usage()
    assert all(name in done.out for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_subcommand_has_help_and_a_module(command: str, cli: Any) -> None:
    assert import_module(f"autofuse.cli.{command}").__doc__
    done = cli(command, "--help")
    assert done.code == 0
    assert f"usage: autofuse {command}" in done.out


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
        (
            ("compare", "a.py:f", "--backend", "cudda"),
            "'cudda' is unknown: must be 'cpu' or 'cuda'; did you mean 'cuda'?",
        ),
        (("compare", "a.py:f", "--device", "h200"), "device='h200': must be None for backend='cpu'"),
        (("compare", "a.py:f", "--backend", "cuda", "--device", "h20"), "did you mean h200?"),
        (("explain", "p.json", "--rules", "r.toml"), "--rules: is for --why-not"),
        (("compare", "a.py:f", "--policies", "rule:xlla"), "did you mean rule:xla?"),
        (("compare", "a.py:f", "--policies", ","), "--policies ',': names none"),
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


@pytest.mark.parametrize(
    "arguments", [(), ("tune",), ("tune", "softmax", "--policy"), ("tune", "softmax", "--arg"), ("db",), ("db", "info")]
)
def test_what_came_is_cut_where_it_is_long(cli: Any, arguments: tuple[str, ...]) -> None:
    done = cli(*arguments, "x" * 200)
    assert done.code == 2
    assert len(done.err) < 1200
    assert "x" * 90 not in done.err or arguments == ("db", "info")  # names of files are whole


def test_long_messages_are_joined() -> None:
    assert one_line("model.py:3: no\n    x.foo()\n  instead: y\n") == "model.py:3: no | x.foo() | instead: y"


LINES = {
    "tune": ("x.py:f",),
    "run": ("p.json",),
    "explain": ("p.json",),
    "compare": ("x.py:f",),
    "repro": ("p.json", "kernel", "-o", "bundle"),
    "db": ("info", "x.db"),
    "calibrate": (),
    "doctor": (),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_interrupt_exits_with_130(cli: Any, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module(f"autofuse.cli.{command}"), "run", interrupted)
    assert cli(command, *LINES[command]) == (130, "", "autofuse: interrupted\n")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('mine')", "program.py:2 in f: the program failed: ValueError: mine"),
        ("return [x][1]", "program.py:2 in f: the program failed: IndexError: list index out of range"),
        ("raise AssertionError('three')", "program.py:2 in f: the program failed: AssertionError: three"),
        ("return f(x)", "program.py:2 in f: the program failed: RecursionError"),
        ("raise SystemExit(3)", "the program ended the process: sys.exit(3)"),
        ("return x + x[:3]", "program.py:2 in f: np.add: shape mismatch"),
    ],
)
def test_a_program_that_fails_is_one_line(cli: Any, tmp_path: Path, body: str, message: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"def f(x):\n    {body}\n", encoding="utf-8")
    done = cli("tune", f"{program}:f", "--arg", "f32[4]", "--budget", "1", "-o", tmp_path / "p.json")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err


def test_a_program_that_fails_under_numpy_is_one_line(cli: Any, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("def f(x, y):\n    return x + y\n", encoding="utf-8")
    given = ("--arg", "f32[4]", "--arg", "f32[5]", "--policies", "unfused", "--untuned", "unfused", "--blocks", "1")
    done = cli("compare", f"{program}:f", *given)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "program.py:2 in f: the program failed: ValueError: operands could not be broadcast" in done.err
    short = cli("compare", f"{program}:f", "--arg", "f32[4]")
    assert short.err == f"autofuse: {program}:f(x, y) was given 1 --arg: missing a required argument: 'y'\n"


def test_a_fault_of_this_package_keeps_its_traceback(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> int:
        raise ValueError("a bug")

    monkeypatch.setattr(explain_command, "run", broken)
    with pytest.raises(ValueError, match="a bug"):
        cli("explain", "p.json")


def test_too_little_memory_is_one_line(cli: Any, model: Path) -> None:
    done = cli("compare", f"{model}:shift", "--arg", "f32[9999999999999]", "--blocks", "1")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_piped_output_has_no_control_characters(plan: Path) -> None:
    done = subprocess.run([*COMMAND, "explain", str(plan)], capture_output=True, check=True)
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"\r" not in done.stdout
