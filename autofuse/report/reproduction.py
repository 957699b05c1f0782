"""One kernel of a plan as a folder that rebuilds, checks and times it: what to attach to a bug report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.digest import digest
from autofuse.ir.graph import Graph, Value
from autofuse.ir.interpreter import interpret, interpret_values
from autofuse.ir.tree import Branch, Leaf
from autofuse.lazydataclass import replace
from autofuse.measurement.errorbounds import bounds_of
from autofuse.plan import file
from autofuse.plan.document import Launch, PlanDocument, PlannedKernel
from autofuse.report.quantities import nearest
from autofuse.report.tileprint import print_program
from autofuse.runtime.planlowering import candidate_of
from autofuse.targets.base import Target

Array = NDArray[Any]

_SCRIPT = '''"""Rebuild, check and time the kernel {name}: python repro.py (needs autofuse {version})."""

import sys
from pathlib import Path

import numpy as np

import autofuse
from autofuse.errors import MeasureError
from autofuse.measurement.checks import check
from autofuse.measurement.timer import measure

HERE = Path(__file__).resolve().parent


def arrays(file, values):
    with np.load(HERE / file, allow_pickle=False) as archive:
        return [archive[f"a{{n}}"].view(value.type.dtype.numpy) for n, value in enumerate(values)]


def bounds(count):
    """By how much each output may differ; None where not at all."""
    with np.load(HERE / "bounds.npz", allow_pickle=False) as archive:
        return [archive.get(f"a{{n}}") for n in range(count)]


plan = autofuse.load(HERE / "kernel.json", on_mismatch="run")
inputs = arrays("inputs.npz", plan.graph.inputs)
expected = arrays("expected.npz", plan.graph.outputs)
outputs = plan(*inputs)
wrong = 0
answers = zip(plan.graph.outputs, outputs, expected, bounds(len(outputs)), strict=True)
for value, found, right, bound in answers:
    try:
        check(f"%{{value.name}}", np.asarray(found), right, bound)
        print(f"%{{value.name}}: {{value.type}} agrees with the interpreter")
    except MeasureError as error:
        wrong += 1
        print(f"WRONG {{error}}")
timing = measure(lambda: plan(*inputs), clock=plan.target.clock)
middle, low, high = timing.median_us, timing.low_us, timing.high_us
print(f"{{middle:.3f}} us per call (median, {{low:.3f}} to {{high:.3f}}); the fastest {{min(timing.samples_us):.3f}}")
sys.exit(wrong > 0)
'''


def write_bundle(
    document: PlanDocument, name: str, arguments: Sequence[Array], folder: Path, target: Target, version: str
) -> list[Path]:
    """Write the bundle of kernel `name` into `folder` and return its files.

    `arguments`: the program's arguments; the kernel's own inputs are the interpreter's intermediates for them.
    `version`: of autofuse, for the reader. Raises ArgumentError for an unknown kernel or an unwritable folder.
    """
    planned = _planned(document, name)
    kernel = candidate_of(document.graph, planned.nodes, planned.outputs)
    single = _single(document, planned, kernel)
    inputs = _values(document.graph, kernel.inputs, arguments)
    expected = interpret(single.graph, *inputs)
    executable = target.executable(single)
    bounds = {f"a{number}": bound for number, bound in enumerate(bounds_of(single.graph, inputs)) if bound is not None}
    texts = {
        "kernel.tile": print_program(executable.kernels[0].program),
        "repro.py": _SCRIPT.format(name=name, version=version),
    }
    for listing, text in executable.listings().items():
        own = f"kernel{Path(listing).suffix}"
        texts[own] = f"{texts[own]}\n{text}" if own in texts else text
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [file.save(single, folder / "kernel.json")]
        for arrays, place in ((inputs, "inputs.npz"), (expected, "expected.npz")):
            save_arrays(folder / place, {f"a{number}": array for number, array in enumerate(arrays)})
            written.append(folder / place)
        save_arrays(folder / "bounds.npz", bounds)
        written.append(folder / "bounds.npz")
        for place, text in texts.items():
            (folder / place).write_text(text, encoding="utf-8")
            written.append(folder / place)
    except OSError as failure:
        raise ArgumentError(f"cannot write the bundle to {folder}: {failure.strerror or failure}") from failure
    return written


def save_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an .npz; bfloat16, which the format lacks, is kept as the u16 of its bits."""
    plain: dict[str, Any] = {
        name: array.view(np.uint16) if array.dtype.name == "bfloat16" else array for name, array in arrays.items()
    }
    if path.is_dir():
        raise ArgumentError(f"cannot write {path}: it is a folder; name a file in it")
    try:
        np.savez(path, **plain)
    except OSError as failure:
        raise ArgumentError(f"cannot write {path}: {failure.strerror or failure}") from failure


def _planned(document: PlanDocument, name: str) -> PlannedKernel:
    for kernel in document.kernels:
        if kernel.name == name:
            return kernel
    raise ArgumentError(f"the plan has no kernel {name!r:.80}{nearest(name, [k.name for k in document.kernels])}")


def _single(document: PlanDocument, planned: PlannedKernel, kernel: KernelCandidate) -> PlanDocument:
    """A plan of this kernel alone, with what it reads as arguments."""
    graph = Graph(planned.name, kernel.inputs, kernel.nodes, kernel.outputs)
    return replace(
        document,
        name=planned.name,
        graph=graph,
        graph_digest=digest(graph),
        in_tree=_flat(len(graph.inputs)),
        out_tree=_flat(len(graph.outputs)),
        parameters=tuple(value.name for value in graph.inputs),
        writebacks=(),
        complex_inputs=(),
        complex_outputs=(),
        kernels=(planned,),
        order=(Launch(0),),
        certificate=None,
        notes=(f"kernel {planned.name} of the plan {document.name}",),
    )


def _flat(count: int) -> Branch:
    return Branch("tuple", tuple(range(count)), tuple(Leaf() for _ in range(count)))


def _values(graph: Graph, wanted: Sequence[Value], arguments: Sequence[Array]) -> list[Array]:
    names = [value.name for value in wanted]
    found = interpret_values(graph, arguments, list(dict.fromkeys(names)))
    return [np.ascontiguousarray(found[value.name]).reshape(value.type.shape) for value in wanted]
