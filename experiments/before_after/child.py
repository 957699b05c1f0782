"""One program by the checkout on the path, in this process: child.py TASK.json OUTCOME.json.

Steps: `answer` (the plan's kernels, their code, and the bits of what a call gives), `call` (time of a call; the plan is
saved), `load` (time from the import of autofuse to the first result of that plan).
"""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
import pickle
import sys
import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

_LEAST_CALLS = 5


def answer(task: dict[str, Any]) -> dict[str, Any]:
    """Digests of what the plan decides, of its code, and of results and arguments after a call."""
    module = _module(task["file"])
    arguments = module.inputs(task["size"], 0)
    plan = _plan(task, module, arguments)
    plan.save(task["plan"])
    document = json.loads(Path(task["plan"]).read_text())
    decided = [(kernel["nodes"], kernel.get("schedule")) for kernel in document["kernels"]]
    used = copy.deepcopy(arguments)
    found = plan(*used)
    return {
        "kernels": len(decided),
        "partition": _digest([nodes for nodes, _ in decided]),
        "decided": _digest([decided, document["order"]]),
        "code": _digest(plan.source()),
        "bits": _bits([*_arrays(found), *_arrays(used)]),
    }


def call(task: dict[str, Any]) -> dict[str, Any]:
    """Microseconds of the fastest call within `seconds`; the plan goes to a file, and so do its arguments."""
    module = _module(task["file"])
    arguments = module.inputs(task["size"], 0)
    if not Path(task["arguments"]).exists():
        Path(task["arguments"]).write_bytes(pickle.dumps(arguments))
    plan = _plan(task, module, arguments)
    plan.save(task["plan"])
    used = copy.deepcopy(arguments)
    times: list[float] = []
    end = time.perf_counter() + task["seconds"]
    while time.perf_counter() < end or len(times) < _LEAST_CALLS:
        begin = time.perf_counter()
        plan(*used)
        times.append(time.perf_counter() - begin)
    return {"us": min(times) * 1e6}


def load(task: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds of import, load and first call."""
    arguments = pickle.loads(Path(task["arguments"]).read_bytes())
    begin = time.perf_counter()
    import autofuse as af

    af.load(task["plan"])(*arguments)
    return {"ms": (time.perf_counter() - begin) * 1e3}


def _plan(task: dict[str, Any], module: ModuleType, arguments: tuple[Any, ...]) -> Any:
    """The plan under the task's policy: measured with its budget, or compiled without a deadline."""
    import autofuse as af

    function = getattr(module, Path(task["file"]).stem)
    given = copy.deepcopy(arguments)
    if task["policy"] == "measured":
        return af.tune(function, *given, budget=task["budget"], progress=False)
    return af.compile(function, *given, policy=task["policy"], deadline=None)


def _module(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [array for part in value for array in _arrays(part)]
    return [] if value is None else [np.asarray(value)]


def _bits(arrays: list[np.ndarray]) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    job = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps({"answer": answer, "call": call, "load": load}[job["step"]](job)))
