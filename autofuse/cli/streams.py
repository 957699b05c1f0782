"""Standard output and error as a shell may hand them over: closed, full, read by nobody, without letters for a text."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import TextIO

from autofuse.report.printable import printable

_ESCAPED = "autofuse-escaped"
_data: ContextVar[TextIO | None] = ContextVar("data", default=None)
"""Where data for machines go while everything else goes to standard error; None = to standard output."""


class _Stream(io.TextIOWrapper):
    """Standard output or error, which remembers that something could not be written."""

    failure: OSError | None = None

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as failure:
            self.failure = failure
            raise


@contextmanager
def standard_streams() -> Generator[None]:
    """Open what is closed, so that no other file gets its number, and make every text printable.

    What is written to a standard output that was closed fails when it is flushed, as on a full disk. Characters that
    the streams' encoding lacks are escaped; bytes of file names that are no text come out as the bytes they are.
    """
    codecs.register_error(_ESCAPED, _escaped)
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):  # nobody can write to 1
        if not _is_open(number):
            os.open(os.devnull, mode)  # takes the lowest number that is free
    before = sys.stdout, sys.stderr
    if sys.stdout is sys.__stdout__:  # not where a test reads along
        sys.stdout = _stream(sys.__stdout__, 1)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(sys.__stderr__, 2)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextmanager
def data_alone() -> Generator[None]:
    """Everything that is printed goes to standard error, but for what `print_data` writes."""
    token = _data.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _data.reset(token)


def show(text: str, end: str = "\n") -> None:
    """Write text for people to standard output. What a plan or a database says cannot drive the terminal."""
    print(printable(text), end=end)


def print_data(text: str) -> None:
    """Write data for machines to standard output."""
    print(text, file=_data.get())


def say(line: str) -> None:
    """Write a line to standard error, if anybody can still read it."""
    try:
        print(printable(line), file=sys.stderr, flush=True)
    except OSError:
        drop(sys.stderr)


def output_fails() -> OSError | None:
    """Why something that was written to standard output did not get there; None if all of it did."""
    try:
        sys.stdout.flush()
    except OSError as failure:
        return failure
    return sys.stdout.failure if isinstance(sys.stdout, _Stream) else None


def drop(stream: TextIO) -> None:
    """Send what is written to a stream, and what still waits there, to nowhere: the exit is then quiet."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    stream.flush()


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _stream(usual: TextIO | None, number: int) -> TextIO:
    """A stream like Python's own, which is None if it was closed."""
    encoding = "utf-8" if usual is None else usual.encoding
    lines = number == 2 or (usual is not None and usual.isatty())
    return _Stream(open(number, "wb", closefd=False), encoding, _ESCAPED, line_buffering=lines)


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    """What stands for characters that cannot be encoded (see `codecs.register_error`)."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = b"".join(_bytes(character) for character in error.object[error.start : error.end])
    return found, error.end


def _bytes(character: str) -> bytes:
    return character.encode("ascii", "surrogateescape" if "\udc80" <= character <= "\udcff" else "backslashreplace")
