"""The side file of a plan: its large constants, as an uncompressed .npz named after its own contents."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import zipfile
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import AutofuseError, PlanError
from autofuse.ir import dtypes
from autofuse.ir.types import TensorType, of_array, parse_type
from autofuse.lazydataclass import dataclass
from autofuse.plainfile import open_plain
from autofuse.plan.atomic import written_whole
from autofuse.strictjson import Item

FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,200}\.constants-[0-9a-f]{16}\.npz")
HASH = re.compile(r"[0-9a-f]{8,128}")
MAX_ARRAYS = 100_000
MAX_FILE_BYTES = 1 << 40
_DEFECTS = (OSError, ValueError, EOFError, struct.error, zipfile.BadZipFile, NotImplementedError, RuntimeError)
"""What the zip and npy readers raise for files that are not what they should be."""


@dataclass(frozen=True, slots=True)
class SideFile:
    """What the plan says about its side file."""

    file: str
    """Name, in the plan's own folder."""
    sha256: str
    """Digest of the file's bytes; its first 16 digits stand in the name."""
    arrays: Mapping[str, TensorType]
    """Hash (as the graph's text refers to it) -> type."""

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "sha256": self.sha256, "arrays": {k: str(t) for k, t in self.arrays.items()}}


def side_file_from(item: Item) -> SideFile:
    """Read `SideFile.to_json` back; raises the item's error with the path of the first unfit value."""
    keys = item.fields(("file", "sha256", "arrays"))
    sha256 = keys["sha256"].text(64, re.compile(r"[0-9a-f]{64}"))
    file = keys["file"].text(240, FILE_NAME)
    if not file.endswith(f".constants-{sha256[:16]}.npz"):
        keys["file"].fail("does not carry the first 16 digits of sha256")
    arrays: dict[str, TensorType] = {}
    for name, text in keys["arrays"].members(MAX_ARRAYS).items():
        if not HASH.fullmatch(name):
            text.fail("the key is no content hash")
        try:
            arrays[name] = parse_type(text.text(1000))
        except AutofuseError as bad:
            text.fail(str(bad))
    return SideFile(file, sha256, arrays)


def write(folder: Path, stem: str, constants: Mapping[str, NDArray[Any]]) -> SideFile:
    """Write the constants of the plan `stem`.json into its folder. Two writers of the same constants do no harm."""
    prefix = re.sub(r"[^A-Za-z0-9_.+-]", "_", stem)[:100].lstrip(".+-") or "plan"
    with written_whole(folder) as (file, place):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name in sorted(constants):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, _storable(constants[name]), allow_pickle=False)
        file.flush()
        file.seek(0)
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        result = SideFile(
            f"{prefix}.constants-{sha256[:16]}.npz", sha256, {k: of_array(constants[k]) for k in sorted(constants)}
        )
        place(folder / result.file)
    return result


def _storable(array: NDArray[Any]) -> NDArray[Any]:
    """The npy format has no bfloat16: its bits are kept as u16, and the plan names the type."""
    dense = np.ascontiguousarray(array).reshape(array.shape)
    return dense.view(np.uint16) if dense.dtype == dtypes.BF16.numpy else dense


def read(folder: Path, side: SideFile) -> dict[str, NDArray[Any]]:
    """The constants, read-only. Raises PlanError if the file is missing, is no plain file, or is not what `side` says.

    Nothing is unpickled, nothing is unpacked beyond the file's own size, links are not followed.
    """
    path = folder / side.file
    try:
        with open_plain(path, MAX_FILE_BYTES, follow_links=False) as file:
            return _read_checked(file, side, path)
    except FileNotFoundError:
        raise PlanError(f"{path}: the plan's constants file is missing; copy it together with the plan") from None
    except MemoryError:
        raise PlanError(f"{path}: the constants do not fit into memory") from None
    except _DEFECTS as bad:
        raise PlanError(f"{path}: no constants file of this plan ({type(bad).__name__}: {bad})") from bad


def _read_checked(file: BufferedReader, side: SideFile, path: Path) -> dict[str, NDArray[Any]]:
    if sum(t.nbytes for t in side.arrays.values()) > os.fstat(file.fileno()).st_size:
        raise PlanError(f"{path}: is shorter than the constants that the plan lists")
    if hashlib.file_digest(file, "sha256").hexdigest() != side.sha256:
        raise PlanError(f"{path}: the contents are not those that the plan was saved with (sha256 differs)")
    with zipfile.ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if set(members) != {f"{name}.npy" for name in side.arrays} or len(members) != len(archive.infolist()):
            raise PlanError(f"{path}: does not hold exactly the constants that the plan lists")
        return {name: _read_array(archive, members[f"{name}.npy"], t, path) for name, t in side.arrays.items()}


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, type_: TensorType, path: Path) -> NDArray[Any]:
    if member.compress_type != zipfile.ZIP_STORED:
        raise PlanError(f"{path}: {member.filename} is compressed; constants are stored plainly")
    stored = np.dtype(np.uint16) if type_.dtype is dtypes.BF16 else type_.dtype.numpy
    with archive.open(member) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise PlanError(f"{path}: {member.filename} is of another npy version")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        if tuple(shape) != type_.shape or fortran or dtype != stored:
            raise PlanError(f"{path}: {member.filename} is {dtype}{list(shape)}, the plan says {type_}")
        data = file.read()
    if len(data) != type_.nbytes:
        raise PlanError(f"{path}: {member.filename} is not {type_.nbytes} bytes long")
    return np.frombuffer(data, type_.dtype.numpy).reshape(type_.shape)
