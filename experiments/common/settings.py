"""The parameters of a study: its study.toml, checked against a dataclass, and what of it must stay equal in a rerun."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import Field, asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from journal import Journal, Record

from autofuse.errors import ArgumentError
from autofuse.measurement.workloads import Workload

Settings = TypeVar("Settings")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


_KINDS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "int": ("a whole number", _is_integer),
    "float": ("a number", _is_number),
    "str": ("a text", _is_text),
    "tuple[int, ...]": ("a list of whole numbers", _is_integer),
    "tuple[float, ...]": ("a list of numbers", _is_number),
    "tuple[str, ...]": ("a list of texts", _is_text),
}
"""By annotation of a field: what it must be in words, and the test of a value or of each value of a list."""


def read(path: Path, form: type[Settings], quick: bool = False) -> Settings:
    """The parameters in a file: exactly the fields of the dataclass `form`, whose own checks hold too.

    The table `[quick]` overrides some of them for a short run. Raises ArgumentError that names the file and the entry.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(f"{path}: is no TOML: {error}") from error
    shorter = table.pop("quick", {})
    if not isinstance(shorter, dict):
        raise ArgumentError(f"{path}: quick: must be a table, [quick], got {shorter!r}")
    wanted: dict[str, Field[Any]] = {field.name: field for field in fields(form)}  # pyright: ignore[reportArgumentType] - a dataclass
    unknown = [key for key in (*table, *shorter) if key not in wanted]
    if unknown:
        raise ArgumentError(f"{path}: {unknown[0]}: is no parameter of this study; it has {', '.join(sorted(wanted))}")
    missing = [name for name in wanted if name not in table]
    if missing:
        raise ArgumentError(f"{path}: {missing[0]}: is missing; it must be {_KINDS[str(wanted[missing[0]].type)][0]}")
    values = {name: _checked(value, wanted[name], path) for name, value in table.items()}
    short = {name: _checked(value, wanted[name], path) for name, value in shorter.items()}
    try:
        return form(**{**values, **(short if quick else {})})
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None


def _checked(value: object, field: Field[Any], path: Path) -> Any:
    kind = str(field.type)
    words, is_right = _KINDS[kind]
    if not kind.startswith("tuple"):
        if not is_right(value):
            raise ArgumentError(f"{path}: {field.name}: must be {words}, got {value!r}")
        return value
    if not isinstance(value, list) or not all(is_right(entry) for entry in value):
        raise ArgumentError(f"{path}: {field.name}: must be {words}, got {value!r}")
    return tuple(value)


def require(holds: bool, name: str, words: str, value: object) -> None:
    """Raise ArgumentError unless a parameter's own condition holds."""
    if not holds:
        raise ArgumentError(f"{name}: must be {words}, got {value!r}")


def comparable(settings: Any, free: Collection[str]) -> dict[str, Any]:
    """All parameters that must be equal for records to be comparable, as JSON gives them back; `free` may differ."""
    return {name: value for name, value in json.loads(json.dumps(asdict(settings))).items() if name not in free}


def chosen(names: Sequence[str], known: Collection[Workload], what: str) -> list[Workload]:
    """The programs of some names. Raises ArgumentError that names the parameter `what`."""
    by_name = {program.name: program for program in known}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise ArgumentError(f"{what}: must be among {', '.join(by_name)}; got {unknown[0]!r}")
    return [by_name[name] for name in names]


def recorded(journal: Journal) -> Record:
    """The record of the run that a journal holds. Raises ArgumentError where nothing was measured yet."""
    run = journal.latest(kind="run")
    if run is None:
        raise ArgumentError(f"{journal.path} holds no run to report: measure first, or give its place with --out")
    return run
