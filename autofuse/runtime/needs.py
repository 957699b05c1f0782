"""Whether a plan's memory is there, asked before any of it is allocated."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.device.memory import available_bytes
from autofuse.errors import PlanError
from autofuse.ir.graph import Graph, Value
from autofuse.lower.tile import OpaqueProgram
from autofuse.runtime.kernels import LoweredKernel
from autofuse.runtime.memory import MemoryPlan


def require_memory(
    name: str, memory: MemoryPlan, kernels: Sequence[LoweredKernel], available: int | None = None
) -> None:
    """Raise PlanError if a call takes more memory beside its arguments than there is.

    `available`: bytes; by default what this process may still have.
    """
    calls = max(
        (interpreted_bytes(k.program.graph) for k in kernels if isinstance(k.program, OpaqueProgram)), default=0
    )
    needed = memory.result_bytes + memory.arena_bytes + calls
    there = available_bytes() if available is None else available
    if needed > there:
        raise PlanError(
            f"plan {name}: a call needs {needed} bytes beside its arguments ({memory.result_bytes} for results, "
            f"{memory.arena_bytes} for temporaries, {calls} inside calls); {there} are available: run it where "
            "there is more memory"
        )


def interpreted_bytes(graph: Graph) -> int:
    """The most bytes that values of a graph take at one time where it is evaluated node by node.

    Its inputs do not count: they are there.
    """
    readers: dict[Value, int] = {value: len(graph.nodes) for value in graph.outputs}
    for position, node in enumerate(graph.nodes):
        for value in graph.reads(node):
            readers[value] = max(readers.get(value, -1), position)
    ending: dict[int, list[Value]] = {}
    alive = most = 0
    for position, node in enumerate(graph.nodes):
        made = [value for value in node.outputs if value in readers and node.op != "constant"]
        alive += sum(value.type.nbytes for value in made)
        for value in made:
            ending.setdefault(readers[value], []).append(value)
        most = max(most, alive + max(map(interpreted_bytes, node.regions), default=0))
        alive -= sum(value.type.nbytes for value in ending.pop(position, ()))
    return most
