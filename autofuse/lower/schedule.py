"""Schedules: the decisions inside one kernel, as data. Plans record these, never binaries.

A target says which decisions its kernels have (`lower/decisions.py`). Those that lowering itself reads stand here; the
others stand beside the code that reads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from autofuse.errors import PlanError
from autofuse.lazydataclass import dataclass

Value = bool | int | float | str | None
T = TypeVar("T", bound=Value)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_MOST_DECISIONS, _LONGEST = 100, 60


@dataclass(frozen=True, slots=True)
class Options:
    """A value is one of these."""

    values: tuple[Value, ...]

    def holds(self, value: object) -> bool:
        """Whether a value is allowed; 1 is not True."""
        return any(type(value) is type(option) and value == option for option in self.values)

    def __str__(self) -> str:
        return f"one of {', '.join(map(repr, self.values))}"


@dataclass(frozen=True, slots=True)
class Range:
    """A value is a whole number from `low` to `high`."""

    low: int
    high: int

    def holds(self, value: object) -> bool:
        """Whether a value is allowed."""
        return isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"an integer from {self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """One thing that a kernel leaves open."""

    name: str
    """Its key in plans, in rules and in records."""
    default: T
    allowed: Options | Range
    """What a schedule may say, whatever the kernel."""
    effect: str
    """What it changes, in words."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What was decided for one kernel. What it does not say is as by default."""

    chosen: tuple[tuple[str, Value], ...] = ()
    """Values by the name of the decision, in order of the names; none is a default."""

    @staticmethod
    def of(values: Mapping[Decision[Any], Any]) -> Schedule:
        """The schedule that decides so."""
        return Schedule().deciding(values)

    def deciding(self, values: Mapping[Decision[Any], Any]) -> Schedule:
        """The schedule that decides so, and otherwise as this one."""
        found = dict(self.chosen)
        for decision, value in values.items():
            if type(value) is type(decision.default) and value == decision.default:
                found.pop(decision.name, None)
            else:
                found[decision.name] = value
        return Schedule(tuple(sorted(found.items())))

    def __getitem__(self, decision: Decision[T]) -> T:
        found: Any = decision.default
        for name, value in self.chosen:
            if name == decision.name:
                found = value
        return found

    @staticmethod
    def from_json(data: object) -> Schedule:
        """What a file says was decided. Raises PlanError for anything but names and plain values.

        Whether there are such decisions, and whether a kernel leaves them open, is asked when it is lowered.
        """
        if not isinstance(data, dict):
            raise PlanError(f"a schedule must be an object, got {type(data).__name__}")
        if len(data) > _MOST_DECISIONS:
            raise PlanError(f"a schedule must have at most {_MOST_DECISIONS} decisions, got {len(data)}")
        for name, value in data.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise PlanError(f"unknown schedule key {name!r:.60}: must be a name of small letters")
            if not (value is None or isinstance(value, bool | int | float | str)) or len(repr(value)) > _LONGEST:
                raise PlanError(f"schedule {name}={value!r:.60} is out of range: must be a number, a word or a bool")
        return Schedule(tuple(sorted(data.items())))

    def to_json(self) -> dict[str, Value]:
        """Only what differs from the defaults, so that plans stay short."""
        return dict(self.chosen)


VECTORISED: Decision[str] = Decision(
    "lane",
    "auto",
    Options(("auto", "grid", "stream")),
    "spread the last grid symbol over lanes, or each stage's innermost stream symbol; auto takes the one that loads"
    " contiguous memory",
)
PANEL_ROWS: Decision[int] = Decision(
    "panel_rows",
    0,
    Range(0, 1 << 20),
    "most rows of a row block in kernels with products; 0: 512 where columns are cut into tiles as well, else 256",
)
PRODUCTS: Decision[str] = Decision(
    "dots",
    "auto",
    Options(("auto", "library", "generated")),
    "who multiplies matrices; auto generates code but for products of a matrix and a vector",
)
PLACEMENT: Decision[str] = Decision(
    "placement",
    "scratch",
    Options(("scratch", "recompute")),
    "what to do with an expensive value that several stages need",
)
SIDES: Decision[str] = Decision(
    "sides",
    "auto",
    Options(("auto", "any", "always", "packed")),
    "a costly side of a choice (np.where) is computed for every element (always), or where any of those that are"
    " computed together takes it, or (packed) for those alone that take it, collected over a block; auto: in loops over"
    " time, whose elements seldom take the same side, packed where the target can and enough is spared, else any;"
    " elsewhere always",
)
EARLY_END: Decision[bool] = Decision(
    "early_end",
    True,
    Options((True, False)),
    "whether a loop ends before its last iteration once nothing changes any more in all elements of a worker; False: to"
    " ask for that in each iteration is spared",
)
ITERATIONS: Decision[str] = Decision(
    "iterations",
    "driver",
    Options(("driver", "rows")),
    "who runs a loop with products, or with more state than registers hold: the driver, each kernel of an iteration for"
    " all rows, or (rows) one kernel, in which a block of rows does all iterations with its state on chip",
)
TILE_BYTES: Decision[int] = Decision(
    "tile_bytes",
    0,
    Range(0, 1 << 30),
    "most bytes of what a tile keeps of values that are read at several positions, which are computed anew at each"
    " without tiles; 0: tiles only where that would be too much code",
)
SPLIT: Decision[int] = Decision(
    "split",
    0,
    Range(0, 1 << 20),
    "parts into which a reduction with too few grid points is split, or the depth of a product where a target does so;"
    " 0: as many as the target says, 1: never",
)
