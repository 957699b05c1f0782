"""Where in the user's source a call stands: locations of nodes, variable names, and trace errors that point there."""

from __future__ import annotations

import dis
import linecache
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType

import numpy as np

from autofuse.errors import TraceError, TraceIndexError, TraceTypeError, TraceValueError
from autofuse.ir.graph import Location

_SOURCE_LENGTH = 400
_STORES = {"STORE_FAST", "STORE_DEREF", "STORE_GLOBAL", "STORE_NAME"}


OWN_FOLDER = str(Path(__file__).parent.parent) + "/"
"""Where autofuse's own source lies."""
_INSIDE = (OWN_FOLDER, str(Path(str(np.__file__)).parent) + "/", "<__array_function__")


def user_frame() -> FrameType | None:
    """The innermost frame outside autofuse and numpy."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame = frame.f_back
    return frame


def caller_of_scipy() -> FrameType | None:
    """The frame that called SciPy, if SciPy's code in Python is under way."""
    frame = outer = user_frame()
    while outer is not None and _is_scipys(outer):
        outer = outer.f_back
    return None if outer is frame else outer


def _is_scipys(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("scipy.")


def location_of(frame: FrameType | None) -> Location | None:
    """The source position a frame has reached."""
    if frame is None:
        return None
    return Location(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, frame.f_lasti)


def location_under_way() -> Location | None:
    """The line that the traced function has reached."""
    return location_of(user_frame())


def assigned_name(frame: FrameType | None) -> str | None:
    """The variable that the call under way in `frame` is assigned to, if it is assigned directly."""
    return None if frame is None else _assignments(frame.f_code).get(frame.f_lasti)


@lru_cache(maxsize=256)
def _assignments(code: CodeType) -> dict[int, str]:
    """Byte offset of an instruction whose result the next instruction stores -> name of that variable."""
    found: dict[int, str] = {}
    previous: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        if previous is not None and instruction.opname in _STORES:
            # a call of a Python function stands in the inline cache behind its instruction
            found.update(dict.fromkeys(range(previous.offset, instruction.offset), str(instruction.argval)))
        previous = instruction
    return found


_OPEN = threading.local()


@contextmanager
def refusals() -> Generator[list[TraceError]]:
    """Collects the errors of `trace_error` in this thread: a function that catches one must not be compiled without."""
    outer: list[TraceError] | None = getattr(_OPEN, "errors", None)
    _OPEN.errors = found = list[TraceError]()
    try:
        yield found
    finally:
        _OPEN.errors = outer


@contextmanager
def withdrawn() -> Generator[None]:
    """Errors of `trace_error` do not count if what runs inside raises: it is then traced in another way."""
    errors: list[TraceError] | None = getattr(_OPEN, "errors", None)
    count = 0 if errors is None else len(errors)
    try:
        yield
    except BaseException:
        if errors is not None:
            del errors[count:]
        raise


def trace_error(
    problem: str, instead: str = "", kind: type[TraceError] = TraceError, at: Location | None = None
) -> TraceError:
    """A TraceError that names the user's line, the problem, and what to write instead.

    The line is the one under way, if it is not another one (`at`).
    It ends the trace even if the traced function catches it: what it does then is not what it does under NumPy.
    """
    error = kind(_message(problem, instead, at or location_under_way()))
    errors: list[TraceError] | None = getattr(_OPEN, "errors", None)
    if errors is not None:
        errors.append(error)
    return error


_AS_NUMPY: dict[type[Exception], type[TraceError]] = {
    IndexError: TraceIndexError,
    ValueError: TraceValueError,
    TypeError: TraceTypeError,
}


def numpys_error(kind: type[Exception], problem: str) -> TraceError:
    """An error that NumPy raises too, as an exception of its kind: a traced function may catch it."""
    return next(error for base, error in _AS_NUMPY.items() if issubclass(kind, base))(
        _message(problem, "", location_under_way())
    )


def source_of(location: Location | None) -> str:
    """A place and what stands there, on one line of bounded length."""
    if location is None:
        return "somewhere"
    line = linecache.getline(location.file, location.line).strip()
    return f"{location}, {line}"[:_SOURCE_LENGTH] if line else f"{location}"[:_SOURCE_LENGTH]


def raised_in(error: BaseException) -> Location | None:
    """The user's innermost line that an exception came through."""
    found: Location | None = None
    at = error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if not code.co_filename.startswith(_INSIDE):
            found = Location(code.co_filename, at.tb_lineno, code.co_name, at.tb_lasti)
        at = at.tb_next
    return found


def _message(problem: str, instead: str, location: Location | None) -> str:
    lines = [f"{location}: {problem}" if location else problem]
    if location is not None:
        source = linecache.getline(location.file, location.line).strip()
        if source:
            lines.append(f"    {source}")
    if instead:
        lines.append(f"  instead: {instead}")
    return "\n".join(lines)
