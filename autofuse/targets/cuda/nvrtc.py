"""NVRTC: CUDA C to machine code with no driver and no GPU, and what ptxas says about registers and spills.

The library comes from the `nvidia-cuda-nvrtc` wheel (or a CUDA installation) and is bound by ctypes: importing this
module loads nothing, and CuPy is not needed to compile.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from autofuse.errors import BackendError
from autofuse.host import elf
from autofuse.lazydataclass import dataclass

OPTIONS = ("--std=c++17", "--fmad=false", "--ptxas-options=-v")
"""Strict IEEE: no contraction; division, square root and subnormals are exact by default."""

_INSTALL = "install it with: pip install 'autofuse[cuda]'"
_CONTEXT_LINES = 2
_HAS_A_CACHE = (13, 0)
"""From this version on NVRTC keeps what it compiled, where there is a driver, and then does not say what ptxas said."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What one function needs, as ptxas reports it."""

    registers: int
    """32-bit registers per thread."""
    spill_bytes: int
    """Bytes stored plus bytes loaded per thread because registers ran out."""
    stack_bytes: int
    """Local memory per thread: arrays indexed at run time, slow paths of math functions, spills."""
    shared_bytes: int
    """Static shared memory of a block; dynamic shared memory is the launch's."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code for one architecture."""

    arch: str
    cubin: bytes
    resources: dict[str, Resources]
    """By function name."""
    log: str

    @property
    def is_told(self) -> bool:
        """Whether the log tells what each function needs, once, and nothing of others."""
        return sorted(_FUNCTION.findall(self.log)) == sorted(symbol.name for symbol in elf.functions(self.cubin))


def is_available() -> bool:
    """Whether NVRTC can be loaded on this machine."""
    try:
        _library()
    except BackendError:
        return False
    return True


def version() -> tuple[int, int]:
    """(major, minor) of the NVRTC in use. Raises BackendError when there is none."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def version_text() -> str:
    """`13.0`; empty where there is no NVRTC."""
    return ".".join(map(str, version())) if is_available() else ""


@cache
def architectures() -> frozenset[str]:
    """What the NVRTC in use makes machine code for: `sm_80` and others. Raises BackendError when there is none."""
    library, count = _library(), ctypes.c_int()
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(numbers)
    return frozenset(f"sm_{number}" for number in numbers)


def can_compile(source: str, arch: str) -> bool:
    """Whether this machine has what it takes: NVRTC, one that knows `arch`, and the headers that `source` includes."""
    has_headers = bool(_header_folders()) or "#include" not in source
    return is_available() and arch in architectures() and has_headers


def compile_source(source: str, arch: str, name: str = "kernel.cu", options: Sequence[str] = ()) -> Compiled:
    """Compile CUDA C for `arch` (`sm_90`). Raises BackendError showing the numbered source lines of each error."""
    made = _compiled(source, arch, name, options)
    if not made.is_told:
        raise BackendError(f"NVRTC {version_text()} compiles {name} for {arch}, but does not say what it needs")
    return made


def _compiled(source: str, arch: str, name: str, options: Sequence[str]) -> Compiled:
    program = _Program(source, name)
    try:
        fresh = ("--no-cache",) if version() >= _HAS_A_CACHE else ()
        flags = [f"--gpu-architecture={arch}", *OPTIONS, *fresh, *(f"-I{path}" for path in _header_folders()), *options]
        failed = program.compile(flags)
        log = program.text("ProgramLog")
        if failed:
            raise BackendError(f"NVRTC rejects {name} for {arch}:\n{log.strip()}\n{numbered(source, error_lines(log))}")
        return Compiled(arch, program.read("CUBIN"), parse_resources(log), log)
    finally:
        program.destroy()


class _Program:
    """One nvrtcProgram; `destroy` it."""

    def __init__(self, source: str, name: str) -> None:
        self._library = _library()
        self._handle = ctypes.c_void_p()
        code = self._library.nvrtcCreateProgram(
            ctypes.byref(self._handle), source.encode(), name.encode(), 0, None, None
        )
        if code:
            raise BackendError(f"NVRTC cannot create a program: error {code}")

    def compile(self, flags: Sequence[str]) -> bool:
        """Returns whether it failed."""
        array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
        return bool(self._library.nvrtcCompileProgram(self._handle, len(flags), array))

    def read(self, what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(self._library, f"nvrtcGet{what}Size")(self._handle, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        getattr(self._library, f"nvrtcGet{what}")(self._handle, content)
        return content.raw

    def text(self, what: str) -> str:
        return self.read(what).rstrip(b"\0").decode(errors="replace")

    def destroy(self) -> None:
        self._library.nvrtcDestroyProgram(ctypes.byref(self._handle))


@cache
def _library() -> Any:
    for name in ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    try:
        pathfinder = import_module("cuda.pathfinder")
    except ImportError:
        raise BackendError(f"NVRTC is not installed, so CUDA kernels cannot be compiled; {_INSTALL}") from None
    try:
        return ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path)
    except (pathfinder.DynamicLibNotFoundError, OSError) as error:
        raise BackendError(f"NVRTC is not installed, so CUDA kernels cannot be compiled; {_INSTALL}") from error


@cache
def _header_folders() -> tuple[str, ...]:
    """Where cuda_fp16.h lies; nowhere is an error only for a kernel that needs it."""
    folders = [Path("/usr/local/cuda/include")]
    try:
        found = import_module("cuda.pathfinder").find_nvidia_header_directory("cudart")
    except (ImportError, AttributeError):  # none, or one of before it looked for headers
        found = None
    if found:
        folders.insert(0, Path(found))
    return tuple(str(folder) for folder in folders if (folder / "cuda_fp16.h").is_file())[:1]


_FUNCTION = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_resources(log: str) -> dict[str, Resources]:
    """Resources by function name from what `--ptxas-options=-v` logs."""
    found: dict[str, Resources] = {}
    name, frame = "", (0, 0, 0)
    for line in log.splitlines():
        if match := _FUNCTION.search(line):
            name, frame = match.group(1), (0, 0, 0)
        elif match := _FRAME.search(line):
            frame = (int(match.group(1)), int(match.group(2)), int(match.group(3)))
        elif (match := _USED.search(line)) and name:
            shared = _SHARED.search(line)
            static = int(shared.group(1)) if shared else 0
            found[name] = Resources(int(match.group(1)), frame[1] + frame[2], frame[0], static)
    return found


def error_lines(log: str) -> list[int]:
    """Line numbers (from 1) that an error message of `log` names."""
    return [int(number) for number in re.findall(r"\((\d+)\): (?:catastrophic )?error", log)]


def numbered(source: str, lines: Sequence[int]) -> str:
    """Those lines of `source` with their neighbours, numbered; the first 40 lines if none are given."""
    text = source.splitlines()
    near = range(-_CONTEXT_LINES, _CONTEXT_LINES + 1)
    wanted = {line + offset for line in lines for offset in near} or set(range(1, 41))
    return "\n".join(
        f"{number:5d}{'>' if number in lines else ' '} {line}"
        for number, line in enumerate(text, 1)
        if number in wanted
    )
