"""Whether a plan hangs together: every check that needs no device, no lowering and no file.

Whether each kernel's fusion is legal is decided again by the lowering when the plan is compiled.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NoReturn

from autofuse.errors import GraphError, PlanError
from autofuse.fusion.candidate import candidate_of
from autofuse.fusion.regionprograms import region_programs
from autofuse.ir import tree
from autofuse.ir.dtypes import I64
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import values_of
from autofuse.ir.parameters import names_of, well_formed
from autofuse.ir.types import TensorType
from autofuse.plan.document import NOT_PROVED, OPTIMAL, Certificate, Launch, PlanDocument, PlannedKernel

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
"""Names of plans and kernels: they become symbols of generated code."""
KIND = re.compile(r"[a-z][a-z0-9_-]*")
DIGEST = re.compile(r"[0-9a-f]{8,128}")
MAX_NAME = 200
MAX_KERNELS = 100_000
MAX_GROUP_PLACES = 1024
MAX_NODES = 1_000_000
MAX_REGIONS = 3
"""Plans of a loop or branch: of what stands before it, and of its two regions."""
MAX_BOUNDS = 100_000
"""Indices that a plan checks."""
MAX_BOUNDS_TEXT = 500
"""Characters of a source line, or of what is indexed there."""
MAX_EXTENT = 1 << 62


def safe_name(text: str) -> str:
    """A name for a plan or kernel from any text, `<lambda>` for instance."""
    name = re.sub(r"[^A-Za-z0-9_.]+", "_", text)[:MAX_NAME].strip("_.")
    return name if NAME.fullmatch(name) else f"plan_{name}".rstrip("_")[:MAX_NAME]


def verify(plan: PlanDocument) -> None:
    """Raise PlanError, with the path of the defect, unless the plan computes its graph's outputs.

    Checked: names; trees, parameters and writebacks against the graph; every kernel's nodes and outputs exist; the
    order runs each kernel once, after everything it reads; the graph's outputs are made; times are finite.
    """
    _check_name("name", plan.name)
    if plan.identity.backend != plan.backend:
        _fail("identity.backend", f"is {plan.identity.backend!r:.80}, the plan's backend is {plan.backend!r:.80}")
    if plan.variant is not None and not DIGEST.fullmatch(plan.variant.origin):
        _fail("variant.origin", f"{plan.variant.origin!r:.80} is no digest")
    if plan.certificate is not None:
        _check_certificate(plan.certificate)
    _check_signature(plan)
    if plan.bounds:
        _check_bounds(plan)
    _check_kernels(plan.graph, plan.kernels, set())
    _check_order(plan.graph, plan.kernels, plan.order)


def _fail(path: str, problem: str) -> NoReturn:
    raise PlanError(f"plan: {path}: {problem}")


def _check_name(path: str, name: str) -> None:
    if len(name) > MAX_NAME or not NAME.fullmatch(name):
        _fail(path, f"{name!r:.80} is no name: letters, digits, '_' and '.', at most {MAX_NAME}, no digit first")


def _check_certificate(certificate: Certificate) -> None:
    if certificate.optimality not in (OPTIMAL, NOT_PROVED):
        _fail("certificate.optimality", f"must be {OPTIMAL!r} or {NOT_PROVED!r}, got {certificate.optimality!r:.80}")
    if certificate.measured > certificate.classes:
        _fail("certificate.measured", f"{certificate.measured} of {certificate.classes} classes cannot be measured")


def _check_signature(plan: PlanDocument) -> None:
    inputs, outputs = len(plan.graph.inputs), len(plan.graph.outputs)
    arguments = len(plan.in_tree.children) if isinstance(plan.in_tree, tree.Branch) else -1
    if not well_formed(plan.parameters):
        _fail("parameters", "'/' and '*' stand as in a signature of Python, once each, with something to say")
    if arguments != len(names_of(plan.parameters)):
        _fail("in_tree", f"must be the tuple of the {len(names_of(plan.parameters))} parameters' values")
    if tree.count_leaves(plan.in_tree) != inputs:
        _fail("in_tree", f"has {tree.count_leaves(plan.in_tree)} arrays, the graph has {inputs} inputs")
    made = tree.count_leaves(plan.out_tree) + bool(plan.bounds) + len(plan.writebacks)
    if made != outputs:
        _fail("out_tree", f"with the writebacks has {made} arrays, the graph has {outputs} outputs")
    if list(plan.contiguous) != sorted({number for number in plan.contiguous if 0 <= number < inputs}):
        _fail("contiguous", f"must be numbers of the {inputs} inputs, ascending")
    _check_complex(plan)
    if len(set(plan.writebacks)) != len(plan.writebacks):
        _fail("writebacks", "an input is written back twice")
    for position, index in enumerate(plan.writebacks):
        output = outputs - len(plan.writebacks) + position
        if not 0 <= index < inputs:
            _fail(f"writebacks[{position}]", f"there is no input {index}; the graph has {inputs}")
        if plan.input_types[index] != plan.output_types[output]:
            _fail(f"writebacks[{position}]", f"output {output} has another type than input {index}")


def _check_complex(plan: PlanDocument) -> None:
    """The graph is in real numbers, and what callers see as complex is parts of such."""
    for path, places in (("complex_inputs", plan.complex_inputs), ("complex_outputs", plan.complex_outputs)):
        if list(places) != sorted(set(places)):
            _fail(path, "must be numbers, ascending")
    try:
        _ = plan.input_types, plan.output_types
    except GraphError as bad:
        _fail("complex_inputs", str(bad))
    if _has_complex(plan.graph):
        _fail("graph", "holds complex numbers; a plan's graph has their real and imaginary parts")


def _has_complex(graph: Graph) -> bool:
    own = any(value.type.dtype.is_complex for value in graph.values())
    return own or any(_has_complex(region) for node in graph.nodes for region in node.regions)


def _check_bounds(plan: PlanDocument) -> None:
    if len(plan.bounds) > MAX_BOUNDS:
        _fail("bounds", f"holds {len(plan.bounds)} checks; at most {MAX_BOUNDS}")
    found = plan.graph.outputs[tree.count_leaves(plan.out_tree)].type
    wanted = TensorType((2 * len(plan.bounds),), I64)
    if found != wanted:
        _fail("bounds", f"{len(plan.bounds)} checks need an output {wanted} behind the results, the graph has {found}")
    for position, check in enumerate(plan.bounds):
        if max(len(check.where), len(check.what)) > MAX_BOUNDS_TEXT:
            _fail(f"bounds[{position}]", f"a text is longer than {MAX_BOUNDS_TEXT} characters")
        if not -MAX_EXTENT <= check.low <= 0 <= check.high <= MAX_EXTENT:
            _fail(f"bounds[{position}]", f"allows {check.low} to {check.high}, which is no range of indices")


def _check_kernels(graph: Graph, kernels: Sequence[PlannedKernel], seen: set[str], where: str = "") -> None:
    """`seen`: names of other kernels. `where`: the path of the program that these are of, with a dot behind it."""
    for number, kernel in enumerate(kernels):
        path = f"{where}kernels[{number}]"
        _check_name(f"{path}.name", kernel.name)
        if kernel.name in seen:
            _fail(f"{path}.name", f"{kernel.name!r:.80} stands twice")
        seen.add(kernel.name)
        if not KIND.fullmatch(kernel.kind):
            _fail(f"{path}.kind", f"{kernel.kind!r:.80} is no kind of fusion")
        if not DIGEST.fullmatch(kernel.digest):
            _fail(f"{path}.digest", f"{kernel.digest!r:.80} is no digest")
        for label, time in (("predicted_us", kernel.predicted_us), ("measured_us", kernel.measured_us)):
            if time is not None and not (math.isfinite(time) and time >= 0):
                _fail(f"{path}.{label}", f"{time} is no time")
        _check_members(graph, kernel, path)
        if kernel.regions:
            _check_regions(graph, kernel, seen, path)


def _check_regions(graph: Graph, kernel: PlannedKernel, seen: set[str], path: str) -> None:
    """Each region's plan computes its program. Programs are inside one another as the graph's regions are."""
    programs = region_programs(candidate_of(graph, kernel.nodes, kernel.outputs))
    if len(programs) != len(kernel.regions):
        what = f"{len(programs)} programs (what stands before it, and its regions)" if programs else "no loop or branch"
        _fail(f"{path}.regions", f"the kernel has {what}, got {len(kernel.regions)} plans")
    for number, (program, region) in enumerate(zip(programs, kernel.regions, strict=True)):
        where = f"{path}.regions[{number}]."
        _check_kernels(program.graph, region.kernels, seen, where)
        _check_order(program.graph, region.kernels, region.order, where)


def _check_members(graph: Graph, kernel: PlannedKernel, path: str) -> None:
    if not kernel.nodes or not kernel.outputs:
        _fail(path, "a kernel has at least one node and one output")
    for label, names in (("nodes", kernel.nodes), ("outputs", kernel.outputs)):
        if len(set(names)) != len(names):
            _fail(f"{path}.{label}", "a name stands twice")
    made: set[str] = set()
    for position, name in enumerate(kernel.nodes):
        node = graph.node_by_name.get(name)
        if node is None or node.name != name:
            _fail(f"{path}.nodes[{position}]", f"the graph has no node {name!r:.80}")
        made.update(value.name for value in node.outputs)
    for position, name in enumerate(kernel.outputs):
        if name not in made:
            _fail(f"{path}.outputs[{position}]", f"no node of the kernel makes {name!r:.80}")


def _check_order(graph: Graph, kernels: Sequence[PlannedKernel], order: Sequence[Launch], where: str = "") -> None:
    runs = [launch.kernel for launch in order]
    if sorted(runs) != list(range(len(kernels))):
        _fail(f"{where}order", f"must hold each of the {len(kernels)} kernels once")
    available = {*graph.inputs, *values_of(graph, Role.CONSTANT)}
    inlined = set(values_of(graph, Role.IOTA))  # each reader computes its elements itself
    for position, launch in enumerate(order):
        path = f"{where}order[{position}]"
        if not 0 <= launch.group_place < MAX_GROUP_PLACES:
            _fail(path, f"place {launch.group_place} of its group is not in 0..{MAX_GROUP_PLACES - 1}")
        kernel = kernels[launch.kernel]
        missing = _kernel_inputs(graph, kernel) - available - inlined
        if missing:
            names = ", ".join(sorted(value.name for value in missing)[:5])
            _fail(path, f"kernel {kernel.name!r:.80} runs before its inputs are made: {names}")
        available.update(graph.value_by_name[name] for name in kernel.outputs)
    unmade = [value.name for value in graph.outputs if value not in available]
    if unmade:
        _fail(f"{where}kernels", f"no kernel writes the graph's output {unmade[0]!r:.80}")


def _kernel_inputs(graph: Graph, kernel: PlannedKernel) -> set[Value]:
    nodes: list[Node] = [graph.node_by_name[name] for name in kernel.nodes]
    made = {value for node in nodes for value in node.outputs}
    return {value for node in nodes for value in graph.reads(node)} - made
