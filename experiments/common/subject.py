"""A program made ready to be searched and measured by hand: its context, its arguments, and a bench."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from autofuse.api.partitioning import make_context
from autofuse.api.programs import measuring_inputs, traced_program
from autofuse.frontend.traced import trace
from autofuse.measurement.client import Bench
from autofuse.measurement.database import Database
from autofuse.measurement.workloads import load
from autofuse.plan.identity import Identity
from autofuse.search.policies.context import Context
from autofuse.targets.base import find_target


@dataclass(frozen=True, slots=True)
class Subject:
    """One program."""

    context: Context
    """Of its cleaned-up graph, on this machine."""
    arrays: list[NDArray[Any]]
    """The graph's inputs."""


def subject_of(file: str, size: str, seed: int) -> Subject:
    """The program of a workload file, with the arguments of that size and seed."""
    workload = load(file)
    arguments = workload.inputs(size, seed)
    traced = trace(workload.function, *arguments)
    return Subject(
        make_context(traced_program(traced), find_target()), measuring_inputs(traced, None, seed, find_target())
    )


def identity_here() -> Identity:
    """What plans of this machine carry."""
    return find_target().identity


@contextmanager
def bench_of(subject: Subject, db: Path | None = None) -> Generator[Bench]:
    """A bench for the program's kernels. `db`: the file that keeps measurements; by default they are forgotten."""
    identity = identity_here()
    graph = subject.context.program.graph
    with (
        tempfile.TemporaryDirectory(prefix="autofuse-") as folder,
        Database(db or Path(folder, "measure.db"), identity) as base,
        Bench(graph, subject.arrays, base, identity) as bench,
    ):
        yield bench
