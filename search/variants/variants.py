"""What comes before fusion is searched too: variants of a program's graph, priced by the best plan that each allows.

The clean-up can do some things in several ways (`autofuse.passes.choices`). Each choice is made alone; those that make
the program cheaper are then added, one by one, to the best of them. Each distinct graph gets a candidate space of its
own, and its price is that of the cheapest partition by the cost model. All variants compute the same results of the
same arguments, so their plans can be timed against one another.

The model is trusted with the choice alone only where the difference is beyond its noise. Tuning measures
(`measured_variants.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence

from autofuse.errors import LegalityError, SearchError
from autofuse.ir.digest import digest
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.schedule import ITERATIONS
from autofuse.passes.choices import DEFAULT, Choices, alternatives
from autofuse.passes.pipeline import can_change, clean, finished
from autofuse.plan.document import GraphVariant
from autofuse.search.plans.planning import Program
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition

LARGE = 2000
"""Nodes of a graph from which on its variants are not priced: each takes as long as compiling the program."""
LATE = "was not priced: the time was up"
"""How the note ends on a graph that a deadline left no time for: another run may choose otherwise."""
_JOINED = tuple(replace(DEFAULT, unrolled=times) for times in ("2", "4", "8"))
_SIGMA = 0.3
"""Deviation of log(measured / predicted) that a cost model is taken to have."""
_STEPS_GAIN = 0.1
"""The same where steps of a loop are joined: both graphs compute the same scalars in loops of one kind, so what the
model errs by is in both."""
LEAST_GAIN = 0.02
"""By how much a variant must be cheaper, whatever the noise."""
CLOSE = 1.1
"""How much dearer than the best variant one may be that is still tuned."""
MOST_FINALISTS = 2
"""Variants that are tuned beside the usual graph, the cheapest ones."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One graph of a program, and the cheapest way to fuse it by the model."""

    choices: Choices
    context: Context
    partition: Partition

    @property
    def price_us(self) -> float:
        return self.partition.price_us


@dataclass(frozen=True, slots=True)
class Variants:
    """What was priced, and what was not."""

    usual: Variant
    others: tuple[Variant, ...]
    """In the order in which they were tried."""
    left_out: tuple[str, ...]
    """Why graphs, or all of them, have no price."""

    def predicted(self) -> Variant:
        """The cheapest variant, if it is so beyond the noise of the model; else the usual one."""
        best = min(self.others, key=_price, default=self.usual)
        return best if is_clearly_cheaper(best, self.usual) else self.usual

    def joined_with(self, more: Variants) -> Variants:
        """These, and others of the same graph."""
        return Variants(self.usual, (*self.others, *more.others), (*self.left_out, *more.left_out))

    def finalists(self) -> Sequence[Variant]:
        """The variants that are worth tuning beside the usual one, the cheapest first."""
        limit = CLOSE * min(variant.price_us for variant in (self.usual, *self.others))
        return sorted((v for v in self.others if v.price_us <= limit), key=_price)[:MOST_FINALISTS]

    def notes(self) -> tuple[str, ...]:
        """What the model says of each variant, for people; nothing if there are none."""
        if not self.others:
            return self.left_out
        prices = ", ".join(f"{v.choices.label} {v.price_us:.4g} us" for v in (self.usual, *self.others))
        return (f"graph variants priced: {prices}", *self.left_out)


def has_variants(program: Program) -> bool:
    """Whether any choice of the clean-up concerns a program. Cheap; `program` as it is usually cleaned up."""
    return any(can_change(program.to_vary, choices) for choices in alternatives())


def late(usual: Variant, choices: Choices) -> Variants:
    """The usual graph alone, as there is no time for another one."""
    return Variants(usual, (), (f"graph variant {choices.label} {LATE}",))


def tried(usual: Variant, choices: Choices, decide: Callable[[], tuple[Context, Partition]]) -> Variants:
    """The usual graph and another one, if that can be planned. `decide`: about the latter."""
    try:
        found = decide()
    except (LegalityError, SearchError) as error:
        return Variants(usual, (), (f"graph variant {choices.label} cannot be planned: {error}",))
    return Variants(usual, (Variant(choices, *found),), ())


Decide = Callable[[Context], tuple[Context, Partition]]
"""The cheapest way to fuse a graph, by the model, and the context of the kernels that it was chosen among."""


def _as_usual(context: Context) -> tuple[Context, Partition]:
    return context, Analytical().partition(context)


