"""Reads the symbol table of a 64-bit little-endian ELF object: what it defines, what it wants from others."""

from __future__ import annotations

import struct

from autofuse.lazydataclass import dataclass

_SECTION_TABLE = struct.Struct("<Q")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2
_FUNCTION = 2
_GLOBAL = 1
_UNDEFINED = 0


@dataclass(frozen=True, slots=True)
class FunctionSymbol:
    """A global function defined in an object."""

    name: str
    size: int
    """Bytes of machine code."""


def functions(data: bytes) -> tuple[FunctionSymbol, ...]:
    """The global functions that the object `data` defines; empty when it is not such an ELF file."""
    return tuple(
        FunctionSymbol(name, size)
        for name, info, section, size in _symbols(data)
        if info == _GLOBAL << 4 | _FUNCTION and section != _UNDEFINED
    )


def undefined(data: bytes) -> tuple[str, ...]:
    """The global symbols that the object uses and does not define."""
    return tuple(
        name for name, info, section, _ in _symbols(data) if info >> 4 == _GLOBAL and section == _UNDEFINED and name
    )


def _symbols(data: bytes) -> list[tuple[str, int, int, int]]:
    """(name, type and binding, section, size) of every symbol."""
    if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
        return []
    found: list[tuple[str, int, int, int]] = []
    sections = _sections(data)
    for kind, offset, size, link in sections:
        if kind == _SYMTAB:
            names = sections[link][1]
            for name, info, _, section, _, length in _SYMBOL.iter_unpack(data[offset : offset + size]):
                start = names + name
                found.append((data[start : data.index(b"\0", start)].decode(), info, section, length))
    return found


def _sections(data: bytes) -> list[tuple[int, int, int, int]]:
    """(kind, file offset, size, linked section) of every section."""
    (start,) = _SECTION_TABLE.unpack_from(data, 40)
    entry_size, count = struct.unpack_from("<HH", data, 58)
    headers = [_SECTION.unpack_from(data, start + i * entry_size) for i in range(count)]
    return [(header[1], header[4], header[5], header[6]) for header in headers]
