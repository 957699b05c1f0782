"""Standard output and error as a shell may hand them over: closed, full, read by nobody, in a locale of ASCII."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autofuse.cli.main import COMMANDS

COMMAND = [sys.executable, "-m", "autofuse"]
C_LOCALE = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
FORKS = """
import importlib, json, os, sys

from autofuse.cli.main import COMMANDS, main

for name in COMMANDS:
    importlib.import_module(f"autofuse.cli.{name}")


def standard(number, where):
    os.close(number)
    if where == "closed":
        return None
    os.dup2({"full": full, "broken": broken}.get(where) or pipes[number][1], number)
    return open(number, "w", closefd=False)


full = os.open("/dev/full", os.O_WRONLY)
reader, broken = os.pipe()
os.close(reader)
for arguments, out, err in json.loads(sys.argv[1]):
    pipes = {1: os.pipe(), 2: os.pipe()}
    if not (child := os.fork()):
        sys.stdout = sys.__stdout__ = standard(1, out)
        sys.stderr = sys.__stderr__ = standard(2, err)
        code = main(arguments)
        for stream in filter(None, (sys.stdout, sys.stderr)):  # as Python does when it ends, which takes longer
            stream.flush()
        os._exit(code)
    os.close(pipes[1][1])
    os.close(pipes[2][1])
    said = [open(pipes[number][0]).read() for number in (1, 2)]
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), *said]), flush=True)
"""
"""Forks a process for each (arguments, standard output, standard error), so that all share what is imported."""


Ran = Callable[[list[str], str, str], tuple[int, str, str]]
"""Exit code, output and errors of a command line; a stream is "open", "closed", "full", or "broken" (nobody reads)."""


@pytest.fixture(scope="module")
def commands(plan: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """A quick command line of every subcommand."""
    bundle = tmp_path_factory.mktemp("repro") / "bundle"
    working = [
        ["explain", str(plan)],
        ["explain", str(plan), "--json"],
        ["run", str(plan), "--repeat", "1"],
        ["repro", str(plan), json.loads(plan.read_text())["kernels"][0]["name"], "-o", str(bundle)],
    ]
    return [*working, ["--help"], ["--version"], *([command, "--help"] for command in COMMANDS)]


@pytest.fixture(scope="module")
def ran(commands: list[list[str]], plan: Path) -> Ran:
    """How the command lines of this module end, which are all run when the first is asked for: they share imports."""
    cases = [(c, out, "open") for out in ("full", "closed", "broken") for c in commands]
    for err in ("closed", "full"):
        cases += [(["run", "none.json"], "open", err), (["explain", str(plan)], "open", err)]
        cases.append((["--version"], "full", err))
    done = subprocess.run([sys.executable, "-c", FORKS, json.dumps(cases)], capture_output=True, text=True, check=True)
    ended = [tuple(json.loads(line)) for line in done.stdout.splitlines()]
    return lambda *case: ended[cases.index(case)]


@pytest.mark.parametrize(("out", "reason"), [("full", "No space left on device"), ("closed", "Bad file descriptor")])
def test_output_that_cannot_be_written_is_one_line(ran: Ran, commands: list[list[str]], out: str, reason: str) -> None:
    for arguments in commands:
        done = ran(arguments, out, "open")
        assert done == (2, "", f"autofuse: cannot write to standard output: {reason}\n"), arguments


def test_output_that_nobody_reads_is_quiet(ran: Ran, commands: list[list[str]]) -> None:
    """What `autofuse explain p.json | head -1` does."""
    for arguments in commands:
        assert ran(arguments, "broken", "open") == (141, "", ""), arguments


@pytest.mark.parametrize("err", ["closed", "full"])
def test_errors_that_cannot_be_written_leave_the_exit_code(ran: Ran, plan: Path, err: str) -> None:
    wrong = ran(["run", "none.json"], "open", err)
    right, both = ran(["explain", str(plan)], "open", err), ran(["--version"], "full", err)
    assert wrong == (2, "", "")
    assert right[0] == 0
    assert right[1].startswith("plan dense")
    assert both == (2, "", "")


def test_a_process_whose_streams_are_all_closed() -> None:
    """As a shell closes them, before Python starts."""
    closed = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *COMMAND, "--version"], check=False)
    assert closed.returncode == 2
    unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "--version"], stdout=full, stderr=subprocess.PIPE, text=True, env=unbuffered, check=False
        )
    assert (done.returncode, done.stderr) == (
        2,
        "autofuse: cannot write to standard output: No space left on device\n",
    )


@pytest.mark.slow
def test_names_and_sources_that_the_locale_has_no_letters_for(tmp_path: Path) -> None:
    folder = tmp_path / "é"
    folder.mkdir()
    (folder / "modèle.py").write_text(
        "import numpy as np\n\n\ndef wärme(x):\n    größe = np.tanh(x)  # ünï\n    return größe + 1\n", encoding="utf-8"
    )
    texts = {"model": folder / "modèle.py", "plan": folder / "plän.json", "database": folder / "zeiten ü.db"}
    script = (
        "import sys\n"
        "from autofuse.cli.main import main\n"
        "model, plan, database = sys.argv[1:]\n"
        "call = ['--arg', 'f32[8]', '--policies', 'unfused', '--untuned', 'unfused', '--blocks', '1']\n"
        "open(database, 'w').close()\n"
        "codes = [main(['compare', model, *call, '--save', plan + 's'])]\n"
        "saved = plan + 's/w\\udcc3\\udca4rme-unfused.json'\n"
        "codes.append(main(['explain', saved]))\n"
        "codes.append(main(['run', saved, '--repeat', '1', '-o', plan + '.npz']))\n"
        "codes.append(main(['db', 'merge', database, database]))\n"
        "codes.append(main(['db', 'info', database]))\n"
        "codes.append(main(['run', plan]))\n"
        "sys.exit(repr(codes))\n"
    )
    arguments = [f"{texts['model']}:wärme", str(texts["plan"]), str(texts["database"])]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, env=C_LOCALE, check=False)
    out, err = done.stdout.decode(), done.stderr.decode()
    assert err.splitlines()[-1] == "[0, 0, 0, 0, 0, 2]", err
    assert f"{texts['database']}: 0 new records" in out
    assert f"{texts['database']}: 0 records" in out
    assert "modèle.py:5 in w\\xe4rme" in out
    assert f"autofuse: {texts['plan']}: there is no such plan file" in err
    assert (folder / "plän.jsons").is_dir()


def test_json_is_all_that_comes_out(cli: Any, tmp_path: Path) -> None:
    """Prints of the program, when it is imported and when it is traced, go to standard error."""
    program = tmp_path / "chatty.py"
    program.write_text(
        "print('imported')\n\n\ndef double(x):\n    print('traced')\n    return x * 2\n", encoding="utf-8"
    )
    options = ("--policies", "unfused", "--untuned", "unfused", "--blocks", "1")
    done = cli("compare", f"{program}:double", "--arg", "f32[8]", *options, "--json")
    assert done.code == 0
    assert json.loads(done.out)["name"] == "double"
    assert {"imported", "traced"} <= set(done.err.splitlines())
    plain = cli("compare", f"{program}:double", "--arg", "f32[8]", *options)
    assert plain.out.startswith("imported\ntraced\n")


def test_an_interrupt_while_modules_are_imported_waits(plan: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell in the background ignores it
        "class Interrupts:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'numpy.linalg':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from autofuse.__main__ import run\n"
        "sys.exit(run())\n"
    )
    done = subprocess.run([sys.executable, "-c", script, "explain", plan], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "autofuse: interrupted\n")
