"""The study of autofuse.jax: its programs run as JAX runs them, and the report is of what was timed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse.measurement.workloads import WORKLOADS_DIRECTORY, load

STUDY = Path(__file__).resolve().parents[2] / "experiments" / "jax"
MODULES = ("interleaved", "jax_report", "journal", "standings")
PROGRAMS = sorted(path.stem for path in (WORKLOADS_DIRECTORY / "jax").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_right_and_run_without_the_interpreter(name):
    jax = pytest.importorskip("jax", minversion="0.10", reason="needs JAX 0.10: pip install 'autofuse[jax]'")
    afj = pytest.importorskip("autofuse.jax")
    program = load(name, WORKLOADS_DIRECTORY / "jax")
    arguments = jax.tree.map(jax.numpy.asarray, program.inputs("small", 0))
    found, wanted = afj.jit(program.function)(*arguments), jax.jit(program.function)(*arguments)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4 * max(1.0, float(np.abs(other).max(initial=0))))
    assert sum(np.isfinite(leaf).all() for leaf in jax.tree.leaves(wanted)) == len(jax.tree.leaves(wanted))


def test_the_report(study, tmp_path):
    journal = study["journal"].Journal(tmp_path / "jax.jsonl")
    us = {"jax.jit": [[20.0, 30.0], [21.0, 22.0]], "autofuse": [[10.0, 11.0], [10.5, 12.0]]}
    kernels = {"jax.jit": 7, "autofuse": 3}
    journal.append({"kind": "times", "program": "one", "status": "ok", "us": us, "kernels": kernels, "interpreted": 0})
    journal.append(
        {"kind": "times", "program": "two", "status": "failed", "error": "autofuse: 5% of the values differ"}
    )
    seconds = {"first process": [0.3, 0.5, 0.4], "second process": [0.1, 0.1, 0.2]}
    journal.append({"kind": "first", "program": "one", "side": "autofuse", "status": "ok", **seconds})
    journal.append({"kind": "overhead", "status": "ok", "us": {"jax.jit": [[4.0]], "autofuse": [[5.0]]}})
    ms = {"jaxlib's parser": 1.5, "autofuse": 4.0}
    journal.append({"kind": "reading", "program": "one", "status": "ok", "operations": 200, "ms": ms})
    run = {"settings": {"size": "small"}, "machine": {"model": "m", "threads": 2, "jax": "0.10"}, "command": "c"}
    text = study["jax_report"].report(journal, {**run, "commit": "abc"})
    assert "| `one` | 0.02 | 0.01 | 2.00 [" in text
    assert "] | 7 | 3 | 0 |" in text
    assert "Geometric mean of jax.jit over autofuse: 2.00." in text
    assert "| `one` |  |  | 0.40 | 0.10 |" in text
    assert "| `one` | 200 | 1.5 | 4.0 | 20 |" in text
    assert "| autofuse | 5.0 |" in text
    assert "- `two`: autofuse: 5% of the values differ" in text
