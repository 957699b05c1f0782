"""Arrays of .npy and .npz files, and of the latter by the names of a program's arguments."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Sequence
from io import BufferedReader
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError
from autofuse.host.available import available_bytes
from autofuse.plainfile import open_plain
from autofuse.report.quantities import bytes_text, nearest

MOST_BYTES = 1 << 40
"""Longest file of arrays accepted."""
UNREADABLE = (OSError, ValueError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What NumPy raises for a file that is not there, broken, or holds Python objects."""


def read_arguments(path: str | os.PathLike[str], names: Sequence[str], what: str) -> dict[str, NDArray[Any]]:
    """The arrays of a file, which are called as the arguments `names` or `arg0`, `arg1`, ...

    `what`: how messages call the file. Raises ArgumentError for one that cannot be read, and for names of no argument.
    """
    try:
        with open_plain(path, MOST_BYTES) as file:
            loaded = load(file, what)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise ArgumentError(f"{what}: must be an .npz file, with the arguments by name")
            with loaded as archive:
                found = {name: unpacked(archive, name, what) for name in archive.files}
    except UNREADABLE as error:
        raise ArgumentError(f"{what}: cannot be read as .npz: {error}") from error
    numbered = {f"arg{number}": name for number, name in enumerate(names)}
    arrays = {name if name in names else numbered.get(name, name): array for name, array in found.items()}
    unknown = sorted(set(arrays) - set(names))
    if unknown:
        known = f"; the arguments are {', '.join(names)}"
        raise ArgumentError(f"{what}: {unknown[0]!r:.80} is no argument{nearest(unknown[0], names)}{known}")
    return arrays


def load(file: BufferedReader, what: str) -> Any:
    """The array of an .npy file, or the archive that an .npz file is. Raises ArgumentError for one beyond memory."""
    _require_memory(os.fstat(file.fileno()).st_size, what)
    return np.load(file, allow_pickle=False)


def unpacked(archive: np.lib.npyio.NpzFile, name: str, what: str) -> NDArray[Any]:
    """One array of an archive: a short file may say that it unpacks to terabytes.

    Raises ArgumentError where that is more than there is memory for. No more than is said is unpacked.
    """
    packed = cast("zipfile.ZipFile", archive.zip)
    member = name if name in packed.NameToInfo else f"{name}.npy"
    _require_memory(packed.getinfo(member).file_size, f"{what}: {name!r}")
    return archive[name]


def _require_memory(needed: int, what: str) -> None:
    there = available_bytes()
    if needed > there:
        raise ArgumentError(
            f"{what}: takes {bytes_text(needed)} of memory, {bytes_text(there)} are available; give smaller arrays, or"
            " run this where there is more"
        )
