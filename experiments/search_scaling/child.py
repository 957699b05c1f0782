"""One search or tuning run of the scaling study, in a process of its own: child.py TASK.json OUTCOME.json."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import autofuse
from autofuse.api.partitioning import make_context
from autofuse.api.programs import traced_program
from autofuse.frontend.spec import spec
from autofuse.frontend.traced import trace
from autofuse.measurement.workloads import load
from autofuse.passes.pipeline import clean
from autofuse.search.plans.planning import Program
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.documents import document_of
from autofuse.search.space.candidates import Bounds
from autofuse.targets.base import find_target
from autofuse.testing.graphs import random_graph
from autofuse.testing.partitions import program_of

Record = dict[str, Any]
Result = TypeVar("Result")
WIDTH, TOKENS = 768, 128
FEATURES, STATE, BATCH = 64, 256, 128


def bert(layers: int, seed: int) -> Program:
    """The encoder of BERT-base with so many layers; no arrays, only their types."""
    del seed
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "in": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    layer = {f"w_{name}": spec(shape) for name, shape in shapes.items()}
    layer |= {f"b_{name}": spec((columns,)) for name, (_, columns) in shapes.items()}
    layer |= {f"{name}{norm}": spec((WIDTH,)) for name in ("gamma", "beta") for norm in (1, 2)}
    function = load("bert_encoder").function
    return traced_program(trace(function, spec((TOKENS, WIDTH)), [dict(layer) for _ in range(layers)]))


def lstm(steps: int, seed: int) -> Program:
    """A recurrence over so many steps, unrolled."""
    del seed
    shapes = (steps, BATCH, FEATURES), (FEATURES, 4 * STATE), (STATE, 4 * STATE), (4 * STATE,)
    return traced_program(trace(load("lstm_sequence").function, *(spec(shape) for shape in shapes)))


def irregular(nodes: int, seed: int) -> Program:
    """A random graph: no two parts of it are equal."""
    graph = random_graph(np.random.default_rng(seed), nodes, extents=(1, 16, 64, 128), max_rank=2)
    return program_of(clean(graph))


PROGRAMS: dict[str, Callable[[int, int], Program]] = {"bert": bert, "lstm": lstm, "random": irregular}


def search(task: Record) -> Record:
    """Seconds of each step, the peak of memory, and what was found."""
    seconds: dict[str, float] = {}

    def timed(step: str, work: Callable[[], Result]) -> Result:
        start = time.perf_counter()
        result = work()
        seconds[step] = time.perf_counter() - start
        return result

    program = timed("trace", lambda: PROGRAMS[task["program"]](task["size"], task["seed"]))
    whole = 0 if task["way"] == "segments" else len(program.graph.nodes)
    context = make_context(program, find_target()).within(Bounds(whole=whole, segment=task["segment"]))
    space = timed("enumerate", lambda: context.space)
    timed("price", lambda: context.kernels.prices.saved(space))
    partition = timed("solve", lambda: Analytical().partition(context))
    document = timed("write", lambda: document_of(context, partition, find_target().identity))
    solution = partition.solution
    assert solution is not None
    return {
        "nodes": len(program.graph.nodes),
        "atoms": len(space.atom_graph.atoms),
        "segments": solution.segments,
        "candidates": len(space.candidates),
        "classes": len(space.classes),
        "cut_off": space.cut_off,
        "kernels": len(document.kernels),
        "price_us": solution.price_us,
        "bound_us": solution.bound_us,
        "optimal": solution.optimal,
        "seconds": seconds,
        "peak_mib": peak_mib(),
    }


def tune(task: Record) -> Record:
    """The workload of twelve layers, tuned with measurements: seconds on the clock, and what came of it."""
    workload = load("bert_encoder")
    arguments = workload.inputs("full", task["seed"])
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        plan = autofuse.tune(
            workload.function, *arguments, budget=task["budget_s"], progress=False, db=Path(folder, "tune.db")
        )
    seconds = time.perf_counter() - start
    certificate = plan.certificate
    assert certificate is not None
    return {
        "seconds": seconds,
        "nodes": len(plan.document.graph.nodes),
        "kernels": len(plan.kernels),
        "certificate": asdict(certificate),
        "peak_mib": peak_mib(),
    }


def peak_mib() -> float:
    """Of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


KINDS = {"search": search, "tune": tune}


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(KINDS[job["kind"]](job)))
