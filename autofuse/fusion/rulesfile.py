"""Rules of users in a TOML file.

[[force]]
nodes = ["exp", "reduce"]

[[forbid]]
nodes = ["dot_general", "tanh"]

[[pin]]
nodes = ["scores", "share*"]
"""

from __future__ import annotations

import os
import tomllib
from typing import Any

from autofuse.errors import ArgumentError
from autofuse.fusion.userrules import Forbid, Force, Pin, Rule
from autofuse.plainfile import read_plain

_MOST_BYTES = 16 << 20

_PAIRS: dict[str, type[Force] | type[Forbid]] = {"force": Force, "forbid": Forbid}


def read_rules(path: str | os.PathLike[str]) -> tuple[Rule, ...]:
    """The rules of a file, in its order by kind. Raises ArgumentError that names the file and the entry at fault."""
    name = os.fspath(path)
    try:
        text = read_plain(path, _MOST_BYTES).decode("utf-8")
        tables = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"rules={name!r}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(f"rules={name!r}: is no TOML: {error}") from error
    rules: list[Rule] = []
    for kind, entries in tables.items():
        if kind not in (*_PAIRS, "pin"):
            raise ArgumentError(f"rules={name!r}: [[{kind}]] is unknown; there are [[force]], [[forbid]] and [[pin]]")
        if not isinstance(entries, list):
            raise ArgumentError(f"rules={name!r}: write [[{kind}]], with two brackets, once per rule")
        rules += [_rule(kind, entry, f"rules={name!r}: [[{kind}]] number {n}") for n, entry in enumerate(entries, 1)]
    return tuple(rules)


def _rule(kind: str, entry: Any, where: str) -> Rule:
    keys = {"nodes", "schedule"} if kind == "pin" else {"nodes"}
    if not isinstance(entry, dict) or not set(entry) <= keys:
        raise ArgumentError(f"{where} may have {' and '.join(sorted(keys))}, got {entry!r:.80}")
    nodes = entry.get("nodes")
    if not isinstance(nodes, list) or not nodes or not all(isinstance(node, str) and node for node in nodes):
        raise ArgumentError(f"{where} needs nodes = [...] with names in quotes, got {nodes!r:.80}")
    if kind == "pin":
        schedule = entry.get("schedule", {})
        if not isinstance(schedule, dict):
            raise ArgumentError(f"{where}: schedule must be a table such as {{ unroll = 2 }}, got {schedule!r:.80}")
        return Pin(*nodes, schedule=schedule)
    if len(nodes) != 2:
        raise ArgumentError(f"{where} needs two names, got {len(nodes)}")
    return _PAIRS[kind](*nodes)
