"""Whether two plan files are the same but for what is measured anew whenever a plan is tuned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from autofuse.plan.layout import render

ANEW = ("e2e_us", "holdout_us", "unfused_us", "rule", "rule_us", "noise_floor_us", "additivity", "words")
"""Entries of the certificate: times of whole plans, which no database keeps, and what depends on the shortest."""


def compared(one: str, other: str) -> dict[str, Any]:
    """Two plan files' texts: whether they are equal byte for byte but for `ANEW`, and where else they differ."""
    left, right = json.loads(one), json.loads(other)
    for plan in (left, right):
        for entry in ANEW:
            if plan.get("certificate"):
                plan["certificate"][entry] = None
    return {"equal": render(left) == render(right), "differs": list(_paths(left, right, ""))}


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
