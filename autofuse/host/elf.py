"""Reads 64-bit little-endian ELF objects: sections, symbols, and what a linker must write into them."""

from __future__ import annotations

import struct

from autofuse.lazydataclass import dataclass

X86_64 = 62
"""The number of that architecture."""
NO_BITS = 8
"""Kind of sections that are zero and take no place in the file."""
WRITEABLE, ALLOCATED = 1, 2
"""Flags of sections."""
UNDEFINED = 0
"""The section of symbols that other objects define."""
_SYMBOLS, _RELOCATIONS = 2, 4
_FUNCTION, _GLOBAL = 2, 1
_SECTION_TABLE = struct.Struct("<Q")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")


@dataclass(frozen=True, slots=True)
class Section:
    """A part of an object."""

    kind: int
    flags: int
    contents: bytes
    """Empty for one of zeros."""
    size: int
    link: int
    """Of a symbol table: the section of its names."""
    target: int
    """Of relocations: the section that they are for."""
    alignment: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name for a place in an object."""

    name: str
    """Empty for those of sections."""
    is_global: bool
    is_function: bool
    section: int
    value: int
    """Offset in the section."""
    size: int
    """Bytes; of a function, those of its machine code."""


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place in an object that depends on where things lie."""

    section: int
    offset: int
    kind: int
    symbol: int
    """Its number."""
    addend: int


@dataclass(frozen=True, slots=True)
class ElfObject:
    """What one object holds."""

    architecture: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]

    def relocations(self) -> list[Relocation]:
        """Of what is loaded."""
        return [
            Relocation(section.target, offset, kind, symbol, addend)
            for section in self.sections
            if section.kind == _RELOCATIONS and self.sections[section.target].flags & ALLOCATED
            for offset, kind, symbol, addend in _RELOCATION.iter_unpack(section.contents)
        ]


def read(data: bytes) -> ElfObject | None:
    """An object, or None if it is not such an ELF file."""
    if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
        return None
    (start,) = _SECTION_TABLE.unpack_from(data, 40)
    step, count = struct.unpack_from("<HH", data, 58)
    sections: list[Section] = []
    for number in range(count):
        _, kind, flags, _, at, size, link, target, alignment, _ = _SECTION.unpack_from(data, start + number * step)
        contents = b"" if kind == NO_BITS else data[at : at + size]
        sections.append(Section(kind, flags, contents, size, link, target, alignment))
    (architecture,) = struct.unpack_from("<H", data, 18)
    return ElfObject(architecture, tuple(sections), tuple(_symbols(sections)))


def _symbols(sections: list[Section]) -> list[Symbol]:
    found: list[Symbol] = []
    for section in sections:
        if section.kind == _SYMBOLS:
            names = sections[section.link].contents
            for name, info, _, place, value, size in _SYMBOL.iter_unpack(section.contents):
                text = names[name : names.index(b"\0", name)].decode()
                found.append(Symbol(text, info >> 4 == _GLOBAL, info & 15 == _FUNCTION, place, value, size))
    return found


def functions(data: bytes) -> tuple[Symbol, ...]:
    """The global functions that the object `data` defines; empty when it is not such an ELF file."""
    found = read(data)
    symbols = () if found is None else found.symbols
    return tuple(one for one in symbols if one.is_global and one.is_function and one.section != UNDEFINED)
