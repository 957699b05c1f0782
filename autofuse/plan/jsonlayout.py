"""How a plan's JSON is laid out: what fits on a line stands on one, so that a diff shows one decision per line."""

from __future__ import annotations

import json
from typing import Any, cast

_WIDTH = 110


def render(value: Any, indent: int = 0) -> str:
    """JSON text in the order of the data's keys. Raises ValueError for NaN and infinities."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if indent and (len(line) + indent <= _WIDTH or not isinstance(value, dict | list) or not value):
        return line
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        parts = [f"{json.dumps(key)}: {render(member, indent + 2)}" for key, member in members.items()]
        opening, closing = "{", "}"
    else:
        parts = [render(item, indent + 2) for item in cast("list[Any]", value)]
        opening, closing = "[", "]"
    return opening + "\n" + ",\n".join(inner + part for part in parts) + "\n" + " " * indent + closing
