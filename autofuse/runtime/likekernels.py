"""Kernels of a plan that are alike are lowered once: those of a model's layers, or of the tensors of an optimiser.

Alike are kernels whose nodes, in the graph's order, do the same with values in the same places. Then lowering differs
in names alone, and the buffers of the first one's program get those of the others. Only kernels count of whose nodes
lowering looks at nothing else: no calls, loops and branches, and nothing that is read or written where data say.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.digest import described
from autofuse.ir.graph import Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import replace
from autofuse.lower.limits import Limits
from autofuse.lower.lowering import lower, plain_scalars
from autofuse.lower.rewrite import renamed_program
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, TileProgram

_ROLES = frozenset(
    (
        *(Role.ELEMENTWISE, Role.REDUCE, Role.ARG_REDUCE, Role.SCAN, Role.DOT),
        *(Role.VIEW, Role.RESHAPE, Role.SLICE, Role.JOIN, Role.IOTA, Role.CONSTANT),
    )
)


class LikeKernels:
    """Lowers the kernels of one graph."""

    def __init__(self, limits: Limits) -> None:
        """`limits`: but for those on scalar values, which follow from the kernel."""
        self.limits = limits
        self._known: dict[Hashable, tuple[TileProgram, Sequence[Value]]] = {}
        """By what kernels do: the program of the first one, and its values."""

    def lowered(self, candidate: KernelCandidate, schedule: Schedule, name: str) -> TileProgram | OpaqueProgram:
        """The kernel lowered. Raises LegalityError for what cannot be one kernel."""
        values: dict[Value, int] = {}
        what = _what(candidate, values)
        key = None if what is None else (what, schedule)
        if key in self._known:
            program, others = self._known[key]
            names = _names(program, others, list(values))
            if names is not None:
                return renamed_program(program, names, name)
        limits = replace(self.limits, scalars=max(self.limits.scalars, plain_scalars(candidate)))
        program = lower(candidate, schedule, name, limits)
        if key is not None and isinstance(program, TileProgram):
            self._known.setdefault(key, (program, list(values)))
        return program


def _what(candidate: KernelCandidate, values: dict[Value, int]) -> Hashable | None:
    """What a kernel does, values by number, which are put into `values`; None where more than that counts."""
    graph = candidate.graph
    nodes: list[tuple[str, tuple[int, ...]]] = []
    for node in candidate.nodes:
        if role_of(node) not in _ROLES:
            return None
        text, reads = described(node)
        for read in reads:
            if read not in values and _is_constant(graph.producers.get(read)):
                return None  # lowering may look at its elements
        nodes.append((text, tuple([values.setdefault(read, len(values)) for read in reads])))
        for made in node.outputs:
            values.setdefault(made, len(values))
    types = tuple([value.type for value in values])
    return tuple(nodes), types, tuple([values[output] for output in candidate.outputs])


def _is_constant(node: Node | None) -> bool:
    return node is not None and role_of(node) is Role.CONSTANT


def _names(program: TileProgram, others: Sequence[Value], own: Sequence[Value]) -> Mapping[str, str] | None:
    """The names of a program's buffers for a kernel with other values; None where they do not follow from these."""
    values = {other.name: value.name for other, value in zip(others, own, strict=True)}
    names: dict[str, str] = {}
    for buffer in program.buffers:
        value = buffer.name
        while value not in values and "." in value:  # `x.packed.scratch`, say
            value = value.rpartition(".")[0]
        if value not in values:
            return None
        names[buffer.name] = values[value] + buffer.name.removeprefix(value)
    return names if len(set(names.values())) == len(names) else None
