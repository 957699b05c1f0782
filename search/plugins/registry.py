"""Policies, cost models and legality by name: those here, those that installed packages offer, and `module:Class`.

Those of other people come checked: whatever they raise, and whatever they return wrongly, is one error with their name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from autofuse.cost_models.base import CostModel
from autofuse.cost_models.learned.model import learned_model
from autofuse.errors import SearchError, did_you_mean
from autofuse.fusion.userrules import Legality
from autofuse.ir.graph import Graph
from autofuse.lazydataclass import dataclass
from autofuse.search.plugins.foreign import LegalityTest, checked_legality, checked_model, checked_policy
from autofuse.search.policies.policy import SearchPolicy
from autofuse.targets.base import Target

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

MEASURED = "measured"
"""Not a policy of its own but the tuner's loop over the whole space."""
ANALYTICAL = "analytical"
"""The cost model that is used unless another is asked for."""
LEARNED = "learned"
"""The cost model that corrects it by what was learned from records; and the policy that chooses at its prices."""

HERE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "unfused": ("autofuse.search.policies.unfused", "Unfused", {}),
    "analytical": ("autofuse.search.policies.analytical", "Analytical", {}),
    LEARNED: ("autofuse.search.policies.analytical", "Analytical", {"name": LEARNED}),
    "greedy": ("autofuse.search.policies.greedy", "Greedy", {}),
    "beam": ("autofuse.search.policies.greedy", "Beam", {}),
    "rule:xla": ("autofuse.search.rules.xla.gpu_pipeline", "XlaClassic", {}),
    "rule:xla-cpu": ("autofuse.search.rules.xla.cpu_pipeline", "XlaCpu", {}),
    "rule:xla-priority": ("autofuse.search.rules.priority.fusion_queue", "XlaPriority", {}),
    "rule:xla-priority-calibrated": ("autofuse.search.rules.priority.fusion_queue", "XlaPriorityCalibrated", {}),
    "rule:grappler": ("autofuse.search.rules.grappler.meta_optimizer", "Grappler", {}),
    "rule:grappler-eigen": (
        "autofuse.search.rules.grappler.meta_optimizer",
        "Grappler",
        {"name": "rule:grappler-eigen", "build": "eigen"},
    ),
    "rule:inductor": ("autofuse.search.rules.inductor.fusion_stages", "Inductor", {}),
    "rule:inductor-triton": (
        "autofuse.search.rules.inductor.fusion_stages",
        "Inductor",
        {"name": "rule:inductor-triton", "backend": "triton"},
    ),
}
"""The policies here: module, class and arguments, so that a policy is imported when it is asked for."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of thing that has names."""

    argument: str
    """What users call it."""
    group: str
    """Group of entry points. Each names what gives one when called; a legality may be the function itself."""
    here: Mapping[str, tuple[str, str, Mapping[str, Any]]]
    """Those of this package: module, class and arguments."""
    others: tuple[str, ...] = ()
    """Names that users may say too, but that stand for none."""

    @property
    def names(self) -> tuple[str, ...]:
        """All there are; those that installed packages offer stand last."""
        offered = sorted({entry.name for entry in _offered(self)} - self.here.keys())
        return (*self.here, *self.others, *offered)


POLICIES = Kind("policy", "autofuse.policies", HERE, (MEASURED,))
MODELS = Kind("model", "autofuse.cost_models", {}, (ANALYTICAL, LEARNED))
LEGALITIES = Kind("legality", "autofuse.legality", {})


def policy_names() -> Sequence[str]:
    """All policies: those here, the tuner's, then those that installed packages offer."""
    return POLICIES.names


def policy_by_name(name: str) -> SearchPolicy:
    """A policy that decides without measuring: a name of `policy_names`, or `module:Class`.

    Raises SearchError for a name that there is not, and for what gives no policy when called.
    """
    return checked_policy(_given(POLICIES, name, lambda made: made()), name)


def find_policy(policy: str | SearchPolicy) -> SearchPolicy:
    """The policy of a name, or a policy itself. Raises SearchError for what is none."""
    return policy_by_name(policy) if isinstance(policy, str) else checked_policy(policy)


def find_model(model: str | CostModel, target: Target) -> CostModel:
    """The cost model of a name (or `module:Class`) for a target, or a model itself.

    Raises SearchError for what is none, ModelError for a trained model that is unfit.
    """
    if not isinstance(model, str):
        return checked_model(model)
    if model == ANALYTICAL:
        return checked_model(target.cost_model(), f"{model} of target {target.backend}")
    if model == LEARNED:
        return learned_model(find_model(ANALYTICAL, target), target.identity)
    return checked_model(_given(MODELS, model, lambda made: made(target.device)), model)


def model_for(policy: str | SearchPolicy, model: str | CostModel) -> str | CostModel:
    """The cost model that a policy is asked with: that of the policy "learned" is, unless another is named."""
    return LEARNED if policy == LEARNED and model == ANALYTICAL else model


def find_legality(legality: str | LegalityTest, graph: Graph) -> Legality:
    """The legality of a name (or `module:function`, `module:Class`), or a function itself. Raises SearchError."""
    if not isinstance(legality, str):
        return checked_legality(legality, graph)
    return checked_legality(_given(LEGALITIES, legality, _function), graph, legality)


def _loader(kind: Kind, name: str) -> Callable[[], Any]:
    """What imports the thing of a name. Raises SearchError for a name that there is not."""
    if name in kind.here:
        module, attribute, arguments = kind.here[name]
        return lambda: partial(_attribute(module, attribute), **arguments)
    offered = next(iter(_offered(kind).select(name=name)), None)
    if offered is not None:
        return offered.load
    if ":" in name and not name.startswith("rule:"):
        module, _, attribute = name.partition(":")
        return lambda: _attribute(module, attribute)
    choice = f"choose one of: {', '.join(kind.names)}; or module:Class" if kind.names else "give module:function"
    hint = did_you_mean(name, kind.names, cutoff=0.6) or f"; {choice}"
    raise SearchError(f"{kind.argument}={name!r:.80} is unknown{hint}")


def _offered(kind: Kind) -> EntryPoints:
    """What installed packages offer of a kind."""
    from importlib.metadata import entry_points  # slow to import, and names of this package need none

    return entry_points(group=kind.group)


def _attribute(module: str, attribute: str) -> Any:
    return getattr(importlib.import_module(module), attribute)


def _function(found: Any) -> Any:
    """A function as it is; of a class an instance."""
    return found() if isinstance(found, type) else found


def _given(kind: Kind, name: str, use: Callable[[Any], Any]) -> Any:
    """What `use` makes of the thing of a name. Errors of foreign code keep their cause. Raises SearchError."""
    load = _loader(kind, name)
    try:
        return use(load())
    except Exception as error:
        raise SearchError(f"{kind.argument}={name!r:.80} cannot be made: {type(error).__name__}: {error}") from error
