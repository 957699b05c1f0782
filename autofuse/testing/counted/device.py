"""The device: its throughputs, its clock, what schedules of its kernels decide, and for what its plans are made."""

from __future__ import annotations

from threading import Lock
from typing import Any, ClassVar

from autofuse.lazydataclass import dataclass, field, fields
from autofuse.lower.decisions import KEEPS, WALKS, Decisions, Rule
from autofuse.lower.schedule import PANEL_ROWS, Decision, Options
from autofuse.plan.identity import RECORDED, Identity

GENERATOR = "counted/1"
"""Version of how TilePrograms are run. Raised whenever an unchanged plan would run otherwise."""

BATCH: Decision[int] = Decision(
    "batch",
    4,
    Options((1, 2, 4, 8, 16)),
    "elements of the innermost loop that are issued together; what does not fill the last batch is wasted",
)
COUNTED_DECISIONS = Decisions(
    (
        *(rule for rule in WALKS if rule.decision is PANEL_ROWS),
        Rule(BATCH, lambda shape: (1, 2, 4, 8, 16) if shape.staged else ()),
        *KEEPS,
    )
)
"""Its own decision, and those of lowering that its kernels honour: it has neither vectors nor a library of products."""


_SLOW = (*((name, 4) for name in ("divide", "sqrt")), *((name, 10) for name in ("exp", "log", "tanh", "sin", "erf")))


@dataclass(frozen=True, slots=True)
class CountedDevice:
    """One worker without caches. Times in nanoseconds; all are long, so that few calls of a kernel fill a moment."""

    launch_ns: int = 2_000_000
    byte_ns: int = 20
    """Of each byte that crosses to global memory."""
    issue_ns: int = 400
    """Of an operation on a batch, whatever its size."""
    operation_ns: int = 100
    """Of an operation on one element of a batch, filled or not."""
    slow: tuple[tuple[str, int], ...] = _SLOW
    """Times that, by class of operation; 1 for the others. The analytical model takes all for equal: it has something
    to be corrected in."""
    product_ns: int = 10
    """Of a multiplication and an addition in a product of matrices."""
    node_ns: int = 1_000_000
    """Of an operation that the interpreter does."""
    scratch_bytes: int = 64 << 10

    def to_json(self) -> dict[str, Any]:
        """All of it, as plain data."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"slow": dict(self.slow)}


@dataclass(frozen=True, slots=True)
class CountedIdentity(Identity):
    """For what a plan was made."""

    backend: ClassVar[str] = "counted"

    product: str = field(metadata=RECORDED)
    rates: str
    """A digest of all throughputs."""
    generator: str


class CountedClock:
    """A time that passes only when work is done."""

    def __init__(self) -> None:
        self._now = 0
        self._lock = Lock()

    def advance(self, nanoseconds: int) -> None:
        """Let so much time pass."""
        with self._lock:
            self._now += nanoseconds

    def __call__(self) -> int:
        """Nanoseconds since the clock was made."""
        with self._lock:
            return self._now
