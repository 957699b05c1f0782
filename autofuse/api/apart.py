"""Why things are not one kernel of a plan: what `Plan.why_not` and `autofuse explain --why-not` answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autofuse.api.partitioning import Rules, make_context
from autofuse.api.programs import program_of
from autofuse.cost_models.base import CostModel
from autofuse.plan.document import PlanDocument
from autofuse.report.whynot import all_apart, kept_rules, render, render_apart, why_not
from autofuse.search.plugins.foreign import LegalityTest
from autofuse.targets.base import Target


def why_apart(
    document: PlanDocument,
    target: Target,
    names: Sequence[str],
    rules: Rules,
    model: str | CostModel,
    legality: str | LegalityTest | None,
) -> tuple[Any, str]:
    """The answer as plain data and as text. `names`: two, or none for all kernels that hand values to one another."""
    context = make_context(program_of(document), target, rules, model=model, legality=legality)
    if not names:
        found = all_apart(document, context.limits, context.model, context.control)
        return [pair.to_json() for pair in found], render_apart(found, kept_rules(document))
    first, second = names
    answer = why_not(document, first, second, context.limits, context.model, context.control)
    return answer.to_json(), render(answer)
