"""Opening files that somebody else may have put there: plain files only, no waiting, no surprises."""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import cast

from autofuse.errors import ArgumentError

_OPEN_TO_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class NotPlainError(OSError):
    """What a path names is a folder, a pipe or a device, too long, or not this user's own."""


def require_path(name: str, value: object) -> None:
    """Raise ArgumentError for what can be the name of no file or folder. `name`: the argument's."""
    try:
        valid = not isinstance(value, bytes) and b"\0" not in os.fsencode(cast("str", value))
    except (TypeError, UnicodeEncodeError):
        valid = False
    if not valid:
        raise ArgumentError(f"{name}={value!r:.80}: must be the name of a file or folder: text, or a pathlib.Path")


def open_plain(
    path: str | os.PathLike[str], at_most: int, *, follow_links: bool = True, own: bool = False
) -> BufferedReader:
    """Open a regular file of at most so many bytes for reading.

    `own`: it must belong to this user or to root, and nobody else may be able to write it. Raises NotPlainError for a
    file that is not so, another OSError if it cannot be opened.
    """
    links = 0 if follow_links else os.O_NOFOLLOW
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | links)
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise NotPlainError(f"{os.fspath(path)} is not a file, but a folder, pipe or device; give a plain file")
        if facts.st_size > at_most:
            raise NotPlainError(f"{os.fspath(path)} has {facts.st_size} bytes; at most {at_most} are accepted")
        if own and (facts.st_uid not in (os.geteuid(), 0) or facts.st_mode & _OPEN_TO_OTHERS):
            raise NotPlainError(f"{os.fspath(path)} belongs to another user, or others may write it; remove it")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_plain(path: str | os.PathLike[str], at_most: int, *, follow_links: bool = True, own: bool = False) -> bytes:
    """The bytes of such a file, at most so many, even if it grows meanwhile. Raises as `open_plain` does."""
    with open_plain(path, at_most, follow_links=follow_links, own=own) as file:
        return file.read(at_most)


def open_to_others(folder: Path) -> str | None:
    """Who else can put files into a folder, or replace it, in words; None if nobody can.

    A folder that others may write is safe for its owner's files if it is sticky, as /tmp is.
    """
    for place in (folder, *folder.parents):
        try:
            facts = os.stat(place)
        except OSError:
            continue
        if facts.st_uid not in (os.geteuid(), 0):
            return f"{place} belongs to user {facts.st_uid}"
        if facts.st_mode & _OPEN_TO_OTHERS and not (facts.st_mode & stat.S_ISVTX and place != folder):
            return f"{place} can be written by others"
    return None


def write_whole(path: Path, text: str) -> None:
    """Write a file in one step: others find the old text or the new one, and the last writer wins. Raises OSError."""
    import tempfile

    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
