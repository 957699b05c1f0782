"""What machine code says of itself: loads that a thread has under way, instructions for its bytes, matrix units.

A cubin is an ELF file with a section of instructions for each function. An instruction takes 16 bytes. Its low 12 bits
say what it is and, of an access to memory, bits 73-75 how wide. A load names one of six barriers (bits 110-112) that it
clears when its bytes arrive, and an instruction the barriers that it waits for (bits 116-121): so what is under way at
each instruction can be read, without running anything. The layout is that of compute capability 7.0 to 9.0, as
`nvdisasm` prints it and Jia et al. 2018 ("Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", section
2) describe it; tests compare it with kernels whose accesses are known.

What is read is static. Branches are walked as they stand: of two ways around each other both count, unless one ends in
a jump.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from autofuse.lazydataclass import dataclass

_BYTES = 16
_LOADS = {0x980, 0x981}
_STORES = {0x985, 0x986}
_COPY = 0xFAE
"""From global to shared memory, with no register between."""
_BRANCH, _EXIT, _NOTHING = 0x947, 0x94D, 0x918
_MATRIX = {0x23C, 0x237, 0x23F}
"""Multiply-adds of 16-bit floats, of small integers, of doubles."""
_ALWAYS, _NO_BARRIER = 7, 7
_WIDTHS = (1, 1, 2, 2, 4, 8, 16, 16)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One of a function, by its place in it."""

    low: int
    high: int
    arch: int

    @property
    def opcode(self) -> int:
        return self.low & 0xFFF

    @property
    def is_certain(self) -> bool:
        """Whether no condition keeps a thread from it."""
        return self.low >> 12 & 0xF == _ALWAYS

    @property
    def width(self) -> int:
        """Bytes of a thread, of an access to memory."""
        return _WIDTHS[self.high >> 9 & 7]

    @property
    def barrier(self) -> int:
        return self.high >> 46 & 7

    @property
    def awaited(self) -> int:
        """A bit for each barrier."""
        return self.high >> 52 & 0x3F

    @property
    def distance(self) -> int:
        """Of a branch, in instructions from the next one."""
        offset = (self.low >> 34 | self.high << 30) & ((1 << 48) - 1)
        offset -= (offset & 1 << 47) << 1
        if self.arch >= 90:  # eight more bits, elsewhere
            offset = offset << 8 | self.low >> 16 & 0xFF
        return 4 * offset // _BYTES


@dataclass(frozen=True, slots=True)
class CodeFacts:
    """Of one function."""

    flight_bytes: int
    """That loads of one thread have under way at most, in registers."""
    instructions: int
    """Of the part that most bytes of global memory go through: a loop, or all outside of loops."""
    moved_bytes: int
    """By one thread, by the accesses of that part."""
    matrix: int
    """Instructions of matrix units, in all of it."""


def facts_of(cubin: bytes) -> dict[str, CodeFacts]:
    """By the names of functions."""
    return {name: _facts(code) for name, code in functions(cubin).items()}


def functions(cubin: bytes) -> dict[str, list[Instruction]]:
    """The instructions of each, padding at the end left out."""
    start = struct.unpack_from("<Q", cubin, 40)[0]
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + number * size) for number in range(count)]
    arch = _arch(struct.unpack_from("<I", cubin, 48)[0])
    found: dict[str, list[Instruction]] = {}
    for name_at, _, _, _, offset, length in sections:
        name_start = sections[names][4] + name_at
        name = cubin[name_start : cubin.index(b"\0", name_start)].decode()
        if name.startswith(".text."):
            words = struct.iter_unpack("<QQ", cubin[offset : offset + length])
            code = [Instruction(low, high, arch) for low, high in words]
            while code and (code[-1].opcode == _NOTHING or (code[-1].opcode == _BRANCH and code[-1].distance == -1)):
                code.pop()
            found[name.removeprefix(".text.")] = code
    return found


def _arch(flags: int) -> int:
    """Of ELF flags: older compilers write it into the lowest byte, later ones into the next."""
    return max(flags & 0xFF, flags >> 8 & 0xFF)


def _facts(code: Sequence[Instruction]) -> CodeFacts:
    busiest = max(_parts(code), key=_moved)
    return CodeFacts(_under_way(code), len(busiest), _moved(busiest), sum(one.opcode in _MATRIX for one in code))


def _under_way(code: Sequence[Instruction]) -> int:
    """Bytes of loads that a thread has under way at most."""
    loads, most = [0] * 8, 0
    for one in code:
        for barrier in range(6):
            if one.awaited >> barrier & 1:
                loads[barrier] = 0
        if one.opcode in _LOADS and one.barrier != _NO_BARRIER:
            loads[one.barrier] += one.width
        elif one.opcode in (_BRANCH, _EXIT) and one.is_certain:
            loads = [0] * 8
        most = max(most, sum(loads))
    return most


def _parts(code: Sequence[Instruction]) -> list[list[Instruction]]:
    """Innermost loops that move something, and what lies outside of all of them."""
    loops = [
        (number + 1 + one.distance, number + 1)
        for number, one in enumerate(code)
        if one.opcode == _BRANCH and one.distance < -1
    ]
    moving = [loop for loop in loops if _moved(code[slice(*loop)])]
    inner = [
        (first, last)
        for first, last in moving
        if not any((a, b) != (first, last) and first <= a and b <= last for a, b in moving)
    ]
    inside = {number for first, last in inner for number in range(first, last)}
    outside = [one for number, one in enumerate(code) if number not in inside]
    return [outside, *(list(code[slice(*loop)]) for loop in inner)]


def _moved(code: Sequence[Instruction]) -> int:
    return sum(one.width for one in code if one.opcode in _LOADS or one.opcode in _STORES or one.opcode == _COPY)
