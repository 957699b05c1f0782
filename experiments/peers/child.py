"""What runs in child processes: python child.py TASK.json OUTCOME.json."""

from __future__ import annotations

import importlib
import json
import platform
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from interleaved import interleave, mismatch
from prepared import leaves
from variants import CODE, KEEPS_CACHE, framework

from autofuse.measurement.workloads import load

Record = dict[str, Any]
Arrays = list[NDArray[Any]]


def side_of(variant: str) -> Any:
    """The module of a variant's framework."""
    return importlib.import_module(f"{framework(variant)}_side")


def peak_mb() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def made_ready(task: Record) -> tuple[Any, Record]:
    """One variant of one program, called once and its answer checked: the calls, and what that took."""
    side = side_of(task["variant"])
    program = load(task["file"])
    arguments = program.inputs(task["size"], task["seed"])
    before = peak_mb()
    prepared = side.prepare(program, arguments, task)
    outcome: Record = {
        "ready_s": prepared.ready_s,
        "cold": task["cold"],
        "keeps_cache": framework(task["variant"]) in KEEPS_CACHE,
        "before_mb": before,
        "peak_mb": peak_mb(),
        "notes": prepared.notes,
    }
    given = program.inputs(task["size"], task["seed"])
    results = leaves(program.function(*given))
    answer = leaves(prepared.answer(program.inputs(task["size"], task["seed"])))
    fault = mismatch(*alike([*results, *leaves(given)], answer))
    wrong = mismatch(*alike(results, leaves(prepared.reused_answer()))) if prepared.reused_answer else None
    if wrong:  # the other column is right, and stays
        prepared = replace(prepared, reused=None)
        outcome["notes"] = [*outcome["notes"], f"wrong answer in memory that is given, {wrong}: not timed"]
    return prepared, outcome | ({"fault": f"wrong answer, {fault}"} if fault else {})


def timed(task: Record) -> Record:
    """Check one variant of one program, then time it in interleaved blocks."""
    prepared, outcome = made_ready(task)
    if "fault" in outcome:
        return outcome
    calls = {"fresh": prepared.fresh, "reused": prepared.reused, "empty": prepared.empty}
    bound = {name: call for name, call in calls.items() if call is not None}
    samples = interleave(bound, task["blocks"], task["block_seconds"], task["seed"] + task["round"])
    outcome["samples"] = {
        name: [[round(us, 2) for us in block] for block in blocks] for name, blocks in samples.items()
    }
    if prepared.kernel_us:
        outcome["kernel_us"] = prepared.kernel_us()
    return outcome


def alike(expected: Arrays, got: Arrays) -> tuple[Arrays, Arrays]:
    """Both with widths that are the framework's choice made equal: indices as wide as NumPy's, 0-d floats as theirs."""
    expected, got = list(expected), list(got)
    for number, (right, answer) in enumerate(zip(expected, got, strict=False)):
        if right.dtype.kind == answer.dtype.kind == "i":
            got[number] = answer.astype(right.dtype)
        elif right.dtype.kind == answer.dtype.kind == "f" and right.ndim == answer.ndim == 0:
            expected[number] = right.astype(answer.dtype)
    return expected, got


def tuned(task: Record) -> Record:
    """A tuned plan, saved."""
    program = load(task["file"])
    return side_of("autofuse").tune(program, program.inputs(task["size"], task["seed"]), task)


def facts(task: Record) -> Record:
    """Floors of one program."""
    return importlib.import_module("floors").facts(load(task["file"]), task["size"], task["seed"])


def copied(task: Record) -> Record:
    """The machine's copy rates."""
    del task
    return {"rates": importlib.import_module("floors").copy_rates()}


def catalogue(task: Record) -> Record:
    """Which frameworks there are, and which programs have hand-written forms."""
    del task
    versions: dict[str, str] = {"python": platform.python_version()}
    found: Record = {"missing": []}
    lists = {
        "jax": ("jax idiomatic", "jax_programs", "IDIOMS"),
        "torch": ("torch idiomatic", "torch_idioms", "IDIOMS"),
        "numba": ("numba", "numba_programs", "KERNELS"),
    }
    for name in CODE:
        try:
            versions[name] = importlib.import_module(name).__version__
        except ImportError:
            found["missing"].append(name)
            continue
        if name in lists:
            variant, module, table = lists[name]
            found[variant] = sorted(getattr(importlib.import_module(module), table))
    return {"catalogue": found, "versions": versions}


def loaded(task: Record) -> Record:
    """Seconds from a plan's file to its first result, once autofuse is imported and the arguments are made."""
    program = load(task["file"])
    arguments = program.inputs(task["size"], task["seed"])
    start = time.perf_counter()
    af_load = importlib.import_module("autofuse").load
    imported = time.perf_counter()
    plan = af_load(task["plan"])
    read = time.perf_counter()
    plan(*arguments)
    done = time.perf_counter()
    return {"import_ms": 1e3 * (imported - start), "read_ms": 1e3 * (read - imported), "first_ms": 1e3 * (done - read)}


KINDS = {
    "catalogue": catalogue,
    "copies": copied,
    "facts": facts,
    "load": loaded,
    "round": timed,
    "tune": tuned,
}


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(KINDS[job["kind"]](job)))
