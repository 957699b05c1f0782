"""Files that appear whole or not at all, also when the machine stops in the middle."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path

_MODE = 0o666


@contextmanager
def written_whole(folder: Path) -> Generator[tuple[BufferedRandom, Callable[[Path], None]]]:
    """Yield a temporary file in `folder`, and a function that gives it its final name there.

    The data reach the disk before the name does. A file that was not placed is removed at the end. OSError passes; it
    is raised for a name that `require_replaceable` refuses, too.
    """
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".autofuse-")

    def place(path: Path) -> None:
        require_replaceable(path)
        file.flush()
        os.fchmod(file.fileno(), _MODE & ~_umask())
        os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(folder)

    try:
        with os.fdopen(handle, "w+b") as file:
            yield file, place
    finally:
        Path(temporary).unlink(missing_ok=True)


def require_replaceable(path: Path) -> None:
    """Raise OSError for the name of a device, a pipe or a socket: a file would take its place, for everybody."""
    try:
        mode = path.stat().st_mode
    except OSError:  # none yet, or what cannot be written either
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is a device, a pipe or a socket; give the name of a file", str(path))


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it; /proc spares other threads the race."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next((int(line.split()[1], 8) for line in status if line.startswith("Umask:")), 0o077)
    except OSError:
        return 0o077


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
