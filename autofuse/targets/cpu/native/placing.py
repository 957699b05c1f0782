"""Objects placed in this process without LLVM, whose library takes 20 ms to load: for plans that are ready to run.

It knows what kernels and the runtime need on x86-64: calls, and addresses relative to the instruction. What is too far
away for that is reached through a slot, which holds a jump and the address that it goes to.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Mapping, Sequence

from autofuse.host import elf
from autofuse.host.elf import ALLOCATED, UNDEFINED, WRITEABLE, ElfObject, Relocation, Symbol

_RELATIVE, _CALL = 2, 4
_BY_SLOT = (9, 41, 42)
"""Kinds of relocations: R_X86_64_PC32 and PLT32; the three GOTPCREL, which want an address's own address."""
_JUMP = bytes((0xFF, 0x25, 2, 0, 0, 0, 0x0F, 0x0B))
"""`jmp *2(%rip)`, which goes where the eight bytes behind say."""
_SLOT_BYTES = 16
_REACH = 1 << 31
_PAGE = 4096
_READ, _WRITE, _EXECUTE = 1, 2, 4
_PRIVATE_AND_ZERO = 0x22  # MAP_PRIVATE | MAP_ANONYMOUS


class UnknownCodeError(Exception):
    """What this module does not know or cannot do, and LLVM's linker may."""


class Memory:
    """Memory of this process, as long as the object lives. When the process ends it stays: threads may be in it."""

    def __init__(self, size: int) -> None:
        self._libc = ctypes.CDLL(None)
        allocate = self._libc.mmap
        allocate.restype = ctypes.c_void_p
        length = ctypes.c_size_t(size)
        found: int | None = allocate(None, length, _READ | _WRITE, _PRIVATE_AND_ZERO, -1, ctypes.c_long(0))
        if found is None or found == ctypes.c_void_p(-1).value:
            raise UnknownCodeError("no memory")
        self.address = found
        weakref.finalize(self, self._libc.munmap, ctypes.c_void_p(found), length).atexit = False

    def fill(self, image: bytearray, code_bytes: int) -> None:
        """Write all of it. Its first bytes are code, which nobody writes from then on."""
        ctypes.memmove(self.address, (ctypes.c_char * len(image)).from_buffer(image), len(image))
        if self._libc.mprotect(ctypes.c_void_p(self.address), ctypes.c_size_t(code_bytes), _READ | _EXECUTE):
            raise UnknownCodeError("memory may not become executable")

    def address_of(self, name: str) -> int:
        """Of a symbol of the process itself."""
        try:
            return ctypes.cast(getattr(self._libc, name), ctypes.c_void_p).value or 0
        except AttributeError as error:
            raise UnknownCodeError(f"no definition of {name}") from error


def place(
    objects: Sequence[bytes], symbols: Mapping[str, int], exports: Sequence[str]
) -> tuple[Memory, dict[str, int]]:
    """Memory that holds the code, and the addresses of the exports; arguments as of `linking.link`.

    Raises UnknownCodeError.
    """
    image = _Image([_known(data) for data in objects], symbols)
    for number, one in enumerate(image.files):
        for relocation in one.relocations():
            image.relocate(number, relocation)
    image.memory.fill(image.contents, image.code_bytes)
    return image.memory, {name: image.address_of(name) for name in exports}


class _Image:
    """What the memory will hold: sections that nobody writes, slots, from the next page on sections of data."""

    def __init__(self, files: Sequence[ElfObject], symbols: Mapping[str, int]) -> None:
        self.files = files
        self._offsets: dict[tuple[int, int], int] = {}
        """Of sections in the memory, by file and number."""
        self._slots_end = _aligned(self._lay_out(0, 0), _SLOT_BYTES)
        slots = sum(len(one.symbols) for one in files)
        self.code_bytes = _aligned(self._slots_end + slots * _SLOT_BYTES, _PAGE)
        self.contents = bytearray(self._lay_out(self.code_bytes, WRITEABLE))
        self.memory = Memory(len(self.contents))
        for (file, section), offset in self._offsets.items():
            data = files[file].sections[section].contents
            self.contents[offset : offset + len(data)] = data
        self._slots: dict[int, int] = {}
        self._addresses = dict(symbols)
        for file, one in enumerate(files):
            for symbol in one.symbols:
                if symbol.is_global and symbol.section != UNDEFINED:
                    if symbol.name in self._addresses:
                        raise UnknownCodeError(f"{symbol.name} is defined twice")
                    self._addresses[symbol.name] = self._defined(file, symbol)

    def _lay_out(self, end: int, writeable: int) -> int:
        """Give the sections that are so a place behind `end`; returns the end of the last one."""
        for file, one in enumerate(self.files):
            for number, section in enumerate(one.sections):
                if section.flags & (ALLOCATED | WRITEABLE) == ALLOCATED | writeable:
                    self._offsets[file, number] = start = _aligned(end, section.alignment)
                    end = start + section.size
        return end

    def _defined(self, file: int, symbol: Symbol) -> int:
        """The address of a symbol that the file defines."""
        if (file, symbol.section) not in self._offsets:
            raise UnknownCodeError(f"{symbol.name} is in section {symbol.section}")
        return self.memory.address + self._offsets[file, symbol.section] + symbol.value

    def address_of(self, name: str) -> int:
        """Of what a file defines, was given, or the process has."""
        if name not in self._addresses:
            self._addresses[name] = self.memory.address_of(name)
        return self._addresses[name]

    def _slot(self, address: int) -> int:
        """The address of the slot of an address."""
        if address not in self._slots:
            self._slots[address] = self.memory.address + self._slots_end
            self.contents[self._slots_end : self._slots_end + _SLOT_BYTES] = _JUMP + address.to_bytes(8, "little")
            self._slots_end += _SLOT_BYTES
        return self._slots[address]

    def relocate(self, file: int, relocation: Relocation) -> None:
        """Write what one place must hold."""
        symbol = self.files[file].symbols[relocation.symbol]
        wanted = self.address_of(symbol.name) if symbol.section == UNDEFINED else self._defined(file, symbol)
        at = self._offsets[file, relocation.section] + relocation.offset
        back = relocation.addend - self.memory.address - at
        if relocation.kind in _BY_SLOT:
            wanted = self._slot(wanted) + len(_JUMP)
        elif relocation.kind == _CALL and not -_REACH <= wanted + back < _REACH:
            wanted = self._slot(wanted)
        elif relocation.kind not in (_RELATIVE, _CALL):
            raise UnknownCodeError(f"relocation {relocation.kind}")
        if not -_REACH <= wanted + back < _REACH:
            raise UnknownCodeError(f"{symbol.name} is too far away")
        struct.pack_into("<i", self.contents, at, wanted + back)


def _known(data: bytes) -> ElfObject:
    found = elf.read(data)
    if found is None or found.architecture != elf.X86_64:
        raise UnknownCodeError("no object for x86-64")
    return found


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // max(alignment, 1)) * max(alignment, 1)