def price_variants(
    context: Context,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
    decide: Decide = _as_usual,
) -> Variants:
    """Price the graphs that the choices of the clean-up give. `context`: of the usual graph, without rules of a user.

    `seconds`: no further graph is begun after so long. Raises SearchError or LegalityError if the usual graph cannot be
    planned.
    """
    end = clock() + seconds
    usual = Variant(DEFAULT, *decide(context))
    nodes = len(context.program.graph.nodes)
    if nodes >= LARGE:
        return Variants(usual, (), (f"graph variants were not priced: {nodes} nodes, the limit is {LARGE}",))
    pricing = _Pricing(usual, context, lambda: clock() >= end, decide)
    for choices in alternatives():
        pricing.add(choices)
    pricing.combine()
    return Variants(usual, tuple(pricing.found), tuple(pricing.left_out))


def varied(program: Program, choices: Choices) -> Program:
    """The program with its graph cleaned up in another way. `program`: as it is usually cleaned up."""
    cleaned = clean(program.to_vary, program.numerics, choices)
    note = f"graph variant: {choices.label}"
    variant = GraphVariant(choices.label, digest(program.graph))
    notes = (*program.notes, note)
    return replace(program, graph=finished(cleaned), cleaned=cleaned, notes=notes, variant=variant)


class _Pricing:
    """The variants so far."""

    def __init__(self, usual: Variant, context: Context, is_late: Callable[[], bool], decide: Decide) -> None:
        """`context`: the one that was given for the usual graph."""
        self.usual = usual
        self._context, self._is_late, self._decide = context, is_late, decide
        self.found: list[Variant] = []
        self.left_out: list[str] = []
        self._seen: dict[str, Variant | None] = {digest(usual.context.program.graph): usual}

    def add(self, choices: Choices) -> Variant | None:
        """Price one way; what it gave if it was there already. None if it cannot be planned."""
        program = self.usual.context.program
        if not can_change(program.to_vary, choices):
            return self.usual
        varied_program = varied(program, choices)
        mark = digest(varied_program.graph)
        if mark not in self._seen:
            self._seen[mark] = self._priced(choices, varied_program)
        return self._seen[mark]

    def combine(self) -> None:
        """Add what helps alone to the best variant, the most helpful first, as long as that helps."""
        helpful = sorted((v for v in self.found if v.price_us < self.usual.price_us), key=_price)
        best = helpful[0] if helpful else self.usual
        for other in helpful[1:]:
            both = self.add(best.choices.joined_with(other.choices))
            if both is not None and both.price_us < best.price_us:
                best = both

    def _priced(self, choices: Choices, program: Program) -> Variant | None:
        if self._is_late():
            self.left_out.append(f"graph variant {choices.label} {LATE}")
            return None
        bounds = self._context.kernels.bounds
        each = replace(bounds, seconds=bounds.seconds / len(alternatives()))
        try:
            variant = Variant(choices, *self._decide(self._context.about(program, each)))
        except (LegalityError, SearchError) as error:
            self.left_out.append(f"graph variant {choices.label} cannot be planned: {error}")
            return None
        self.found.append(variant)
        return variant


def _price(variant: Variant) -> float:
    return variant.price_us


def is_clearly_cheaper(variant: Variant, usual: Variant) -> bool:
    """Whether a variant is predicted to be cheaper by more than the model can be off.

    Kernels that both have cost the same, however wrong their price is. Those of one price are taken for such: a kernel
    that a loop runs, which is off by as much in all iterations, has another digest where it is written out. The errors
    of the others are taken to be independent of one another, which they are not quite: equal mistakes cancel. Where
    prices of loops in blocks of rows were never held against times, a graph with such has no benefit of the doubt.
    """
    apart: dict[str, float] = {}
    for each, sign in ((usual, 1.0), (variant, -1.0)):
        for times, us in _prices(each):
            mark = f"{us:.6g}"
            apart[mark] = apart.get(mark, 0.0) + sign * times * us
    noise = _SIGMA * math.hypot(*apart.values())
    if usual.context.limits.doubts_rows and _runs_rows(usual):
        noise = 0.0
    if variant.choices in _JOINED and usual.choices == DEFAULT:
        noise = min(noise, _STEPS_GAIN * usual.price_us)
    return usual.price_us - variant.price_us > max(LEAST_GAIN * usual.price_us, noise)


def _runs_rows(variant: Variant) -> bool:
    """Whether a loop is one kernel of blocks of rows."""
    prices = variant.context.kernels.prices
    regions, driven = prices.regions, [c.candidate for c in variant.partition.kernels if prices.is_driven(c.candidate)]
    return regions is not None and any(regions.schedule(one.kernel)[ITERATIONS] == "rows" for one in driven)


def _prices(variant: Variant) -> Iterator[tuple[float, float]]:
    """How often each kernel runs, and its price, those inside of loops that a driver runs included."""
    prices, partition = variant.context.kernels.prices, variant.partition
    for chosen in partition.kernels:
        if prices.regions is not None and prices.is_driven(chosen.candidate):
            yield from prices.regions.parts(chosen.candidate.kernel)
        else:
            yield 1.0, partition.known[chosen.candidate.digest].predicted_us or 0.0
