"""What `AUTOFUSE_DUMP=folder` writes: every step from graph to assembly, for people who debug or review.

folder/NAME-GRAPH/            one per program
  traced.txt, graph.txt         the graph before and after clean-up
  PLAN/                         one per plan
    plan.json, candidates.csv     the decisions, and what there was to choose from
    KERNEL.tile, .ll, .s          each kernel's loops, LLVM IR and assembly
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from autofuse.errors import BackendError

if TYPE_CHECKING:  # mostly nothing is dumped
    from autofuse.ir.graph import Graph
    from autofuse.measurement.client import Bench
    from autofuse.plan.document import PlanDocument
    from autofuse.search.policies.context import Context
    from autofuse.targets.base import Executable

VARIABLE = "AUTOFUSE_DUMP"


def dump_folder() -> Path | None:
    """The folder to dump to, or None."""
    chosen = os.environ.get(VARIABLE, "")
    return Path(chosen).expanduser() if chosen else None


def dump_graphs(traced: Graph, clean: Graph) -> None:
    """Write a program's graph as traced and as cleaned up."""
    folder = dump_folder()
    if folder is not None:
        from autofuse.ir.digest import digest
        from autofuse.ir.graphtext import to_text

        place = _program_folder(folder, clean.name, digest(clean))
        _write(place / "traced.txt", to_text(traced, {}))
        _write(place / "graph.txt", to_text(clean, {}))


def dump_candidates(context: Context, document: PlanDocument, bench: Bench | None = None) -> None:
    """Write the candidate space a plan was chosen from, with the times that the bench, if any, has recorded."""
    folder = dump_folder()
    if folder is None:
        return
    import csv
    import io

    from autofuse.fusion.candidate import work_of
    from autofuse.fusion.kind import kind_of
    from autofuse.lower.schedule import Schedule
    from autofuse.runtime.planlowering import candidate_of
    from autofuse.search.space.classes import class_digest

    space = context.space
    prices = context.prices(space)
    kernels = (candidate_of(document.graph, kernel.nodes, kernel.outputs) for kernel in document.kernels)
    chosen = {class_digest(kernel, context.control.schedule_of(kernel.nodes)) for kernel in kernels}
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(("digest", "atoms", "kind", "outputs", "predicted_us", "bound", "measured_us", "chosen"))
    for candidate in space.candidates:
        price = prices[candidate.digest]
        schedule = context.pinned(candidate) or Schedule()
        known = None if bench is None else bench.recorded(candidate.digest, candidate.kernel, schedule)
        nodes = " ".join(node.name for atom in sorted(candidate.atoms, key=lambda a: a.number) for node in atom.nodes)
        outputs = " ".join(value.name for value in candidate.outputs)
        row = (candidate.digest, nodes, kind_of(candidate.kernel), outputs, price.predicted_us, price.bound)
        writer.writerow((*row, "" if known is None else known.us, int(work_of(candidate.digest) in chosen)))
    _write(_plan_folder(folder, document) / "candidates.csv", table.getvalue())


def dump_code(document: PlanDocument, executable: Executable) -> None:
    """Write a compiled plan: its decisions, and each kernel as loops, generated code and machine code."""
    folder = dump_folder()
    if folder is None:
        return
    from autofuse.report.tileprint import print_program

    place = _plan_folder(folder, document)
    for kernel in executable.kernels:
        _write(place / f"{kernel.planned.name}.tile", print_program(kernel.program))
    for name, text in executable.listings().items():
        _write(place / name, text)


def _program_folder(folder: Path, name: str, graph_digest: str) -> Path:
    return folder / f"{name}-{graph_digest[:12]}"


def _plan_folder(folder: Path, document: PlanDocument) -> Path:
    """The folder of a plan, named after its decisions; its text is written there."""
    import hashlib

    from autofuse.plan import codec

    text = codec.to_text(codec.encode(document), None)
    mark = hashlib.sha256(text.encode()).hexdigest()[:12]
    place = _program_folder(folder, document.name, document.graph_digest) / mark
    _write(place / "plan.json", text)
    return place


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as failure:
        raise BackendError(f"{VARIABLE}: cannot write {path}: {failure.strerror or failure}") from failure
