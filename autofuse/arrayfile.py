"""Archives of arrays (`.npz`) that are not trusted: bounded, never unpickled, one error that names file and member."""

from __future__ import annotations

import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import AutofuseError

_DAMAGE = (zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, ValueError, OSError, NotImplementedError, KeyError)
"""What reading a damaged archive may raise; the last but one for a compression that Python has not."""


def write_arrays(file: IO[bytes], arrays: Mapping[str, NDArray[Any]], compression: int) -> None:
    """Write arrays by name; the same arrays give the same bytes. `compression`: one of `zipfile`'s."""
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue(), compression)


def read_arrays(
    file: IO[bytes], at_most: int, error: type[AutofuseError], path: str | os.PathLike[str]
) -> dict[str, NDArray[Any]]:
    """The arrays of an archive by name. Raises `error` for what is damaged, or has more than so many bytes."""
    member = "the archive"
    try:
        with zipfile.ZipFile(file) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > at_most:
                raise error(f"{path}: {member}: holds more than {at_most} bytes")
            arrays: dict[str, NDArray[Any]] = {}
            for entry in archive.infolist():
                member = entry.filename
                content = io.BytesIO(archive.read(entry))
                arrays[member.removesuffix(".npy")] = np.lib.format.read_array(content, allow_pickle=False)
            return arrays
    except _DAMAGE as bad:
        raise error(f"{path}: {member}: cannot be read: {bad}") from bad
