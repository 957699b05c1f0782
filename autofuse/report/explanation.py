"""What a plan does and why: its kernels, their loops, their prices, and what the search can say for them.

`build_report` gathers the facts as plain data (`autofuse explain --json` prints them); `render` makes them readable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any

from autofuse.errors import ArgumentError
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of, values_of
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import asdict, dataclass, replace
from autofuse.lower.tile import OpaqueProgram, Space, TileProgram
from autofuse.plan.document import Certificate, PlanDocument
from autofuse.plan.identity import COLD_POLICY
from autofuse.report.printable import printable
from autofuse.report.quantities import bytes_text, microseconds, nearest
from autofuse.report.tileprint import loop_lines
from autofuse.runtime.frames import control_node_of
from autofuse.runtime.memory import plan_memory, plan_regions
from autofuse.runtime.planlowering import LoweredKernel, canonical

Remarks = Mapping[str, Sequence[str]]
"""What a target says of kernels, by their names."""


_RUN_BY_DRIVER = ("run by the driver, kernel by kernel",)


@dataclass(frozen=True, slots=True)
class Operation:
    """One graph node inside a kernel."""

    name: str
    op: str
    type: str
    """Of its first output: `f32[64,64]`."""
    source: str
    """`model.py:12 in softmax`; empty if unknown."""
    view: bool
    """Only renames elements: costs nothing."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A value that a kernel reads from memory or writes to it."""

    name: str
    type: str
    bytes: int
    role: str
    """`argument`, `constant`, `result`, or `temporary` (made by one kernel for another)."""


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One launch of a plan."""

    name: str
    kind: str
    digest: str
    group_place: int
    operations: tuple[Operation, ...]
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]
    schedule: dict[str, Any]
    """Decisions that differ from the defaults."""
    scratch_bytes: int
    """On-chip memory of one worker."""
    workspace_bytes: int
    """Memory private to the kernel that passes values between its launches."""
    loops: tuple[str, ...]
    predicted_us: float | None
    measured_us: float | None
    bound: str | None
    launches: tuple[str, ...]
    """How the target runs it, and what that needs; what targets say differs."""
    shares_code_with: str | None
    """An earlier kernel that is the same but for its buffers."""
    reason: str
    """Of a loop or a branch: why it is no kernel. Empty for what is one."""
    regions: tuple[RegionReport, ...]
    """Of a loop or a branch that a driver runs: what stands before it, and its regions."""


@dataclass(frozen=True, slots=True)
class RegionReport:
    """A program inside a loop or a branch."""

    title: str
    """What it is, and how often it runs."""
    us: float | None
    """All of its kernels, once: as measured, where that is known, else as predicted."""
    kernels: tuple[KernelReport, ...]


@dataclass(frozen=True, slots=True)
class PlanReport:
    """A whole plan."""

    name: str
    backend: str
    numerics: str
    graph_digest: str
    device: str
    """Product name of the machine the plan was made for."""
    threads: int | None
    arguments: tuple[Operand, ...]
    results: tuple[Operand, ...]
    written_arguments: tuple[str, ...]
    """Arguments that the function modifies in place."""
    kernels: tuple[KernelReport, ...]
    launches: int
    """Groups of kernels that run one after the other."""
    arena_bytes: int
    """Memory for temporaries and workspaces of one call."""
    peak_bytes: int
    """All that exists while a call runs: arguments, constants, results, temporaries and workspaces."""
    certificate: dict[str, Any] | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def explain(document: PlanDocument, lowered: Sequence[LoweredKernel], remarks: Remarks = MappingProxyType({})) -> str:
    """A plan as text: its kernels in running order, memory, notes and certificate."""
    return printable(render(build_report(document, lowered, remarks)))


def build_report(
    document: PlanDocument, lowered: Sequence[LoweredKernel], remarks: Remarks = MappingProxyType({})
) -> PlanReport:
    """Gather the facts. `lowered`: the plan's kernels in running order. `remarks`: what the target says of them."""
    memory = plan_memory(document.graph, document.writebacks, lowered)
    kernels = _kernel_reports(document.graph, lowered, remarks, {})
    identity = document.identity
    return PlanReport(
        name=document.name,
        backend=document.backend,
        numerics=document.numerics,
        graph_digest=document.graph_digest,
        device=identity.product,
        threads=getattr(identity, "threads", None),
        arguments=_as_given(document.graph.inputs, document.input_types, "argument"),
        results=_as_given(document.graph.outputs, document.output_types, "result"),
        written_arguments=tuple(document.graph.inputs[number].name for number in document.writebacks),
        kernels=kernels,
        launches=memory.launches,
        arena_bytes=memory.arena_bytes,
        peak_bytes=memory.peak_bytes,
        certificate=None if document.certificate is None else certificate_data(document.certificate),
        notes=document.notes,
    )


