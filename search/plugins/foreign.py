"""Code of other people: policies, cost models and legality, each wrapped so that its contract holds.

Whatever such code raises, and whatever it returns that breaks its contract, is one PluginError that names it: nonsense
would otherwise become a wrong plan, or an error far away from its cause. What this package has of its own is not
wrapped; the contract suites of `autofuse.testing` are for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from autofuse.cost_models.base import BOUNDS, CostModel, KernelFacts, Prices
from autofuse.cost_models.features import COLUMNS
from autofuse.errors import AutofuseError, PluginError, SearchError
from autofuse.fusion.userrules import Legality
from autofuse.ir.graph import Graph, Node
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.search.plugins.soundness import defect, some_names
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition, SearchPolicy

LegalityTest = Callable[[Sequence[Node]], str | None]
"""The nodes of a proposed kernel -> None, or the reason why it may not be one.

The nodes are two or more, in the graph's order, without views, iotas and repeated constants: every kernel that reads
those has them. The answer for the same nodes is always the same.
"""

_MODEL_METHODS = ("price", "write_us", "describe")
_MOST_WORDS = 1000
"""Characters of a reason."""
_ROUNDING = 1 + 1e-6
"""A floor may exceed its price by this factor, as sums in another order do."""


def checked_policy(policy: SearchPolicy, called: str | None = None) -> SearchPolicy:
    """A policy whose partitions are checked; one of this package's as it is. Raises SearchError for what is none.

    `called`: the name that the user gave.
    """
    if _is_ours(policy):
        return policy
    name: object = getattr(policy, "name", None)
    if isinstance(policy, type) or not callable(getattr(policy, "partition", None)) or not isinstance(name, str):
        raise _no_such("policy", called, policy, "name and partition()")
    return CheckedPolicy(policy, name, f"policy={called or name!r:.80}")


def checked_model(model: CostModel, called: str | None = None) -> CostModel:
    """A cost model whose prices are checked; one of this package's as it is. Raises SearchError for what is none."""
    if _is_ours(model):
        return model
    lacking = [method for method in _MODEL_METHODS if not callable(getattr(model, method, None))]
    if isinstance(model, type) or lacking:
        raise _no_such("model", called, model, " and ".join(f"{method}()" for method in lacking))
    return CheckedModel(model, f"model={called or type(model).__name__!r:.80}")


def checked_legality(test: LegalityTest, graph: Graph, called: str | None = None) -> Legality:
    """A user's test for kernels of a graph, as what all policies keep. Raises SearchError for what is none."""
    if isinstance(test, type) or not callable(test):
        raise _no_such("legality", called, test, "way to be called")
    name = called or str(getattr(test, "__name__", type(test).__name__))
    return CheckedLegality(test, name, {node: number for number, node in enumerate(graph.nodes)})


