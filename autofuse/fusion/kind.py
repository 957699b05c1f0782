"""What kind of fusion a kernel is, in the words of `explain` and of the plan."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.fusion.candidate import KernelCandidate, is_view
from autofuse.fusion.domain import is_contraction, is_opaque
from autofuse.ir.graph import Node
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of


def kind_of(kernel: KernelCandidate) -> str:
    """`library`, `product`, `prologue`, `epilogue`, `stitch`, `reduction`, `multi-output` or `loop`."""
    real = [node for node in kernel.nodes if role_of(node).computes]
    if any(is_opaque(node) for node in real):
        return "library"
    dots = [node for node in real if is_contraction(node)]
    reductions = [node for node in real if _reduces(node)]
    if len(dots) == 1 and len(real) == 1:
        return "product"
    if dots and not reductions and len(dots) == 1:
        return "epilogue" if _follows(kernel, dots[0]) else "prologue"
    if dots or _depth(kernel) > 1 or any(_spreads(kernel, node) for node in reductions):
        return "stitch"
    if reductions:
        return "reduction"
    return "multi-output" if len(kernel.outputs) > 1 else "loop"


def title_of(kernel: KernelCandidate) -> str:
    """A short name made of the ops that matter most, e.g. `dot_general_tanh`."""
    real = [n for n in kernel.nodes if role_of(n).computes]
    if not real:
        return kernel.nodes[-1].op
    weighty = [n for n in real if is_contraction(n) or _reduces(n) or is_opaque(n)]
    last = real[-1]
    names = list(dict.fromkeys(_short(n) for n in (*weighty[:2], last)))
    return "_".join(names)


def _short(node: Node) -> str:
    match role_of(node):
        case Role.REDUCE:
            return f"{node.op}_{node.attrs['combiner']}"
        case Role.DOT:
            return "dot"
        case Role.CONVOLUTION:
            return "conv"
        case _:
            return node.op


def _reduces(node: Node) -> bool:
    role = role_of(node)
    return role.is_reduction or role is Role.SCAN


def _follows(kernel: KernelCandidate, node: Node) -> bool:
    """Whether anything but a view is computed from `node`'s result."""
    return any(not is_view(other) for other in _below(kernel, node))


def _spreads(kernel: KernelCandidate, node: Node) -> bool:
    """Whether something larger is computed from a reduction's result, as a softmax's quotient is: a second pass."""
    return any(not is_view(other) and _size(other) > node.output.type.size for other in _below(kernel, node))


def _size(node: Node) -> int:
    """Elements of the largest result."""
    return max(value.type.size for value in node.outputs)


def _below(kernel: KernelCandidate, node: Node) -> Iterator[Node]:
    """The nodes of a kernel that depend on `node`."""
    tainted = set(node.outputs)
    for other in kernel.nodes:
        if tainted.intersection(other.inputs):
            yield other
            tainted |= set(other.outputs)


def _depth(kernel: KernelCandidate) -> int:
    """Most reductions on one path."""
    depth: dict[object, int] = {}
    for node in kernel.nodes:
        level = max((depth.get(value, 0) for value in node.inputs), default=0)
        level += 1 if _reduces(node) or is_contraction(node) else 0
        for value in node.outputs:
            depth[value] = level
    return max((depth[v] for v in kernel.outputs), default=0)