def certificate_data(certificate: Certificate) -> dict[str, Any]:
    """A certificate as plain data, with what is derived from it."""
    return {**asdict(certificate), "additivity": certificate.additivity}


def kernel_named(report: PlanReport, name: str) -> KernelReport:
    """One kernel of a report. Raises ArgumentError with the nearest name if there is none of that name."""
    kernels = {kernel.name: kernel for kernel in _all_kernels(report.kernels)}
    if name not in kernels:
        raise ArgumentError(f"the plan has no kernel {name!r:.80}{nearest(name, list(kernels))}")
    return kernels[name]


def _all_kernels(kernels: Sequence[KernelReport]) -> Iterator[KernelReport]:
    """Those inside of loops and branches too."""
    for kernel in kernels:
        yield kernel
        for region in kernel.regions:
            yield from _all_kernels(region.kernels)


def source_text(node: Node) -> str:
    """`model.py:12 in softmax`, with the path as seen from the working directory where it lies below it."""
    if node.location is None:
        return ""
    relative = os.path.relpath(node.location.file)
    file = node.location.file if relative.startswith("..") else relative
    return f"{file}:{node.location.line} in {node.location.function}"


def _roles(graph: Graph) -> dict[Value, str]:
    roles = dict.fromkeys(values_of(graph, Role.CONSTANT), "constant")
    roles |= dict.fromkeys(graph.outputs, "result")
    return roles | dict.fromkeys(graph.inputs, "argument")


def _as_given(values: Sequence[Value], types: Sequence[TensorType], role: str) -> tuple[Operand, ...]:
    """Arguments or results, of the types that callers see."""
    return tuple(Operand(v.name, str(t), t.nbytes, role) for v, t in zip(values, types, strict=True))


def _operands(values: Sequence[Value], roles: dict[Value, str]) -> tuple[Operand, ...]:
    return tuple(Operand(v.name, str(v.type), v.type.nbytes, roles.get(v, "temporary")) for v in values)


def _kernel_reports(
    graph: Graph, lowered: Sequence[LoweredKernel], remarks: Remarks, first: dict[TileProgram, str]
) -> tuple[KernelReport, ...]:
    """`first`: the kernels that have the code already."""
    roles = _roles(graph)
    found: list[KernelReport] = []
    for kernel in lowered:
        shared = None
        if isinstance(kernel.program, TileProgram):
            earlier = first.setdefault(canonical(kernel.program), kernel.planned.name)
            shared = earlier if earlier != kernel.planned.name else None
        own = _kernel_report(graph, kernel, roles, shared, remarks.get(kernel.planned.name, ()))
        found.append(replace(own, regions=tuple(_region_reports(kernel, remarks, first))))
    return tuple(found)


def _region_reports(kernel: LoweredKernel, remarks: Remarks, first: dict[TileProgram, str]) -> Iterator[RegionReport]:
    titles = ()
    if kernel.regions and isinstance(kernel.program, OpaqueProgram):
        titles = _region_titles(kernel.program.graph)
    for title, region in zip(titles, kernel.regions, strict=False):
        times = [(inner.planned.measured_us, inner.planned.predicted_us) for inner in region.kernels]
        known = [predicted if measured is None else measured for measured, predicted in times]
        us = sum(price for price in known if price is not None)
        inside = _kernel_reports(region.program.graph, region.kernels, remarks, first)
        yield RegionReport(title, None if None in known else us, inside)


def _region_titles(graph: Graph) -> tuple[str, ...]:
    """What the programs of a loop or a branch are called."""
    node = control_node_of(graph)
    match role_of(node):
        case Role.BRANCH:
            return "before it", "where the condition holds", "where it does not"
        case Role.COUNTED_LOOP:
            trips = node.attrs["length"]
            return "before it", f"body, {trips} time{'s' * (trips != 1)}"
        case _:
            return "before it", "condition", "body, as often as the condition holds"


