"""One program under one system and under the policy that stands for it: child.py TASK.json OUTCOME.json."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from agreement import Kernels, compare, that_run

from autofuse.api.partitioning import make_context
from autofuse.api.programs import random_array
from autofuse.frontend.traced import trace
from autofuse.ir.graph import Graph
from autofuse.measurement.workloads import load
from autofuse.passes.pipeline import clean
from autofuse.search.plans.planning import Program
from autofuse.search.plugins.registry import policy_by_name
from autofuse.targets.base import find_target
from autofuse.testing.graphs import random_graph
from autofuse.testing.partitions import program_of

Record = dict[str, Any]
THREADS = 2


def program(task: Record) -> tuple[Program, list[Any]]:
    """The cleaned-up program, and arguments for it."""
    if "seed" in task:
        graph = clean(random_graph(np.random.default_rng(task["seed"]), task["nodes"]))
        return program_of(graph), _arguments(graph)
    workload = load(task["file"])
    traced = trace(workload.function, *workload.inputs(task["size"], 0))
    graph = clean(traced.graph)
    return program_of(graph), _arguments(graph)


def _arguments(graph: Graph) -> list[Any]:
    rng = np.random.default_rng(0)
    return [random_array(value.type, rng) for value in graph.inputs]


def xla_cpu(graph: Graph, args: list[Any]) -> list[tuple[str, frozenset[int]]]:
    """The kernels that XLA:CPU makes."""
    jax: Any = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    as_jax, hlo = importlib.import_module("as_jax"), importlib.import_module("hlo")
    text = jax.jit(lambda *given: as_jax.evaluate(graph, given)).lower(*args).compile().as_text()
    return hlo.kernels(text)


def inductor(graph: Graph, args: list[Any]) -> list[tuple[str, frozenset[int]]]:
    """The kernels that Inductor makes."""
    as_torch = importlib.import_module("as_torch")
    return that_run([(kind, frozenset(numbers)) for kind, numbers in as_torch.fused_kernels(graph, args)])


SYSTEMS = {"xla-cpu": xla_cpu, "inductor": inductor}


def named(graph: Graph, kernels: list[tuple[str, frozenset[int]]]) -> Kernels:
    """Kernels of node numbers as kernels of names."""
    return [frozenset(graph.nodes[number].name for number in numbers) for _, numbers in kernels]


def measured(task: Record) -> Record:
    """Their kernels, ours, and how they agree."""
    found, args = program(task)
    theirs = SYSTEMS[task["system"]](found.graph, args)
    partition = policy_by_name(task["policy"]).partition(make_context(found, find_target(threads=THREADS)))
    ours = [frozenset(n.name for atom in k.candidate.atoms for n in atom.nodes) for k in partition.kernels]
    agreement = compare(found.graph, named(found.graph, theirs), ours)
    return {
        **asdict(agreement),
        "is_exact": agreement.is_exact,
        "their_kernels": [[kind, sorted(numbers)] for kind, numbers in theirs],
        "our_kernels": [sorted(kernel) for kernel in ours],
    }


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(measured(job)))
