"""Arrays of .npz files, by the names of a program's arguments."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError
from autofuse.plainfile import open_plain
from autofuse.report.quantities import nearest

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
            loaded: Any = np.load(file, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise ArgumentError(f"{what}: must be an .npz file, with the arguments by name")
            with loaded as archive:
                found = {name: archive[name] for name in archive.files}
    except UNREADABLE as error:
        raise ArgumentError(f"{what}: cannot be read as .npz: {error}") from error
    numbered = {f"arg{number}": name for number, name in enumerate(names)}
    arrays = {name if name in names else numbered.get(name, name): array for name, array in found.items()}
    unknown = sorted(set(arrays) - set(names))
    if unknown:
        known = f"; the arguments are {', '.join(names)}"
        raise ArgumentError(f"{what}: {unknown[0]!r} is no argument{nearest(unknown[0], names)}{known}")
    return arrays