def _kernel_report(
    graph: Graph, kernel: LoweredKernel, roles: dict[Value, str], shared: str | None, launches: Sequence[str]
) -> KernelReport:
    planned = kernel.planned
    inside = plan_regions(kernel).arena_bytes if kernel.regions else 0
    scratch = sum(b.type.nbytes for b in kernel.program.buffers if b.space is Space.SCRATCH)
    return KernelReport(
        name=planned.name,
        kind=planned.kind,
        digest=planned.digest,
        group_place=kernel.group_place,
        operations=tuple(_operation(graph.node_by_name[name]) for name in planned.nodes),
        reads=_operands(kernel.reads, roles),
        writes=_operands(kernel.writes, roles),
        schedule=planned.schedule.to_json(),
        scratch_bytes=scratch,
        workspace_bytes=sum(buffer.type.nbytes for buffer in kernel.workspaces) + inside,
        loops=_RUN_BY_DRIVER if kernel.regions else tuple(loop_lines(kernel.program)),
        predicted_us=planned.predicted_us,
        measured_us=planned.measured_us,
        bound="library" if isinstance(kernel.program, OpaqueProgram) and not planned.bound else planned.bound,
        launches=tuple(launches),
        shares_code_with=shared,
        reason=kernel.program.reason if isinstance(kernel.program, OpaqueProgram) else "",
        regions=(),
    )


def _operation(node: Node) -> Operation:
    role = role_of(node)
    label = f"{node.op} {node.attrs['combiner']}" if role in (Role.REDUCE, Role.SCAN, Role.WINDOW) else node.op
    return Operation(node.name, label, str(node.outputs[0].type), source_text(node), not role.computes)


# ---- rendering -------------------------------------------------------------------------------------------------------


def render(report: PlanReport) -> str:
    """The report as text."""
    return "\n".join([*_head_lines(report), *_kernels_lines(report.kernels), *_tail_lines(report)]) + "\n"


def render_kernel(kernel: KernelReport) -> str:
    """One kernel as text."""
    return "\n".join(_kernel_lines(0, kernel)) + "\n"


def _head_lines(report: PlanReport) -> Iterator[str]:
    count = len(report.kernels)
    threads = f", {report.threads} threads" if report.threads else ""
    launches = "" if report.launches == count else f" in {report.launches} launch{'es' * (report.launches != 1)}"
    what = f"{count} kernel{'s' * (count != 1)}{launches}"
    yield f"plan {report.name}: {what} for {report.backend} ({report.device}{threads})"
    yield f"  arguments  {_operand_list(report.arguments)}"
    yield f"  results    {_operand_list(report.results)}"
    if report.written_arguments:
        yield f"  written in place: {', '.join(report.written_arguments)}"
    saved = "no temporaries" if report.arena_bytes == 0 else f"{bytes_text(report.arena_bytes)} of temporaries"
    yield f"  memory     {saved}, {bytes_text(report.peak_bytes)} with arguments, constants and results"
    yield f"  numerics   {report.numerics}; graph {report.graph_digest[:16]}"


def _kernels_lines(kernels: Sequence[KernelReport]) -> Iterator[str]:
    for number, kernel in enumerate(kernels):
        yield ""
        yield from _kernel_lines(number, kernel)


def _kernel_lines(number: int, kernel: KernelReport) -> Iterator[str]:
    beside = ", beside the one before" if kernel.group_place else ""
    yield f"[{number}] {kernel.name} ({kernel.kind}{beside})"
    yield f"  time       {_times(kernel)}"
    yield f"  reads      {_operand_list(kernel.reads)}"
    yield f"  writes     {_operand_list(kernel.writes)}"
    for position, (loop, equal) in enumerate(groupby(kernel.loops)):
        times = sum(1 for _ in equal)
        yield f"  {'loops' if position == 0 else '':<11}{loop}" + (f" ({times} times)" if times > 1 else "")
    if kernel.reason:
        yield f"  no kernel  {kernel.reason}"
    for position, launch in enumerate(kernel.launches):
        yield f"  {'launch' if position == 0 else '':<11}{launch}"
    chip = f"; scratch {bytes_text(kernel.scratch_bytes)} per worker" if kernel.scratch_bytes else ""
    space = f"; workspace {bytes_text(kernel.workspace_bytes)}" if kernel.workspace_bytes else ""
    decisions = ", ".join(f"{key}={value}" for key, value in kernel.schedule.items()) or "default"
    yield f"  schedule   {decisions}{chip}{space}"
    if kernel.shares_code_with:
        yield f"  code       shared with {kernel.shares_code_with}"
    yield from _operation_lines(kernel.operations)
    for region in kernel.regions:
        if region.kernels or region.title != "before it":
            yield from _region_lines(region)


def _region_lines(region: RegionReport) -> Iterator[str]:
    price = "" if region.us is None or not region.kernels else f": {microseconds(region.us)}"
    yield f"  {region.title}{price}{'' if region.kernels else ': nothing to compute'}"
    for number, kernel in enumerate(region.kernels):
        yield from (f"    {line}" for line in _kernel_lines(number, kernel))


