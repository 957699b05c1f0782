"""Digest classes: kernels that do the same work. They are lowered, priced, measured and tuned once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.digest import subgraph_digest
from autofuse.ir.graph import Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of

_LINE_BYTES = 64


def class_digest(kernel: KernelCandidate, pinned: Mapping[str, Any] | None = None) -> str:
    """Equal for kernels that do the same work at addresses alike.

    Names do not count, nor where slices of what a kernel reads begin, but for how that is aligned: the steps of a loop
    over time, each with a row of its own, are one class. `pinned`: the schedule that a rule of the user gives a kernel,
    which then is of another class than its equals, whose times are those of other schedules.
    """
    return digests(kernel, pinned)[1]


def digests(kernel: KernelCandidate, pinned: Mapping[str, Any] | None = None) -> tuple[str, str]:
    """The structural digest, where slices begin included, and that of the class. `pinned`: as for `class_digest`."""
    own = subgraph_digest(kernel.graph, kernel.nodes, kernel.outputs)
    moved = moved_slices(kernel)
    work = subgraph_digest(kernel.graph, kernel.nodes, kernel.outputs, moved) if moved else own
    if pinned is None:
        return own, work
    return own, hashlib.sha256(f"{work} {json.dumps(dict(pinned), sort_keys=True)}".encode()).hexdigest()


def moved_slices(kernel: KernelCandidate) -> dict[Node, str]:
    """Texts for slices of what a kernel reads, as if the first slice of each value began at the value's beginning.

    Values that the kernel also reads in another way are left out.
    """
    if not any(role_of(node) is Role.SLICE for node in kernel.nodes):
        return {}
    made = {value for node in kernel.nodes for value in node.outputs}
    readers: dict[Value, list[Node]] = {}
    for node in kernel.nodes:
        for value in kernel.graph.reads(node):
            if value not in made:
                readers.setdefault(value, []).append(node)
    texts: dict[Node, str] = {}
    for nodes in readers.values():
        if all(role_of(node) is Role.SLICE for node in nodes):
            first = [min(starts) for starts in zip(*(node.attrs["start_indices"] for node in nodes), strict=True)]
            texts.update((node, _moved_text(node, first)) for node in nodes)
    return texts


def _moved_text(node: Node, first: Sequence[int]) -> str:
    """A slice, as far from the beginning as it is from `first`, and how far that is from the last line of memory."""
    starts = [start - begin for start, begin in zip(node.attrs["start_indices"], first, strict=True)]
    source = node.inputs[0].type
    before = 0
    for begin, size in zip(first, source.shape, strict=True):
        before = before * size + begin
    past = before * source.dtype.itemsize % _LINE_BYTES
    return f"slice[from {starts} by {node.attrs['strides']}, {past} past a line]:{node.output.type}"
