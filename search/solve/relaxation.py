"""The relaxed cover: kernels may run in parts. It says soon which kernels a cheapest cover is likely to want."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from autofuse.fusion.atoms import AtomGraph
from autofuse.lazydataclass import dataclass
from autofuse.search.prices.priced import Priced
from autofuse.search.solve.coverprogram import CoverProgram
from autofuse.search.solve.highs import Optimum
from autofuse.search.solve.solver import programs_of
from autofuse.search.space.segments import Segment


@dataclass(frozen=True, slots=True)
class Share:
    """What the relaxed cover has of one candidate."""

    runs: float
    """How much of it runs: 0 to 1."""
    dearer_us: float
    """By how much the cover would be dearer if all of it ran, at least."""


def relaxed(
    graph: AtomGraph, priced: Sequence[Priced], seconds: float, segments: Sequence[Segment] = ()
) -> list[Share] | None:
    """The share of each candidate; None where it was not found in so many seconds. `segments`: as for `solve`.

    Candidates that cross a cut have no share, and are as dear as they can be.
    """
    found = [Share(0.0, float("inf"))] * len(priced)
    known: dict[Hashable, tuple[CoverProgram, Optimum]] = {}
    for program, numbers in programs_of(graph, priced, segments):
        mark = program.mark() if len(segments) > 1 else None
        if mark not in known:
            known[mark] = program, program.run(seconds, relaxed=True)
        first, optimum = known[mark]
        if optimum.x is None or optimum.reduced is None:
            return None
        for number, column in zip(numbers, first.x, strict=True):
            found[number] = Share(float(optimum.x[column]), float(optimum.reduced[column]))
    return found