@dataclass(frozen=True, slots=True)
class CheckedPolicy:
    """A policy of other people: a SearchPolicy whose partitions are sound."""

    policy: SearchPolicy
    name: str
    asked: str
    """What the user asked for, for messages."""

    def partition(self, context: Context) -> Partition:
        """What the policy chose. Its own AutofuseErrors pass; raises PluginError for all else that is no answer."""
        try:
            found = self.policy.partition(context)
        except AutofuseError:
            raise
        except Exception as error:
            raise PluginError(f"{self.asked} raised {type(error).__name__}: {error}") from error
        fault = defect(found, context)
        if fault is not None:
            raise PluginError(f"{self.asked} gave no partition of {context.program.name}: {fault}")
        return found


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A cost model of other people: a CostModel whose prices are numbers that can be prices."""

    model: CostModel
    asked: str
    """What the user asked for, for messages."""

    def price(self, kernels: Sequence[KernelFacts]) -> Prices:
        """See `CostModel.price`. Raises PluginError."""
        found = self._answer("price()", lambda: self.model.price(kernels))
        if not isinstance(found, Prices):
            self._fail(f"price() gave a {type(found).__name__}, not Prices")
        us, sigma, floor = (self._column(found, name, len(kernels)) for name in ("us", "sigma", "floor_us"))
        for name, column, least, most in (
            ("us", us, np.nextafter(0.0, 1.0), np.inf),
            ("sigma", sigma, 0.0, np.inf),
            ("floor_us", floor, 0.0, us * _ROUNDING),
        ):
            bad = ~(np.isfinite(column) & (column >= least) & (column <= most))
            if bad.any():
                at = int(np.argmax(bad))
                rule = {"us": "positive", "sigma": "not negative", "floor_us": "not negative, nor above the price"}
                self._fail(f"price() gave {name}[{at}] = {column[at]}; it must be finite and {rule[name]}")
        bound = cast("Any", found.bound)
        if not isinstance(bound, tuple | list) or len(bound) != len(kernels):
            self._fail(f"price() gave bound={bound!r:.80} for {len(kernels)} kernels; there must be one for each")
        for word in bound:
            if word not in BOUNDS:
                self._fail(f"price() gave the bound {word!r:.80}; there are {', '.join(BOUNDS)}")
        headroom = cast("object", found.headroom)
        if headroom is not None and not (isinstance(headroom, int | float) and 0 < headroom < math.inf):
            self._fail(f"price() gave headroom={headroom!r:.80}; it must be None, or a number above 0")
        features = self._rows(found, "features", len(kernels), len(COLUMNS))
        terms = self._rows(found, "terms", len(kernels), len(BOUNDS))
        return Prices(us, sigma, np.minimum(floor, us), tuple(bound), headroom, features, terms)

    def write_us(self, value: TensorType) -> float:
        """See `CostModel.write_us`. Raises PluginError."""
        found = self._answer("write_us()", lambda: self.model.write_us(value))
        us = float(found) if isinstance(found, int | float | np.floating | np.integer) else math.nan
        if not 0 <= us < math.inf:
            self._fail(f"write_us({value}) gave {found!r:.80}; it must be a number, finite and not negative")
        return us

    def describe(self) -> dict[str, Any]:
        """See `CostModel.describe`. Raises PluginError."""
        found = self._answer("describe()", self.model.describe)
        if not isinstance(found, dict):
            self._fail(f"describe() gave a {type(found).__name__}, not a dict")
        return cast("dict[str, Any]", found)

    def _column(self, prices: Prices, name: str, count: int) -> NDArray[Any]:
        try:
            column = np.asarray(getattr(prices, name), np.float64)
        except (TypeError, ValueError):
            self._fail(f"price() gave {name} that are no numbers")
        if column.shape != (count,):
            self._fail(f"price() gave {name} of shape {column.shape} for {count} kernels")
        return column

    def _rows(self, prices: Prices, name: str, count: int, columns: int) -> NDArray[Any] | None:
        if getattr(prices, name) is None:
            return None
        try:
            rows = np.asarray(getattr(prices, name), np.float64)
        except (TypeError, ValueError):
            self._fail(f"price() gave {name} that are no numbers")
        if rows.shape != (count, columns) or not np.isfinite(rows).all():
            self._fail(f"price() gave {name} of shape {rows.shape}; they must be finite, ({count}, {columns})")
        return rows

    def _answer(self, method: str, call: Callable[[], object]) -> object:
        try:
            return call()
        except Exception as error:
            raise PluginError(f"{self.asked}: {method} raised {type(error).__name__}: {error}") from error

    def _fail(self, fault: str) -> NoReturn:
        raise PluginError(f"{self.asked}: {fault}")


@dataclass(frozen=True, slots=True)
class CheckedLegality:
    """A user's test for kernels, as part of what every policy works on."""

    test: LegalityTest
    name: str
    position: Mapping[Node, int]
    """Of each node in the graph."""

    @property
    def label(self) -> str:
        """What it is called in messages and notes."""
        return f"legality {self.name!r}"

    def refusal(self, nodes: frozenset[Node]) -> str | None:
        """See `Legality.refusal`. Raises PluginError if the test raises, or says neither None nor why."""
        ordered = tuple(sorted(nodes, key=lambda node: (self.position.get(node, len(self.position)), node.name)))
        try:
            verdict = cast("object", self.test(ordered))
        except Exception as error:
            raise PluginError(
                f"legality={self.name!r:.80} raised {type(error).__name__}, asked about {some_names(ordered)}: {error}"
            ) from error
        if verdict is None:
            return None
        if not isinstance(verdict, str) or not verdict.strip():
            raise PluginError(
                f"legality={self.name!r:.80} said {verdict!r:.80} of a kernel of {some_names(ordered)}; it must say "
                "None, or in words why that may not be one"
            )
        return f"{self.label}: {' '.join(verdict.split())[:_MOST_WORDS]}"


def _is_ours(thing: object) -> bool:
    return type(thing).__module__.partition(".")[0] == "autofuse"


def _no_such(argument: str, called: str | None, thing: object, lacks: str) -> SearchError:
    what = f"a {type(thing).__name__}, which has no {lacks}"
    if isinstance(thing, type):
        what = f"the class {thing.__name__}, not an instance of it"
    return SearchError(f"{argument} is {what}" if called is None else f"{argument}={called!r:.80} gives {what}")