def _operation_lines(operations: Sequence[Operation]) -> Iterator[str]:
    real = [operation for operation in operations if not operation.view]
    views = len(operations) - len(real)
    free = f" and {views} free views and constants" if views else ""
    yield f"  operations {len(real)}{free}"
    width = max((len(f"{o.name} = {o.op}") for o in real), default=0)
    types = max((len(o.type) for o in real), default=0)
    for operation in real:
        left = f"{operation.name} = {operation.op}"
        yield f"    {left:<{width}}  {operation.type:<{types}}  {operation.source}".rstrip()


def _times(kernel: KernelReport) -> str:
    parts = [
        f"{word} {microseconds(us)}"
        for word, us in (("measured", kernel.measured_us), ("predicted", kernel.predicted_us))
        if us is not None
    ]
    if kernel.bound:
        parts.append(f"bound by {kernel.bound}")
    return ", ".join(parts) or "unknown"


def _operand_list(operands: Sequence[Operand]) -> str:
    shown = [f"{o.name}: {o.type} ({bytes_text(o.bytes)}{_role(o)})" for o in operands[:12]]
    if len(operands) > 12:
        shown.append(f"and {len(operands) - 12} more")
    return ", ".join(shown) or "nothing"


def _role(operand: Operand) -> str:
    return f", {operand.role}" if operand.role in ("temporary", "constant") else ""


def _tail_lines(report: PlanReport) -> Iterator[str]:
    if report.notes:
        yield ""
        yield "notes"
        yield from (f"  {note}" for note in report.notes)
    yield ""
    if report.certificate is None:
        yield "no certificate: nothing was measured (autofuse tune measures)"
    else:
        yield from certificate_lines(report.certificate)


def certificate_lines(certificate: dict[str, Any]) -> list[str]:
    """A certificate as text; `certificate` as `certificate_data` gives it."""
    optimal = certificate["optimality"] if certificate["policy"] == "measured" else "a fixed partition, schedules tuned"
    lines = [
        f"certificate: {optimal} (policy {certificate['policy']}, seed {certificate['seed']}, "
        f"budget {certificate['budget']}{', operands in memory' * (certificate['timing'] == COLD_POLICY)})",
        f"  searched   {certificate['candidates']} candidates in {certificate['classes']} classes"
        f"{_prunings(certificate)}, {certificate['measured']} measured in {certificate['rounds']} rounds, "
        f"{certificate['schedules_tried']} schedules tried; space {certificate['space_digest']}",
    ]
    if certificate["spent"] is not None:
        lines.append(f"  spent      {certificate['spent']}")
    lines += _time_lines(certificate)
    return lines


def _prunings(certificate: dict[str, Any]) -> str:
    """What the search left out."""
    words = {"refused": "sets refused", "dominated": "dominated", "cut_off": "sets not grown further"}
    known = [f"{certificate[key]} {word}" for key, word in words.items() if certificate[key] is not None]
    return f" ({', '.join(known)})" if known else ""


def _time_lines(certificate: dict[str, Any]) -> Iterator[str]:
    noise = certificate["noise_floor_us"]
    spread = f" (noise floor {microseconds(noise)})" if noise is not None else ""
    e2e, unfused, holdout = (certificate[key] for key in ("e2e_us", "unfused_us", "holdout_us"))
    if e2e is not None:
        again = f", measured again {microseconds(holdout)}" if holdout is not None else ""
        yield f"  whole call {microseconds(e2e)}{again}{spread}"
    if unfused is not None and e2e:
        yield f"  unfused    {microseconds(unfused)}, {unfused / e2e:.2f} times as long"
    function = certificate["function_us"]
    if function is not None and e2e:
        yield f"  function   {microseconds(function)} by itself; the plan is {function / e2e:.3g} times as fast"
    rule, rule_us = certificate["rule"], certificate["rule_us"]
    if rule_us is not None and e2e:
        yield f"  rules      {microseconds(rule_us)}, {rule_us / e2e:.2f} times as long: {rule}"
    total, additivity = certificate["sum_us"], certificate["additivity"]
    if total is not None and additivity is not None:
        yield f"  kernels    {microseconds(total)} in sum; the whole call takes {additivity:.2f} of that"
    floor, headroom, statistical = (certificate[key] for key in ("floor_bound_us", "headroom", "statistical_bound_us"))
    if floor is not None:
        rates = "" if headroom is None else f" at {headroom:g} times the calibrated rates"
        yield f"  bounds     floors {microseconds(floor)}{rates}{_statistical(statistical, certificate)}"


def _statistical(bound_us: float | None, certificate: dict[str, Any]) -> str:
    if bound_us is None:
        return ""
    k, epsilon = certificate["k"], certificate["epsilon"]
    return f", statistical {microseconds(bound_us)} (k = {k:g}, search stops within {epsilon:.0%})"
