"""Whether two plan files are the same, and where they are not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def compared(one: str, other: str) -> dict[str, Any]:
    """Two plan files' texts: whether they are equal byte for byte, and where they differ."""
    return {"equal": one == other, "differs": list(_paths(json.loads(one), json.loads(other), ""))}


def _paths(one: Any, other: Any, at: str) -> Iterator[str]:
    """Where two JSON values differ, such as `kernels[2].schedule`."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys((*one, *other)):
            yield from _paths(one.get(key), other.get(key), f"{at}.{key}" if at else key)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _paths(left, right, f"{at}[{number}]")
    elif one != other:
        yield at
