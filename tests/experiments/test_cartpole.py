"""The CartPole study: its forms of the program agree, and the report tells what was timed from what was not."""

from pathlib import Path

import numpy as np
import pytest

import autofuse as af

STUDY = Path(__file__).resolve().parents[2] / "experiments" / "cartpole"
MODULES = ("bounded", "cartpole_report", "programs", "sides")


@pytest.mark.parametrize(("first", "second"), [("naive", "unstacked"), ("naive_given", "unstacked_given")])
def test_rewriting_changes_nothing(study, first, second):
    programs = study["programs"]
    lib = programs.Library(np, af.random, af.scan)
    key, state = programs.start(5)
    state[:, 2] *= 4.1  # some begin anew at once
    given = (*programs.drawn(5, 9), state) if "given" in first else (key, state, 9)
    results = [getattr(programs, name)(lib, *given) for name in (first, second)]
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == np.float32
    assert results[0][1].min() < 9.0 == results[0][1].max()


def test_slow_sides_are_called_less_often(study):
    found = study["bounded"].sort_by_time({"quick": 0.1, "slow": 5.0, "slowest": 20.0}, blocks=7, most_seconds=60.0)
    assert (found.interleaved, found.few, found.foretold) == (("quick",), ("slow",), ("slowest",))


def test_few_calls_are_one_block(study):
    calls = {"slow": lambda: None, "quick": lambda: None}
    samples = study["bounded"].timed(calls, ("slow",), 2, 1e-6, 0)
    assert [len(samples["slow"]), len(samples["slow"][0]), len(samples["quick"])] == [1, study["bounded"].FEW, 2]


def times(table, **changed):
    record = {"kind": "times", "table": table, "envs": 16, "few": ["JAX"], "faults": {"Numba": "no such thing"}}
    record |= {"us": {"autofuse": [[50.0, 60.0]], "JAX": [[1000.0, 1200.0]], "JAX, no stacks": [[500.0]]}}
    return record | {"foretold_us": {"NumPy": 2e8}, "ready_s": {"autofuse": 0.25}} | changed


def test_the_report_has_both_tables_and_the_papers(study):
    run = {"settings": {"steps": 1000, "most_seconds": 60.0}, "command": "run.py", "commit": "abc"}
    run["machine"] = {"model": "CPU", "threads": 2} | dict.fromkeys(("numpy", "jax", "torch", "numba"), "1")
    text = study["cartpole_report"].report([times("same"), times("less", us={"JAX": [[500.0]]}, few=[])], run)
    assert "| autofuse (naive) | 0.05 | 0.25 |" in text
    assert "| JAX (naive) | 1 ¹ |  |" in text
    assert "| JAX (naive) | 20.00 |" in text
    assert "| NumPy (naive) | ~200000 ² |  |" in text
    assert "- Numba, same work, 16 environments: no such thing" in text
    assert "| numbers drawn before (less work) | 2.00 | 1.87 |" in text
    assert "| the best of all |  | 10.56 |" in text
