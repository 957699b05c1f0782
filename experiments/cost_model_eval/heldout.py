"""A model learned from parts of the data, and what it says of the rest: fits are made once, and shared.

The folds of programs are learned first. What is left of programs when they are held out is what spreads are learned
from, of every split: that is what the model in autofuse does, but there each spread has folds of its own. Here a model
of another fold has seen the programs that a spread is for; their residuals, which is all that counts, it has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from regressors import MODELS, Mean, Predict, Spread, shown
from samples import Samples

from autofuse.cost_models.learned.forest import Forest
from autofuse.cost_models.learned.training import FOLDS, fit_spread, folds_of, scale_of

_NINETY = 1.645


@dataclass(frozen=True)
class Part:
    """One fold of a split."""

    known: NDArray[Any]
    """Numbers of the samples that are learned from."""
    held: NDArray[Any]
    """Of those that are held out."""


def folds(samples: Samples, split: str, count: int, seed: int) -> NDArray[Any]:
    """The fold of each sample; families, and machines, are a fold each."""
    groups = samples.numbered(split)
    return groups if split in ("family", "machine") else folds_of(groups, count, seed)


def leaves_enough(samples: Samples, split: str, count: int) -> bool:
    """Whether there are folds, and beside each of them programs to learn from."""
    fold, groups = folds(samples, split, count, 0), samples.numbered("grouped")
    numbers = np.unique(fold)
    return len(numbers) > 1 and all(len(np.unique(groups[fold != number])) >= FOLDS for number in numbers)


class HeldOut:
    """One model with one seed."""

    def __init__(self, samples: Samples, model: str, seed: int, count: int, without: str = "", share: float = 1.0):
        """`count`: of folds. `without`: a group of columns that is not seen. `share`: of programs to learn from."""
        self.samples, self.seed, self.share, self._count = samples, seed, share, count
        self._model, self._shown = MODELS[model], shown(without)

    def predicted(self, split: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Mean and standard deviation of all samples, f64[n] each, by what did not see their fold."""
        if split == "grouped":
            predicts = [self.predict(number) for number in range(len(self._parts))]
            parts: Sequence[Part] = self._parts
        else:
            parts = self._parts_of(split)
            predicts = [self._predict(self._fit(part), self._spread(part)) for part in parts]
        mean, sigma = np.zeros(len(self.samples.seen)), np.zeros(len(self.samples.seen))
        for part, predict in zip(parts, predicts, strict=True):
            mean[part.held], sigma[part.held] = predict(self._raw[part.held], self.samples.sigma[part.held])
        return mean, sigma

    def predict(self, number: int) -> Predict:
        """What predicts kernels of the programs of a fold."""
        return self._predict(self._means[number], self._spread(self._parts[number], number))

    def fold_of(self, grouped: str) -> int:
        """The fold of a program; any where no sample is of it."""
        fold = folds(self.samples, "grouped", self._count, self.seed)
        held = fold[[one.program.grouped == grouped for one in self.samples.seen]]
        return int(held[0]) if len(held) else 0

    # ---- fits ----------------------------------------------------------------------------------------------------

    @property
    def _raw(self) -> NDArray[Any]:
        return self.samples.rows

    @cached_property
    def _rows(self) -> NDArray[Any]:
        return self._raw if self._shown.all() else self._raw * self._shown

    @cached_property
    def _parts(self) -> list[Part]:
        return self._parts_of("grouped")

    def _parts_of(self, split: str) -> list[Part]:
        fold = folds(self.samples, split, self._count, self.seed)
        return [
            Part(self._shared(np.flatnonzero(fold != number)), np.flatnonzero(fold == number))
            for number in np.unique(fold)
        ]

    def _shared(self, chosen: NDArray[Any]) -> NDArray[Any]:
        """Those of a share of the programs."""
        if self.share == 1.0:
            return chosen
        groups = self.samples.numbered("grouped")
        names = np.random.default_rng(self.seed).permutation(np.unique(groups[chosen]))
        return chosen[np.isin(groups[chosen], names[: max(10, round(self.share * len(names)))])]

    def _fit(self, part: Part) -> Mean:
        return self._model.fit(self._rows, self.samples, part.known, self.seed)

    @cached_property
    def _means(self) -> list[Mean]:
        return [self._fit(part) for part in self._parts]

    @cached_property
    def _left(self) -> NDArray[Any]:
        """What is left of each sample, f64[n], when its program is held out."""
        left = self.samples.logs.copy()
        for part, mean in zip(self._parts, self._means, strict=True):
            left[part.held] -= mean(self._rows[part.held])
        return left

    @cached_property
    def _forests(self) -> list[Forest]:
        """The spreads of the folds of programs."""
        return [self._forest(part) for part in self._parts]

    def _forest(self, part: Part) -> Forest:
        return fit_spread(self._rows[part.known], self._left[part.known], self.seed)

    @cached_property
    def _widths(self) -> NDArray[Any]:
        """The spread of each sample, unscaled, as a logarithm, when its program is held out."""
        widths = np.zeros(len(self._left))
        for part, forest in zip(self._parts, self._forests, strict=True):
            widths[part.held] = forest.predict(self._rows[part.held])
        return widths

    def _spread(self, part: Part, number: int | None = None) -> Spread:
        """For what is held out of a part. `number`: of the fold of programs, if it is one."""
        match self._model.spread:
            case "own":
                return lambda _, sigma: sigma
            case "one":
                sigma = float(np.quantile(np.abs(self._left[part.known]), 0.9)) / _NINETY
                return lambda rows, _: np.full(len(rows), sigma)
            case "learned":
                scale = scale_of(self._left[part.known], self._widths[part.known])
                forest = self._forest(part) if number is None else self._forests[number]
                return lambda rows, _: np.exp(forest.predict(rows)) * scale

    def _predict(self, mean: Mean, spread: Spread) -> Predict:
        def predict(rows: NDArray[Any], sigma: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
            seen = rows if self._shown.all() else rows * self._shown
            return mean(seen), spread(seen, sigma)

        return predict
