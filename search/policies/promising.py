"""Kernels that a cheapest plan may want are lowered; of the others the estimate is enough.

Lowering and pricing a kernel takes milliseconds, and most kernels of a space are in no good plan. So they are weighed
by what their parts cost first (`search/prices/estimates.py`). In rounds the relaxed cover is solved at the prices that
are known, and at estimates where they are not. The kernels that it wants, and those that it would want next, are
lowered and priced, from which the estimates learn. It ends when the relaxed cover wants only kernels whose prices are
known, and still does when those that come next are known too. What was never wanted is left out of the space, and
counted.

Programs inside of loops are not weighed: they run often enough to be worth all prices.

Estimates are no bounds, so a plan may be dearer than the cheapest one of all kernels
(`docs/decisions/0217-kernels-are-weighed-before-they-are-lowered.md` says by how much).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from autofuse.lazydataclass import replace
from autofuse.search.prices.estimates import Estimates
from autofuse.search.prices.pricing import KernelPrices, priced
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.search.space.candidates import Candidate

_ROUNDS = 8
"""Most times that the relaxed cover is solved."""
_FEW = 32
"""So many classes of kernels that wait are lowered sooner than weighed."""
_RUNS = 1e-3
"""How much of a kernel runs that the relaxed cover wants."""
_NEXT = 4
"""So many classes that it would want next are lowered too, and as many of which more would be saved if they are cheaper
than they are estimated."""
_NEAR, _DOUBT = 0.4, 0.35
"""Of an estimate: by how much cheaper what comes next must be at most, and how much too high an estimate may be."""
_SOLVE_S = 10.0
"""For a relaxed cover, which takes hundredths of a second."""


def lower_promising(builder: SpaceBuilder, prices: KernelPrices, is_late: Callable[[], bool]) -> None:
    """Lower what the cheapest plan may want of the kernels that wait, and take the others out of the space.

    `is_late`: when to stop. Kernels that nobody had the time to weigh are counted as late.
    """
    weighing = _Weighing(builder, prices)
    if weighing.is_worthwhile():
        for _ in range(_ROUNDS):
            if is_late():
                builder.space.late += weighing.left()
                break
            wanted = weighing.wanted()
            if not wanted:
                break
            for candidate in wanted:
                builder.lower(candidate)
    else:
        for candidate in weighing.representatives():
            if is_late():
                builder.space.late += weighing.left()
                break
            builder.lower(candidate)
    builder.settle()


_Other = tuple[float, float, Candidate]
"""By how much a kernel is dearer than it may be in a cheapest plan, its estimate, and the kernel."""


def _next(others: Sequence[_Other]) -> dict[str, Candidate]:
    """Of what is not wanted: the classes nearest to it, and those of which plans might save most."""
    near = sorted((dearer / us, n) for n, (dearer, us, _) in enumerate(others) if dearer < _NEAR * us)
    promising = sorted((dearer - _DOUBT * us, n) for n, (dearer, us, _) in enumerate(others) if dearer < _DOUBT * us)
    found: dict[str, Candidate] = {}
    for ranked in (near, promising):
        most = len(found) + _NEXT
        for _, number in ranked:
            if len(found) == most:
                break
            candidate = others[number][2]
            found[candidate.digest] = candidate
    return found


class _Weighing:
    def __init__(self, builder: SpaceBuilder, prices: KernelPrices) -> None:
        self.builder, self.space, self.prices = builder, builder.space, prices
        self.candidates: list[Candidate] = list(builder.space.candidates)
        """As they are by now."""
        graph = self.space.atom_graph
        known = prices.of([candidate for candidate in self.candidates if len(candidate.atoms) == 1])
        alone = {atom: known[builder.require(frozenset((atom,))).digest] for atom in graph.atoms}
        self.estimates = Estimates(graph, prices.model, alone)
        self._idle = 0
        """Relaxed covers, one after the other, that wanted nothing more."""

    def representatives(self) -> Iterable[Candidate]:
        """One candidate of each class that waits."""
        return {candidate.digest: candidate for candidate in self._waiting()}.values()

    def left(self) -> int:
        """How many candidates wait."""
        return len(self._waiting())

    def is_worthwhile(self) -> bool:
        """Whether weighing kernels takes less than lowering them."""
        return len({candidate.digest for candidate in self._waiting()}) > _FEW

    def wanted(self) -> Sequence[Candidate]:
        """What is to be lowered next, one candidate of each class; empty if nothing more is wanted."""
        from autofuse.search.solve.relaxation import relaxed  # HiGHS, which takes a hundredth of a second to import

        self._renew()
        us = self._us()
        lowered = replace(self.space, candidates=[c for c in self.candidates if c.lowered is not None])
        both = replace(self.space, candidates=self.candidates)
        offered = priced(both, us, self.prices.model, self.prices.saved(lowered))
        shares = relaxed(self.space.atom_graph, offered, _SOLVE_S, self.space.segments)
        if shares is None:
            return list(self.representatives())
        wanted: dict[str, Candidate] = {}
        others: list[_Other] = []
        for candidate, share in zip(self.candidates, shares, strict=True):
            if candidate.lowered is None and share.runs > _RUNS:
                wanted[candidate.digest] = candidate
            elif candidate.lowered is None:
                others.append((share.dearer_us, us[candidate.digest], candidate))
        self._idle = 0 if wanted else self._idle + 1
        return [] if self._idle > 1 else list((wanted | _next(others)).values())

    def _renew(self) -> None:
        """The candidates as they are by now: some were lowered, some refused."""
        found = (self.builder.as_it_is(candidate) for candidate in self.candidates)
        self.candidates = [candidate for candidate in found if candidate is not None]

    def _us(self) -> dict[str, float]:
        """By digest: the price, or what it is estimated to be."""
        known = self.prices.of([candidate for candidate in self.candidates if candidate.lowered is not None])
        several = {c.digest: c for c in self.candidates if c.lowered is not None and len(c.atoms) > 1}
        self.estimates.learn([(c, known[digest].predicted_us) for digest, c in several.items()])
        us: dict[str, float] = {}
        for candidate in self.candidates:
            digest = candidate.digest
            if digest not in us:
                is_known = candidate.lowered is not None
                us[digest] = known[digest].predicted_us if is_known else self.estimates.us(candidate)
        return us

    def _waiting(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate.lowered is None]
