"""Prices of the candidate space: one per digest class, asked of the cost model in one batch."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.cost_models.base import CostModel, KernelFacts
from autofuse.search.residual import ClassPrice
from autofuse.search.space import Candidate


def class_prices(model: CostModel, candidates: Sequence[Candidate]) -> dict[str, ClassPrice]:
    """Price the digest classes of `candidates`.

    Outputs are taken to be reused memory: fresh pages cost every partition the same, as all write the same outputs.
    """
    members = {candidate.digest: candidate for candidate in candidates}
    digests = list(members)
    prices = model.price([KernelFacts(members[digest].program) for digest in digests])
    return {
        digest: ClassPrice(float(us), bound, float(floor))
        for digest, us, bound, floor in zip(digests, prices.us, prices.bound, prices.floor_us, strict=True)
    }
