"""Compile kernels with the host C++ compiler under `simt.h` and run them on NumPy arrays."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import BackendError
from autofuse.lower.tile import Space
from autofuse.targets.cuda.codegen import CudaKernel, CudaLaunch

Order = Literal["forward", "reverse"]
Hooks = Literal["none", "races", "counts"]

_HERE = Path(__file__).parent
_FLAGS = ("-std=c++17", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-fPIC", "-w")
_OPTIMISED = ("-O1",)
"""The machine behind the kernels, which is compiled once, and kernels whose accesses are counted: without, what one
instruction reads is read in several. Other kernels run a few times: optimising them takes longer."""
_CHECKED = ("-fsanitize=integer-divide-by-zero",)
_COUNTED = ("-DSIMT_COUNT",)
_LINKED = ("-shared", "-nostdlib")
"""Without the sanitizers' own libraries: what they call is the shim's."""
_LIBRARY = "libsimt.so"
_HOOKS = "simt_count.cpp"
"""Of the library of kernels that are counted only."""
_SHARED_ARRAY = re.compile(r"extern\s+__shared__\s[^;]*?(\w+)\s*\[\s*\]\s*;")
_REDZONE = 256
"""Bytes around every buffer, and behind shared memory, that must come back untouched; also the alignment."""
_POISON = 0xFF
"""NaN in every float, -1 in every integer."""
_MESSAGE = 1024
_one_at_a_time = Lock()
"""The shim has one machine in a process, whatever library a kernel is in."""


class SimtModule:
    """Kernels compiled together into one shared library, cached by source: compiling takes about a second."""

    def __init__(self, kernels: Sequence[CudaKernel], *, races: bool = False) -> None:
        """`races`: whether races in shared memory are errors too; runs are then several times slower.

        Raises BackendError without a C++ compiler, and when compilation fails.
        """
        self._kernels = list(kernels)
        self._library = ctypes.CDLL(str(compiled(translation_unit(kernels), "races" if races else "none")))

    def run(self, kernel: CudaKernel, buffers: dict[str, NDArray[Any]], *, order: Order = "forward") -> None:
        """Run all launches of `kernel` on `buffers` (by name; a missing WORKSPACE is provided).

        Arrays must be C-contiguous with the buffers' shapes and dtypes; outputs are written in place. Raises
        BackendError for wrong arrays and for everything the shim detects.
        """
        if kernel not in self._kernels:
            held = ", ".join(k.name for k in self._kernels)
            raise BackendError(f"kernel {kernel.name} is not in this module; it holds {held}")
        guarded = [
            _Guarded(kernel, buffer.name, _argument(kernel, number, buffers))
            for number, buffer in enumerate(kernel.parameters)
        ]
        pointers = [memory.address for memory in guarded]
        for launch in kernel.launches:
            self._launch(kernel, launch, pointers, order)
            for buffer, memory in zip(kernel.parameters, guarded, strict=True):
                memory.check(read_only=buffer.space is Space.INPUT)
        for memory in guarded:
            memory.copy_back()

    def run_at(self, kernel: CudaKernel, addresses: Sequence[int], *, order: Order = "forward") -> None:
        """Run all launches on memory of this process, one address for each parameter; only the shim's checks."""
        for launch in kernel.launches:
            self._launch(kernel, launch, addresses, order)

    def _launch(self, kernel: CudaKernel, launch: CudaLaunch, addresses: Sequence[int], order: Order) -> None:
        symbol = f"{namespace_of(self._kernels.index(kernel))}_{launch.function}"
        pointers = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        message = ctypes.create_string_buffer(_MESSAGE)
        grid, block = (ctypes.c_uint * 3)(*launch.grid), (ctypes.c_uint * 3)(*launch.block)
        run: Any = getattr(self._library, f"run_{symbol}")
        clustered, reverse = ctypes.c_int(launch.cluster), ctypes.c_int(order == "reverse")
        with _one_at_a_time:
            failed = run(pointers, grid, block, ctypes.c_size_t(launch.shared_bytes), clustered, reverse, message)
        if failed:
            raise BackendError(f"{kernel.name}: {launch.function}: {message.value.decode()}")


