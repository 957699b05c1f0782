"""The argument parser of a subcommand: errors are one line with the nearest right spelling."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from autofuse.errors import ArgumentError
from autofuse.report.quantities import nearest

_BAD_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
_BAD_OPTION = re.compile(r"unrecognized arguments: (--?[^\s=]+)")
_LONG_WORD = re.compile(r"(\S{80})\S+")
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]*)?)\s*(?:([kmgt])i?)?b?", re.IGNORECASE)


class CommandParser(argparse.ArgumentParser):
    """An argparse parser whose errors are ArgumentErrors and whose options cannot be abbreviated."""

    def __init__(self, *, prog: str, description: str | None = None) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise ArgumentError with the message, and what may have been meant."""
        choice, option = _BAD_CHOICE.search(message), _BAD_OPTION.search(message)
        meant = ""
        if choice is not None:
            meant = nearest(choice.group(1), re.findall(r"[\w:-]+", choice.group(2)))
        elif option is not None:
            meant = nearest(option.group(1), [name for name in self._option_string_actions if name.startswith("--")])
        message = _LONG_WORD.sub(r"\1", message)
        raise ArgumentError(f"{message}{meant} (see `{self.prog} --help`)")


def positive(text: str) -> float:
    """An argparse type: a positive, finite number."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not a number") from None
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def count(text: str) -> int:
    """An argparse type: a whole number from 1."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not a whole number from 1")
    return value


def seed(text: str) -> int:
    """An argparse type: a whole number from 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not a whole number from 0")
    return int(text)


def nbytes(text: str) -> int:
    """An argparse type: a number of bytes, with K, M, G or T for powers of 1024 (KiB and KB mean the same)."""
    found = _BYTES.fullmatch(text.strip())
    value = 0 if found is None else int(float(found.group(1)) * 1024 ** " kmgt".index((found.group(2) or " ").lower()))
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not a number of bytes, such as 512M or 2GiB")
    return value
