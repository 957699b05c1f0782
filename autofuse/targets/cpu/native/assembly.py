"""What LLVM's assembly text tells of functions: spills by loop depth, frames, vector registers.

Its comments say which accesses are spills, of how many bytes, and in how many loops each basic block lies. Both are
what LLVM's own register allocator and loop analysis found.
"""

from __future__ import annotations

import json
import re

from autofuse.lazydataclass import dataclass

READER_VERSION = 1
"""Raised when the same text is understood in another way: what was kept of it is read anew."""

_FUNCTION = re.compile(r"\s*\.type\s+(\S+?),@function")
_BLOCK = re.compile(r"\.LBB\d+_\d+:|\s*# %bb\.\d+:")
_DEPTH = re.compile(r"#.*(?:in Loop: Header=\S+|Loop Header:) Depth=(\d+)")
_SPILL = re.compile(r"# (\d+)-byte (?:Folded )?(?:Spill|Reload)")
_FRAME = re.compile(r"\ssubq\s+\$(\d+), %rsp")
_LEAST_VECTOR = 16
"""Bytes; what is smaller is a scalar or an address."""
_VECTOR = re.compile(r"%[xyz]mm(\d+)")


@dataclass(frozen=True, slots=True)
class FunctionFacts:
    """What is known of the machine code of one function."""

    vector_registers: int
    """Different ones that it names."""
    spill_bytes: int
    """Stored and loaded because registers ran out, each place once."""
    vector_spills: tuple[int, ...]
    """Of these, bytes of vectors by the loops around the place."""
    frame_bytes: int
    """Memory that it takes on the stack, beside what it pushes."""


def functions_in(text: str) -> dict[str, FunctionFacts]:
    """What assembly of x86-64, with LLVM's comments, tells of each function that it defines, by name."""
    found: dict[str, _Reading] = {}
    reading = _Reading()
    for line in text.splitlines():
        begins = _FUNCTION.match(line)
        if begins is not None:
            reading = found[begins.group(1).strip('"')] = _Reading()
        else:
            reading.read(line)
    return {name: reading.facts() for name, reading in found.items()}


class _Reading:
    """A function as far as it was read."""

    def __init__(self) -> None:
        self._depth = 0
        self._spill_bytes = 0
        self._spills: dict[int, int] = {}
        self._vectors: set[str] = set()
        self._frame = 0

    def read(self, line: str) -> None:
        if _BLOCK.match(line):
            self._depth = 0
        depth = _DEPTH.search(line)
        if depth is not None:
            self._depth = int(depth.group(1))
        spill = _SPILL.search(line)
        if spill is not None:
            nbytes = int(spill.group(1))
            self._spill_bytes += nbytes
            if nbytes >= _LEAST_VECTOR:
                self._spills[self._depth] = self._spills.get(self._depth, 0) + nbytes
        frame = _FRAME.match(line)
        if frame is not None:
            self._frame = max(self._frame, int(frame.group(1)))
        self._vectors.update(_VECTOR.findall(line))

    def facts(self) -> FunctionFacts:
        depths = max(self._spills, default=-1) + 1
        by_depth = tuple(self._spills.get(depth, 0) for depth in range(depths))
        return FunctionFacts(len(self._vectors), self._spill_bytes, by_depth, self._frame)


def to_bytes(facts: dict[str, FunctionFacts]) -> bytes:
    """To be kept beside an object."""
    return json.dumps(
        {name: [f.vector_registers, f.spill_bytes, f.vector_spills, f.frame_bytes] for name, f in facts.items()}
    ).encode()


def from_bytes(data: bytes) -> dict[str, FunctionFacts]:
    """The reverse."""
    return {
        name: FunctionFacts(registers, spill_bytes, tuple(spills), frame)
        for name, (registers, spill_bytes, spills, frame) in json.loads(data).items()
    }
