"""The study of loop programs: every program has a peer, answers are checked, and the report is of what was timed."""

import ast
from pathlib import Path

import numpy as np

STUDY = Path(__file__).resolve().parents[2] / "experiments" / "loops"
MODULES = ("bounded", "child", "journal", "loops_report", "loops_sides")


def test_every_program_of_loop_functions_has_a_form_in_numba(study):
    tree = ast.parse((STUDY / "numba_programs.py").read_text())
    (table,) = [n.value for n in tree.body if isinstance(n, ast.AnnAssign) and n.target.id == "PROGRAMS"]
    sides = study["loops_sides"]
    wanted = {program.name for program in sides.loop_programs() if sides.has_loop_functions(program)}
    assert {key.value for key in table.keys} == wanted
    assert 8 <= len(wanted) < len(sides.loop_programs())


def test_answers_are_checked(study):
    fault_of = study["child"].fault_of
    right = np.arange(100.0)
    assert fault_of(right, right, exact=True) is None
    one_off = np.where(right == 3.0, 4.0, right)
    assert fault_of(one_off, right, exact=True)
    assert fault_of(one_off, right, exact=False) is None
    assert fault_of(right + 1.0, right, exact=False) == "only 0% of an answer is NumPy's"


def test_a_wrong_side_is_not_timed(study, monkeypatch):
    child = study["child"]
    (program,) = study["loops_sides"].loop_programs(["life"])

    def broken(program, arguments):
        return lambda: np.zeros_like(arguments[0])

    def absent(program, arguments):
        return None

    def raising(program, arguments):
        raise ValueError("no\nmore")

    sides = {"NumPy": child.SIDES["NumPy"], "broken": broken, "absent": absent, "raising": raising}
    monkeypatch.setattr(child, "SIDES", sides)
    calls, facts = child.tried(program, list(sides), "small", 0)
    assert list(calls) == ["NumPy"]
    assert facts["faults"]["raising"] == "ValueError: no"
    assert set(facts["faults"]) == {"broken", "raising"}


def test_the_report(study, tmp_path):
    journal = study["journal"].Journal(tmp_path / "loops.jsonl")
    us = {"autofuse": [[10.0]], "JAX": [[80.0]], "Numba": [[20.0]]}
    for name, factor in (("life", 1), ("lorenz", 4)):
        timed = {
            side: [[value * (factor if side == "JAX" else 1) for value in block] for block in blocks]
            for side, blocks in us.items()
        }
        journal.append(
            {"kind": "times", "program": name, "status": "ok", "us": timed, "few": [], "ready_s": {}, "faults": {}}
        )
    journal.append({"kind": "times", "program": "heat_2d", "status": "failed", "error": "stopped after 9 s"})
    run = {"settings": {"size": "full", "most_seconds": 60.0}, "command": "run.py", "commit": "abc"}
    run["machine"] = {"model": "CPU", "threads": 2} | dict.fromkeys(("numpy", "jax", "numba"), "1")
    text = study["loops_report"].report(journal, run, study["loops_sides"].loop_programs())
    assert "| `life` | 0.01 | 0.08 | 0.02 |  |  | 8.00 | 2.00 |" in text
    assert "| geometric mean | | | | |  | 16.00 | 2.00 |" in text
    assert "- `heat_2d`: stopped after 9 s" in text
