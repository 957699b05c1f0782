"""Optimised HLO text: which kernels there are, and which nodes of the program each computes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
_OPCODE = re.compile(r"(?:^|[\s)}\]])([a-z][a-z\-]*)\(")
_CALLED = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")
_NODE = re.compile(r'op_name="[^"]*?af_(\d+)[^"]*"')
_NO_KERNELS = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all")
_MOVING = ("bitcast", "broadcast", "copy", "reshape", "transpose")
"""What prepares the operands of another op, and carries that op's scope: no sign that the op itself is there."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a computation."""

    opcode: str
    called: str | None
    node: int | None
    """Number of the node it came from, where its metadata say so."""


def kernels(text: str) -> list[tuple[str, frozenset[int]]]:
    """(opcode, numbers of the nodes) of every kernel of a module, in the order of its text."""
    computations, entry = _parse(text)
    return list(_kernels(computations, entry))


def _kernels(computations: dict[str, list[Instruction]], name: str) -> Iterator[tuple[str, frozenset[int]]]:
    for instruction in computations[name]:
        if instruction.opcode in _NO_KERNELS:
            continue
        if instruction.opcode == "call" and instruction.called:
            yield from _kernels(computations, instruction.called)
        else:
            yield instruction.opcode, frozenset(_nodes(computations, instruction))


def _nodes(computations: dict[str, list[Instruction]], instruction: Instruction) -> Iterator[int]:
    if instruction.opcode == "fusion" and instruction.called:
        for inner in computations[instruction.called]:
            if inner.opcode != "parameter":
                yield from _nodes(computations, inner)
    elif instruction.node is not None and instruction.opcode not in _MOVING:
        yield instruction.node


def _parse(text: str) -> tuple[dict[str, list[Instruction]], str]:
    found: dict[str, list[Instruction]] = {}
    entry = current = ""
    for line in text.splitlines():
        head = _COMPUTATION.match(line)
        if head:
            current = head.group(2)
            found[current] = []
            entry = current if head.group(1) else entry
            continue
        body = _INSTRUCTION.match(line)
        if body and current:
            found[current].append(_instruction(body.group(2)))
    return found, entry


def _instruction(text: str) -> Instruction:
    opcode, called, node = _OPCODE.search(text), _CALLED.search(text), _NODE.search(text)
    return Instruction(
        opcode.group(1) if opcode else "", called.group(1) if called else None, int(node.group(1)) if node else None
    )
