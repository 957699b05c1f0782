"""Kernels around what no stage computes, as programs: calls of a library, or code of the target's own."""

from __future__ import annotations

from autofuse.errors import LegalityError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.domain import is_opaque
from autofuse.ir.graph import Graph
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lower.librarykernels import coded_in, holder_of, is_numpys, why_not_coded
from autofuse.lower.limits import Limits
from autofuse.lower.phasedrafts import BufferTable
from autofuse.lower.tile import OpaqueProgram, Space


def opaque_program(candidate: KernelCandidate, name: str, reason: str, limits: Limits) -> OpaqueProgram:
    """The program of a kernel with an opaque node, or with a loop that no stage walks; `reason`: see `OpaqueProgram`.

    Raises LegalityError where the node and what is around it cannot be one kernel.
    """
    table = BufferTable()
    for value in candidate.inputs:
        table.add_value(value, Space.INPUT)
    for value in candidate.outputs:
        table.add_value(value, Space.OUTPUT)
    graph = Graph(name, candidate.inputs, candidate.nodes, candidate.outputs)
    node = coded_in(graph)
    is_coded = node is not None and (role_of(node) is Role.SCATTER or (limits.sorts and not is_numpys(graph, node)))
    computing = [other for other in candidate.nodes if role_of(other).computes]
    if len(computing) > 1:
        opaque = next(filter(is_opaque, computing))
        refusal = why_not_coded(graph)
        if not limits.prologues or (not is_coded and refusal is None):
            refusal = f"{opaque.op} is an opaque call: nothing can be computed inside it"
        if refusal is not None:
            raise LegalityError(refusal)
    if node is not None and role_of(node) is Role.SCATTER and holder_of(graph, node) is None:
        table.add(f"{node.name}.whole", node.output.type, Space.WORKSPACE)
    return OpaqueProgram(name, graph, tuple(table.all), reason, is_coded, limits.workers if is_coded else 1)
