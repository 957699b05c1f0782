"""Which values a kernel's time may depend on, and digests of them: records hold for those values alone.

Within a run, kernels that do the same work are told apart by those of these values that steer them: indices, and what
calls and loops read.

Most kernels take as long whatever they read: masks are selected by, not branched on. Exceptions are told from what the
op table says of an op: elements read at run time that say where to read, calls and loops, whose way depends on anything
they get, and elementwise ops with a branch for some operands. Values that any arithmetic may be slow with are found
where a kernel is measured (`unusual`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir import dtypes
from autofuse.ir.digest import described
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import ElementwiseOp, IndexOp, OpDef, Work
from autofuse.ir.optable import lookup

_ORDINARY = 2.0**16
"""From here on, sines and their kin take another way."""
_BLOCK = 1 << 15
"""Elements that are looked at together: they stay in a cache."""


class InputValues:
    """Digests of the values of one graph on given arguments, made of how each is computed: nothing is computed."""

    def __init__(self, graph: Graph, inputs: Sequence[NDArray[Any]]) -> None:
        self._graph = graph
        self._arrays = dict(zip(graph.inputs, inputs, strict=True))
        self._known: dict[Value, str] = {}

    def steer(self) -> bool:
        """Whether values steer any kernel of the graph."""
        return any(steering_reads(self._graph, node) for node in self._graph.nodes)

    def of_arguments(self) -> str:
        """Digest of all arguments."""
        return self._joined(self._graph.inputs)

    def of_all(self, kernel: KernelCandidate) -> str:
        """Digest of everything that a kernel reads."""
        return self._joined(kernel.inputs)

    def of_deciding(self, kernel: KernelCandidate) -> str:
        """Digest of what a kernel's time may depend on, of the values that it reads; empty if it depends on none."""
        return self._of_followed(kernel, deciding_reads)

    def of_steering(self, kernel: KernelCandidate) -> str:
        """Digest of what says where a kernel reads, and what its calls and loops do; empty if nothing that it reads."""
        return self._of_followed(kernel, steering_reads)

    def _of_followed(self, kernel: KernelCandidate, reads: Callable[[Graph, Node], tuple[Value, ...]]) -> str:
        """Digest of what a kernel reads and computes such reads from; empty for nothing."""
        made = {value: node for node in kernel.nodes for value in node.outputs}
        waiting = [value for node in kernel.nodes for value in reads(self._graph, node)]
        seen: set[Value] = set()
        while waiting:
            value = waiting.pop()
            if value not in seen:
                seen.add(value)
                waiting += self._graph.reads(made[value]) if value in made else ()
        decide = [value for value in kernel.inputs if value in seen]
        return self._joined(decide) if decide else ""

    def _joined(self, values: Iterable[Value]) -> str:
        return _digest(*(self._of(value) for value in values))

    def _of(self, wanted: Value) -> str:
        stack = [wanted]
        while stack:
            value = stack[-1]
            node = self._graph.producers.get(value)
            if value in self._known:
                stack.pop()
            elif node is None:
                self._known[value] = _of_array(self._arrays[value])
            else:
                text, reads = described(node)
                waiting = [read for read in reads if read not in self._known]
                stack += waiting
                if not waiting:
                    made = _digest(text, *(self._known[read] for read in reads))
                    self._known.update((v, f"{made} {number}") for number, v in enumerate(node.outputs))
        return self._known[wanted]


def deciding_reads(graph: Graph, node: Node) -> tuple[Value, ...]:
    """Of what a node reads, the values that its time may depend on."""
    match lookup(node.op):
        case ElementwiseOp(work=Work(uneven=True)):
            return node.inputs
        case _:
            return steering_reads(graph, node)


def steering_reads(graph: Graph, node: Node) -> tuple[Value, ...]:
    """Of what a node reads, the values that say where it reads others, and all that a call or a loop reads."""
    match lookup(node.op):
        case IndexOp(data=data):
            return node.inputs[data:]
        case OpDef(role=role) if role.is_opaque:
            return graph.reads(node)
        case _:
            return ()


def is_unusual(array: NDArray[Any]) -> bool:
    """Whether arithmetic may take another time with these elements: NaN, infinities, subnormal or large numbers."""
    if not dtypes.from_numpy(array.dtype).is_float:
        return False
    bits = np.dtype(f"u{array.itemsize}")
    smallest = ml_dtypes.finfo(array.dtype).smallest_normal
    with np.errstate(over="ignore"):  # of 16 bits: infinity
        least, most = (int(np.array(number, array.dtype).view(bits)) for number in (smallest, _ORDINARY))
    sign = bits.type((1 << (8 * array.itemsize - 1)) - 1)
    flat = np.ascontiguousarray(array).reshape(-1).view(bits)
    for begin in range(0, flat.size, _BLOCK):
        size = flat[begin : begin + _BLOCK] & sign
        if np.any((size - bits.type(least) >= bits.type(most - least)) & (size != 0)):
            return True
    return False


def _of_array(array: NDArray[Any]) -> str:
    found = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
    found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
