"""Whether a plan's memory is there, asked before any of it is allocated."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.errors import NotEnoughMemoryError
from autofuse.host.available import available_bytes
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.interpreter import live_nodes
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import lookup, role_of
from autofuse.lower.tile import OpaqueProgram
from autofuse.runtime.memory import MemoryPlan
from autofuse.runtime.planlowering import LoweredKernel, programs_of


def require_memory(name: str, memory: MemoryPlan, kernels: Sequence[LoweredKernel]) -> None:
    """Raise NotEnoughMemoryError if a call takes more memory beside its arguments than this process may still have."""
    called = (program for program in programs_of(kernels) if isinstance(program, OpaqueProgram))
    calls = max((interpreted_bytes(program.graph) for program in called), default=0)
    needed = memory.result_bytes + memory.arena_bytes + calls
    there = available_bytes()
    if needed > there:
        raise NotEnoughMemoryError(
            f"plan {name}: a call needs {needed} bytes beside its arguments ({memory.result_bytes} for results, "
            f"{memory.arena_bytes} for temporaries, {calls} inside calls); {there} are available: run it where "
            "there is more memory"
        )


def interpreted_bytes(graph: Graph) -> int:
    """The most bytes that a graph takes at one time where it is evaluated node by node, as the interpreter does.

    Its inputs do not count: they are there.
    """
    needed, last_use = live_nodes(graph)
    held: set[Value] = set()
    alive = most = 0
    for position, node in needed:
        if role_of(node) is not Role.CONSTANT:
            held.update(node.outputs)
            alive += sum(value.type.nbytes for value in node.outputs)
        most = max(most, alive + _scratch_bytes(node))
        alive -= sum(value.type.nbytes for value in held.intersection(last_use[position]))
    return most


def _scratch_bytes(node: Node) -> int:
    """What the evaluation of a node takes for a while."""
    rule = lookup(node.op).scratch
    own = 0 if rule is None else rule([v.type for v in node.inputs], [v.type for v in node.outputs], node.attrs)
    return max(own, *map(interpreted_bytes, node.regions), 0)
