"""What is known of a loop's body from having traced it."""

from __future__ import annotations

from typing import Any

from autofuse.frontend.rolling.carried import Name
from autofuse.frontend.rolling.places import Place
from autofuse.frontend.rolling.sequences import Sequences
from autofuse.frontend.rolling.tables import Kind
from autofuse.lazydataclass import dataclass, field


@dataclass(slots=True, eq=False)
class Knowledge:
    """What is known of a loop's body from having traced it."""

    written: set[Any]
    """Arrays that it writes into: their storages."""
    kept: set[Name]
    """Variables whose arrays keep their identity."""
    read: set[Name]
    """Variables that it reads before it binds them."""
    steps: dict[Name, int]
    """Integer variables, and what is added to each every time."""
    sequences: Sequences
    """Lists and deques that variables are bound to before it."""
    period: int = 1
    """Iterations that are taken together."""
    loose: set[Name] = field(default_factory=set[Name])
    """Variables whose arrays it writes in place, and that it binds anew."""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """Lists that it reads as they grow, and by how many elements."""
    nothing: dict[Name, Any] = field(default_factory=dict[Name, Any])
    """Variables that are None before it and may be numbers then, and a number of that kind; bools of the run."""
    held: set[Name] = field(default_factory=set[Name])
    """Variables whose lists and deques are state."""
    kinds: dict[Name, Kind] = field(default_factory=dict[Name, Kind])
    """Of those, what the numbers in them are known to be."""
    places: list[Place] = field(default_factory=list[Place])
    """Elements and attributes of Python's objects that it sets."""


class AgainError(BaseException):
    """Something more is known of a body, with which it is to be traced again."""