def run_simt(
    kernel: CudaKernel, buffers: dict[str, NDArray[Any]], *, order: Order = "forward", races: bool = False
) -> None:
    """Compile one kernel (cached) and run it; see `SimtModule`."""
    SimtModule([kernel], races=races).run(kernel, buffers, order=order)


class _Guarded:
    """A copy of an array between two redzones."""

    def __init__(self, kernel: CudaKernel, name: str, array: NDArray[Any]) -> None:
        self._kernel, self._name, self._array = kernel, name, array
        self._memory = np.full(array.nbytes + 3 * _REDZONE, _POISON, np.uint8)
        start = _REDZONE + -(self._memory.ctypes.data + _REDZONE) % _REDZONE
        self._before, self._inside, self._after = (
            self._memory[:start],
            self._memory[start : start + array.nbytes],
            self._memory[start + array.nbytes :],
        )
        self._inside[:] = np.frombuffer(array.tobytes(), np.uint8)
        self.address = self._inside.ctypes.data if array.nbytes else self._memory.ctypes.data + start

    def check(self, *, read_only: bool) -> None:
        if (self._before != _POISON).any() or (self._after != _POISON).any():
            raise BackendError(f"{self._kernel.name} writes outside buffer {self._name}")
        if read_only and self._inside.tobytes() != self._array.tobytes():
            raise BackendError(f"{self._kernel.name} writes to its input {self._name}")

    def copy_back(self) -> None:
        if self._array.flags.writeable:
            self._array[...] = np.frombuffer(self._inside.tobytes(), self._array.dtype).reshape(self._array.shape)


def _argument(kernel: CudaKernel, number: int, buffers: dict[str, NDArray[Any]]) -> NDArray[Any]:
    buffer = kernel.parameters[number]
    type_ = buffer.type
    if buffer.name not in buffers and buffer.space is Space.WORKSPACE:
        return np.frombuffer(bytes([_POISON]) * type_.nbytes, type_.dtype.numpy).reshape(type_.shape).copy()
    array = buffers.get(buffer.name)
    if array is None:
        raise BackendError(f"{kernel.name} needs buffer {buffer.name}; got {', '.join(buffers)}")
    if array.shape != type_.shape or array.dtype != type_.dtype.numpy or not array.flags.c_contiguous:
        raise BackendError(
            f"buffer {buffer.name} of {kernel.name} must be a C-contiguous {type_}, "
            f"got {array.dtype}{list(array.shape)}"
        )
    return array


def namespace_of(number: int) -> str:
    """Of a kernel, by its place: no function is called so, as those of several launches end in a number."""
    return f"unit{number}_"


def translation_unit(kernels: Sequence[CudaKernel]) -> str:
    """All kernels, each in a namespace of its own, and an entry point per launch."""
    parts: list[str] = []
    shared: dict[str, int] = {}
    for number, kernel in enumerate(kernels):
        space = namespace_of(number)
        functions = [launch.function for launch in kernel.launches]
        # extern "C" names ignore namespaces: a macro keeps equal names, and names of the C library, apart
        parts.extend(f"#define {name} {space}_{name}\n" for name in functions)
        parts.append(f'namespace {space} {{\n#line 1 "{kernel.name}.cu"\n{kernel.source}\n}}\n')
        parts.extend(f"#undef {name}\n" for name in functions)
        names = _SHARED_ARRAY.findall(kernel.source)
        for name in names:
            most = max(launch.shared_bytes for launch in kernel.launches)
            shared[name] = max(shared.get(name, 0), most + _REDZONE)
        call = "call_packed" if kernel.members else "call"
        parts.extend(_entry(space, name, names[0] if names else "nullptr", call) for name in functions)
    arrays = [
        f'extern "C" {{ alignas(128) thread_local unsigned char {name}[{size}]; }}\n' for name, size in shared.items()
    ]
    return "".join((*arrays, *parts))


