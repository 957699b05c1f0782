"""The learned cost model: an analytical model's prices, each times a bounded correction that was learned from records.

Features do not say all that decides a time, so the analytical model stays in charge: its floors hold, what it calls the
bound is the bound, and the correction is limited. Where there is no correction for this machine, its prices stand as
they are, with a wider spread, and a note says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.cost_models.base import CostModel, KernelFacts, Prices
from autofuse.cost_models.covariates import COLUMNS, covariates
from autofuse.cost_models.learned.trained import Card, Trained, load
from autofuse.errors import ModelError
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import replace
from autofuse.plan.identity import Identity, compare

TRAINED = Path(__file__).resolve().parents[1] / "trained"
"""Models that come with autofuse, by backend: `BACKEND.json` and `BACKEND.npz`."""
DOUBT = 1.5
"""How much wider the spread is where the prices are not corrected."""
NOT_COMPARED = frozenset(("threads", "generator"))
"""Fields of an identity that do not decide whether a correction applies: kernels of any number of workers are learned
from, and a change of generated code that moves times is one of the analytical model, whose version is compared."""


class LearnedModel:
    """See `autofuse.cost_models.base.CostModel`. It never changes."""

    def __init__(self, base: CostModel, trained: Trained | None, note: str | None = None) -> None:
        """`trained`: for this base; None where there is none for this machine, and `note` says why.

        Raises ModelError for a model that corrects another one.
        """
        self.base, self.trained, self.note = base, trained, note
        if trained is not None:
            _require_same_base(trained.card, base, "the model")

    def price(self, kernels: Sequence[KernelFacts]) -> Prices:
        """See `CostModel.price`. Raises ModelError for features that are NaN."""
        prices = self.base.price(kernels)
        if self.trained is None:
            return replace(prices, sigma=prices.sigma * DOUBT)
        if prices.features is None:
            raise ModelError(f"model {self._base_name!r} gives no features, from which a learned one corrects prices")
        rows = covariates(prices.us, prices.bound, prices.features, prices.terms)
        bad = np.argwhere(np.isnan(rows))
        if len(bad):
            number, column = bad[0]
            raise ModelError(f"kernel {kernels[number].program.name!r}: feature {COLUMNS[column]!r} is NaN")
        mean, sigma = self.trained.predict(rows)
        us = np.maximum(prices.us * np.exp(mean), prices.floor_us)
        return replace(prices, us=us, sigma=sigma)

    def write_us(self, value: TensorType) -> float:
        """See `CostModel.write_us`."""
        return self.base.write_us(value)

    def describe(self) -> dict[str, Any]:
        """See `CostModel.describe`."""
        base = self.base.describe()
        found: dict[str, Any] = {"name": "learned", "feature_version": base["feature_version"], "base": base}
        if self.note is not None:
            found["note"] = self.note
        if self.trained is not None:
            card = self.trained.card
            found |= {"dataset": card.dataset, "records": card.records, "arrays": self.trained.digest}
        return found

    @property
    def _base_name(self) -> str:
        return str(self.base.describe()["name"])


def learned_model(base: CostModel, identity: Identity, folder: Path | None = None) -> LearnedModel:
    """The learned model of a machine, over its analytical one.

    `folder`: where trained models lie, by backend; by default those that come with autofuse. Raises ModelError for a
    file that is unfit, or of another version of the features or of the analytical model.
    """
    path = (folder or TRAINED) / f"{identity.backend}.json"
    if not path.exists():
        return LearnedModel(base, None, f"no model was trained for backend {identity.backend}: prices are analytical")
    trained = load(path)
    _require_same_base(trained.card, base, str(path))
    differences = min((differing(machine, identity) for machine in trained.card.machines), key=len)
    if differences:
        fields = ", ".join(differences)
        note = f"the learned model is of another machine or toolchain (different: {fields}): prices are analytical"
        return LearnedModel(base, None, note)
    return LearnedModel(base, trained)


def differing(machine: Identity, other: Identity) -> list[str]:
    """The fields in which two machines differ for a learned model; none: what one tells holds for the other."""
    return [difference.field for difference in compare(machine, other) if difference.field not in NOT_COMPARED]


def _require_same_base(card: Card, base: CostModel, what: str) -> None:
    described = base.describe()
    for field, trained, here in (
        ("base", card.base, described["name"]),
        ("base_version", card.base_version, described.get("version")),
    ):
        if trained != here:
            raise ModelError(f"{what}: {field}: is {trained!r}, and the model here has {here!r}; train the model again")
