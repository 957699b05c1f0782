"""Objects to callable addresses: code placed in this process, with its external symbols resolved."""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autofuse.errors import BackendError
from autofuse.host import elf
from autofuse.targets.cpu.native.forkgate import LLVM
from autofuse.targets.cpu.native.placing import UnknownCodeError, place

_library_numbers = itertools.count()
_PERF_DIRECTORY = Path("/tmp")  # where perf looks for the symbol maps of processes


class LinkedCode:
    """Code placed in this process. Its addresses are valid as long as this object lives."""

    def __init__(self, holder: object, addresses: Mapping[str, int]) -> None:
        self._holder = holder
        self._addresses = dict(addresses)

    def __getitem__(self, symbol: str) -> int:
        """Address of an exported symbol."""
        return self._addresses[symbol]


def link(objects: Iterable[bytes], symbols: Mapping[str, int] | None = None, exports: Sequence[str] = ()) -> LinkedCode:
    """Load objects together, with `symbols` (name to address) beside those of the process itself.

    Raises BackendError for a symbol that is missing or defined twice.
    """
    listed, given = list(objects), dict(symbols or {})
    profiled = _perf_functions(listed)
    wanted = (*exports, *profiled)
    try:
        holder, addresses = place(listed, given, wanted)
    except UnknownCodeError as unknown:
        holder, addresses = _placed_by_llvm(listed, given, wanted, unknown)
    _write_perf_map({name: (addresses[name], size) for name, size in profiled.items()})
    return LinkedCode(holder, addresses)


_link_lock = threading.Lock()


@LLVM
def _placed_by_llvm(
    objects: Sequence[bytes], symbols: Mapping[str, int], exports: Sequence[str], why: Exception
) -> tuple[Any, dict[str, int]]:
    """What keeps the code alive, and the addresses of the exports. `why`: it was not placed without LLVM."""
    import llvmlite.binding as llvm

    builder = llvm.JITLibraryBuilder()
    for data in objects:
        builder.add_object_img(data)
    for name, address in symbols.items():
        builder.import_symbol(name, address)
    for name in {*exports}:
        builder.export_symbol(name)
    builder.add_current_process()
    with _link_lock:
        try:
            tracker = builder.link(_linker(), f"autofuse.{next(_library_numbers)}")
        except RuntimeError as error:
            raise BackendError(f"cannot link compiled kernels: {why}; {error}") from error
    return tracker, {name: tracker[name] for name in exports}


@functools.cache
def _linker() -> Any:
    """The process's JIT linker; it lives until the process ends, because worker threads run code it placed."""
    import llvmlite.binding as llvm

    from autofuse.targets.cpu.machine import initialise_llvm

    initialise_llvm()
    return llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)


def _perf_functions(objects: Sequence[bytes]) -> dict[str, int]:
    """Sizes of the functions to name for `perf`; none unless AUTOFUSE_PERF is 1."""
    if os.environ.get("AUTOFUSE_PERF") != "1":
        return {}
    return {symbol.name: symbol.size for data in objects for symbol in elf.functions(data)}


def _write_perf_map(functions: Mapping[str, tuple[int, int]]) -> None:
    if functions:
        rows = [f"{address:x} {size:x} {name}\n" for name, (address, size) in functions.items()]
        with (_PERF_DIRECTORY / f"perf-{os.getpid()}.map").open("a", encoding="utf-8") as file:
            file.writelines(rows)