def _entry(space: str, function: str, shared: str, call: str) -> str:
    name = f"{space}_{function}"
    return (
        f"static void call_{name}(void** arguments) {{ simt::{call}(&{space}::{name}, arguments); }}\n"
        f'extern "C" int run_{name}(void** arguments, const unsigned* grid, const unsigned* block, '
        f"size_t shared_bytes, int clustered, int reverse, char* message) {{\n"
        f"    return simt::launch(call_{name}, arguments, grid, block, {shared}, shared_bytes, {_REDZONE}, clustered, "
        f"reverse, message, {_MESSAGE});\n}}\n"
    )


def compiled(source: str, hooks: Hooks = "none") -> Path:
    """The shared library of a translation unit, from the cache or compiled now.

    `hooks`: at each access to memory, to find races, or to count. Raises BackendError without a C++ compiler, or when
    it refuses.
    """
    compiler = next((path for name in ("g++", "c++", "clang++") if (path := shutil.which(name))), None)
    if compiler is None:
        raise BackendError("the SIMT shim needs a C++ compiler on PATH (g++ or clang++)")
    parts = (compiler, *_OPTIMISED, *_kernel_flags(hooks), *_shim_texts().values())
    folder = Path(tempfile.gettempdir()) / f"autofuse-simt-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    shim, made = folder / f"shim-{_digest(parts)}", folder / f"{_digest((*parts, source))}.so"
    if not shim.exists():
        _make_shim(shim, compiler, hooks)
    if made.exists():
        return made
    with tempfile.TemporaryDirectory(dir=folder) as work:
        text, library = Path(work) / "kernels.cpp", Path(work) / "kernels.so"
        text.write_text(source)
        given = ("-include", str(shim / "simt.h"), f"-I{shim}", str(text), str(shim / _LIBRARY))
        _run((compiler, *_kernel_flags(hooks), *_LINKED, *given, "-o", str(library)))
        library.replace(made)
    return made


def _kernel_flags(hooks: Hooks) -> tuple[str, ...]:
    called = () if hooks == "none" else (*_COUNTED, "-fsanitize=thread")
    return (*_FLAGS, *_CHECKED, *(_OPTIMISED if hooks == "counts" else ()), *called)


def _make_shim(shim: Path, compiler: str, hooks: Hooks) -> None:
    """Make the folder of the shim: its headers, `simt.h` compiled before, and the library of all that is behind it.

    Without, compiling a small kernel takes four times as long.
    """
    texts = _shim_texts()
    with tempfile.TemporaryDirectory(dir=shim.parent) as work:
        made = Path(work) / "shim"
        made.mkdir()
        for name, text in texts.items():
            (made / name).write_text(text)
        header = str(made / "simt.h")
        _run((compiler, *_kernel_flags(hooks), "-x", "c++-header", header, "-o", f"{header}.gch"))
        sources = [str(made / name) for name in texts if name.endswith(".cpp") and (hooks != "none" or name != _HOOKS)]
        name = f"-Wl,-soname,{shim / _LIBRARY}"  # a path: kernels find it, and the other library is another one
        flags = (*_FLAGS, *_OPTIMISED, *(() if hooks == "none" else _COUNTED))
        _run((compiler, *flags, "-shared", name, *sources, "-o", str(made / _LIBRARY)))
        with suppress(OSError):  # another process was first
            made.rename(shim)


@cache
def _shim_texts() -> dict[str, str]:
    """The files of the shim, by name."""
    return {file.name: file.read_text() for pattern in ("*.cpp", "*.h") for file in sorted(_HERE.glob(pattern))}


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise BackendError(f"{command[0]} rejects generated CUDA C:\n{done.stderr[:4000]}")
