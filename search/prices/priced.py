"""What solvers choose among: candidates with prices."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass
from autofuse.search.space.candidates import Candidate


@dataclass(frozen=True, slots=True)
class Priced:
    """A candidate with its price."""

    candidate: Candidate
    price_us: float
    """Time of the kernel when it writes its sinks only."""
    write_us: Mapping[Value, float]
    """Extra time for each output that another kernel could recompute instead; outputs not named are in the price."""
