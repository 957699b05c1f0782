"""Outputs that no kernel writes: an argument or a constant that a graph returns as it is, or a value returned again.

Clean-up leaves none, but a plan file may hold them. Each gets memory of its own, by a copy.
"""

from __future__ import annotations

from collections.abc import Callable

from autofuse.ir.graph import Value
from autofuse.plan.document import PlanDocument
from autofuse.targets.cpu.native.nativeprogram import BufferRef, KernelCall, KernelCode, PhaseCode


def first_outputs(document: PlanDocument) -> dict[Value, int]:
    """Of each value that a kernel writes and the graph returns, the number of the output that it is written into."""
    values = document.graph.value_by_name
    written = {values[name] for kernel in document.kernels for name in kernel.outputs}
    found: dict[Value, int] = {}
    for number, value in enumerate(document.graph.outputs):
        if value in written:
            found.setdefault(value, number)
    return found


class Copies:
    """Calls that copy, and their code: one for each size."""

    def __init__(self) -> None:
        self._codes: dict[int, KernelCode] = {}

    @property
    def codes(self) -> tuple[KernelCode, ...]:
        return tuple(self._codes.values())

    def call(self, source: BufferRef, target: BufferRef, nbytes: int) -> KernelCall:
        code = self._codes.setdefault(nbytes, _copy_code(nbytes))
        return KernelCall(code.name, (source, target))


def output_copies(
    document: PlanDocument, place: Callable[[Value], BufferRef], copies: Copies
) -> tuple[list[KernelCall], list[KernelCall]]:
    """The calls before all kernels (arguments may be overwritten), and those after them.

    `place`: where a value lies.
    """
    before: list[KernelCall] = []
    after: list[KernelCall] = []
    firsts = first_outputs(document)
    for number, value in enumerate(document.graph.outputs):
        if firsts.get(value) != number:
            call = copies.call(place(value), BufferRef("output", number), value.type.nbytes)
            (after if value in firsts else before).append(call)
    return before, after


def _copy_code(nbytes: int) -> KernelCode:
    name = f"af_copy_{nbytes}"
    text = f"""
define void @{name}(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) {{
  %source = load ptr, ptr %buffers
  %slot = getelementptr ptr, ptr %buffers, i64 1
  %target = load ptr, ptr %slot
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 {nbytes}, i1 false)
  ret void
}}
"""
    declare = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
    return KernelCode(name, text, (declare,), ((PhaseCode(name, blocks=1),),))
