"""Which keys a trace has drawn random numbers from: the record that `keyuse` keeps and judges."""

from __future__ import annotations

from collections.abc import Hashable

from autofuse.ir.graph import Location, Value
from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class Use:
    """Where a key was drawn from."""

    function: str
    """As the user writes it: `af.random.uniform`."""
    location: Location | None
    """The call."""


class DrawnKeys:
    """The keys that one graph or region draws from. Regions share what is known of values with what they stand in."""

    def __init__(self, outer: DrawnKeys | None) -> None:
        self.classes: dict[Value, int] = {} if outer is None else outer.classes
        """A number for each value seen; equal computations have one number."""
        self._numbers: dict[Hashable, int] = {} if outer is None else outer._numbers
        self.said: set[str] = set() if outer is None else outer.said
        """Warnings that were given."""
        self.uses: dict[int, Use] = {}
        """By the key's number: the first use here. Regions have their own, as of two branches only one runs."""

    def number(self, description: Hashable) -> int:
        """The number of all that has this description."""
        return self._numbers.setdefault(description, len(self._numbers))
