"""Reading JSON that nobody vouches for: strict parsing, and checks that name the path of whatever is wrong."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NoReturn, TypeVar, cast

from autofuse.errors import AutofuseError

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""What a JSON text holds."""

T = TypeVar("T")
MAX_DEPTH = 128
"""Deepest nesting accepted: plans, records and trees of arguments stay far below it."""
_MAX_DIGITS = 1000
_MAX_RECURSION = 5000
"""Up to this limit the JSON scanner, which recurses in C, ends with an error before the stack does."""
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def parse(text: bytes | str, error: type[AutofuseError], what: str) -> Item:
    """Parse one JSON text; raises `error` for anything but standard JSON with unique keys and finite numbers.

    `what` names the text in messages. Nesting is at most MAX_DEPTH, integers at most 1000 digits.
    """
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        if sys.getrecursionlimit() > _MAX_RECURSION and _nesting(decoded) > MAX_DEPTH:
            raise RecursionError
        value: Json = json.loads(
            decoded,
            object_pairs_hook=_unique_keys,
            parse_float=_finite,
            parse_int=_bounded_integer,
            parse_constant=_finite,
        )
    except _RefusedError as bad:
        raise error(f"{what}: {bad}") from None
    except json.JSONDecodeError as bad:
        raise error(f"{what}: not JSON (line {bad.lineno}, column {bad.colno}: {bad.msg})") from None
    except UnicodeDecodeError as bad:
        raise error(f"{what}: not UTF-8 text (byte {bad.start})") from None
    except RecursionError:
        raise error(f"{what}: nested more than {MAX_DEPTH} deep") from None
    if _too_deep(value):
        raise error(f"{what}: nested more than {MAX_DEPTH} deep")
    return Item(value, "", error, what)


class _RefusedError(Exception):
    """Valid JSON grammar that is not accepted here."""


def _unique_keys(found: list[tuple[str, Json]]) -> dict[str, Json]:
    result = dict(found)
    if len(result) != len(found):
        keys = [key for key, _ in found]
        raise _RefusedError(f"the key {next(key for key in keys if keys.count(key) > 1)!r:.80} stands twice")
    return result


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise _RefusedError(f"the number {literal:.40} is not finite")
    return value


def _bounded_integer(literal: str) -> int:
    if len(literal) > _MAX_DIGITS:
        raise _RefusedError(f"the integer {literal:.40}... has more than {_MAX_DIGITS} digits")
    return int(literal)


def _nesting(text: str) -> int:
    """How deep brackets are nested, those in strings left out."""
    depth = most = 0
    for bracket in _BRACKET.finditer(text):
        first = text[bracket.start()]
        depth += (first in "[{") - (first in "]}")
        most = max(most, depth)
    return most


def _too_deep(value: Json) -> bool:
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Json] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        if not inner:
            return False
        level = inner
    return True


class Item:
    """A JSON value and where it stands. Every method checks and returns the plain value, or raises the error type."""

    __slots__ = ("error", "path", "value", "what")

    def __init__(self, value: object, path: str, error: type[AutofuseError], what: str) -> None:
        self.value = cast("Json", value)
        self.path = path
        self.error = error
        self.what = what

    def fail(self, problem: str) -> NoReturn:
        """Raise the error with the path in front of `problem`."""
        raise self.error(f"{self.what}: {self.path + ': ' if self.path else ''}{problem}")

    def _wrong(self, required: str) -> NoReturn:
        shown = repr(self.value) if not isinstance(self.value, dict | list) else f"an {_kind(self.value)}"
        self.fail(f"must be {required}, got {shown:.100}")

    def fields(self, required: Collection[str], optional: Collection[str] = ()) -> Mapping[str, Item]:
        """The members of an object that has all of `required`, and nothing beyond `optional`."""
        if not isinstance(self.value, dict):
            self._wrong("an object")
        missing = [key for key in required if key not in self.value]
        unknown = [key for key in self.value if key not in required and key not in optional]
        if missing:
            self.fail(f"the key {missing[0]!r} is missing")
        if unknown:
            self.fail(f"unknown key {unknown[0]!r:.80}; known: {', '.join(sorted({*required, *optional}))}")
        return self.members(at_most=len(self.value))

    def members(self, at_most: int) -> Mapping[str, Item]:
        """The members of an object with keys of any name."""
        if not isinstance(self.value, dict):
            self._wrong("an object")
        if len(self.value) > at_most:
            self.fail(f"has {len(self.value)} members; at most {at_most} are accepted")
        prefix = f"{self.path}." if self.path else ""
        return {key: Item(value, f"{prefix}{key:.80}", self.error, self.what) for key, value in self.value.items()}

    def items(self, at_most: int, exactly: int | None = None) -> list[Item]:
        """The items of an array."""
        if not isinstance(self.value, list):
            self._wrong("an array")
        if len(self.value) > at_most:
            self.fail(f"has {len(self.value)} items; at most {at_most} are accepted")
        if exactly is not None and len(self.value) != exactly:
            self.fail(f"must have {exactly} items, has {len(self.value)}")
        return [Item(v, f"{self.path}[{i}]", self.error, self.what) for i, v in enumerate(self.value)]

    def text(self, at_most: int = 200, pattern: re.Pattern[str] | None = None) -> str:
        """A string, at most so many characters long, that matches all of `pattern`."""
        if not isinstance(self.value, str):
            self._wrong("a string")
        if len(self.value) > at_most:
            self.fail(f"has {len(self.value)} characters; at most {at_most} are accepted")
        if not self.value.isascii() and any(0xD800 <= ord(c) <= 0xDFFF for c in self.value):
            self.fail("holds half of a surrogate pair, which is no text")
        if pattern is not None and not pattern.fullmatch(self.value):
            self._wrong(f"a string of the form {pattern.pattern}")
        return self.value

    def choice(self, *options: str, told: Sequence[str] | None = None) -> str:
        """One of some strings. `told`: those that a message names; by default all."""
        if not isinstance(self.value, str) or self.value not in options:
            self._wrong(f"one of {', '.join(map(repr, told or options))}")
        return self.value

    def integer(self, lo: int, hi: int) -> int:
        """An integer in lo..hi."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or not lo <= self.value <= hi:
            self._wrong(f"an integer in {lo}..{hi}")
        return self.value

    def number(self, lo: float = 0.0, hi: float = 1e18) -> float:
        """A number in lo..hi."""
        if not isinstance(self.value, int | float) or isinstance(self.value, bool) or not lo <= self.value <= hi:
            self._wrong(f"a number in {lo:g}..{hi:g}")
        return float(self.value)

    def maybe(self, read: Callable[[Item], T]) -> T | None:
        """None for null, else what `read` makes of the item."""
        return None if self.value is None else read(self)


def _kind(value: dict[str, Json] | list[Json]) -> str:
    return "object" if isinstance(value, dict) else "array"
