"""What is computed: figures of every model on held-out kernels, learning curves, and choices in whole spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from figures import figures, measured_again
from numpy.typing import NDArray
from regressors import GROUPS, MODELS, Fit, Predict, learned
from samples import Samples
from spaces import WholeSpace, choice, whole_spaces

from autofuse.cost_models.learned.training import FOLDS, folds_of

SPLITS = ("grouped", "family", "record")
"""Held out together: programs whatever their sizes, families of programs, and, as a warning, single records."""
CURVE = (0.1, 0.25, 0.5, 1.0)
"""Shares of the programs that are learned from."""


Figure = Mapping[str, float]
"""Figures by name."""
Cell = tuple[Mapping[str, Any], Callable[[], Figure | None]]
"""What tells a cell from others, and what computes it; None where there is nothing to tell."""


@dataclass(frozen=True)
class Settings:
    """How much is computed."""

    models: Sequence[str] = tuple(MODELS)
    seeds: int = 3
    folds: int = 5


def cells(samples: Samples, settings: Settings) -> Iterator[Cell]:
    """All there is to compute: what a cell is called, as plain data, and what computes its figures."""
    yield {"kind": "measured again"}, partial(_again, samples)
    wanted: list[tuple[str, int, str, Fit, float]] = []
    for split in SPLITS:
        seeds = range(1 if split == "family" else settings.seeds)
        wanted += [(split, seed, name, MODELS[name], 1.0) for seed in seeds for name in settings.models]
    wanted += [("grouped", 0, f"learned without {group}", learned(without=group), 1.0) for group in (*GROUPS, "shape")]
    wanted += [("grouped", 0, "learned", MODELS["learned"], share) for share in CURVE[:-1]]
    for split, seed, name, fit, share in wanted:
        fold = parts(samples, split, settings.folds, seed)
        if _leaves_enough(samples, fold):
            key = {"kind": "held out", "split": split, "seed": seed, "model": name, "share": share}
            yield key, partial(_held_out, samples, fold, fit, share, seed)
    yield from _choices(samples, settings)


def _held_out(samples: Samples, fold: NDArray[Any], fit: Fit, share: float, seed: int) -> Figure:
    """Figures of a model of the kernels that it did not see."""
    mean, sigma = np.zeros(len(fold)), np.zeros(len(fold))
    for number in np.unique(fold):
        chosen, others = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        predict = fit(samples, _part_of(samples, chosen, share, seed), seed)
        mean[others], sigma[others] = predict(samples.rows[others], samples.sigma[others])
    return asdict(figures(samples, mean, sigma, np.arange(len(fold))))


def _again(samples: Samples) -> Figure | None:
    found = measured_again(samples)
    return None if found is None else asdict(found)


def _leaves_enough(samples: Samples, fold: NDArray[Any]) -> bool:
    """Whether there are programs to learn from beside each fold."""
    groups = samples.numbered("grouped")
    return all(len(np.unique(groups[fold != number])) >= FOLDS for number in np.unique(fold))


def parts(samples: Samples, split: str, folds: int, seed: int) -> NDArray[Any]:
    """The fold of each sample; families are a fold each, where there are several."""
    groups = samples.numbered(split)
    return groups if split == "family" else folds_of(groups, folds, seed)


def _part_of(samples: Samples, chosen: NDArray[Any], share: float, seed: int) -> NDArray[Any]:
    """Those of a share of the programs."""
    groups = samples.numbered("grouped")
    names = np.random.default_rng(seed).permutation(np.unique(groups[chosen]))
    return chosen[np.isin(groups[chosen], names[: max(10, round(share * len(names)))])]


def _choices(samples: Samples, settings: Settings) -> Iterator[Cell]:
    """What models that did not see a program choose in its whole space."""
    groups = np.array([one.program.grouped for one in samples.seen])
    fold = folds_of(samples.numbered("grouped"), settings.folds, 0)
    fits: dict[tuple[str, int], Predict] = {}

    def chosen(space: WholeSpace, name: str) -> Figure | None:
        number = _fold_of(space, groups, fold)
        if (name, number) not in fits:
            fits[name, number] = MODELS[name](samples, np.flatnonzero(fold != number), 0)
        found = choice(space, fits[name, number], 0)
        return None if found is None else asdict(found)

    for space in whole_spaces(samples):
        for name in settings.models:
            yield {"kind": "choice", "model": name, "program": space.name}, partial(chosen, space, name)


def _fold_of(space: WholeSpace, groups: NDArray[Any], fold: NDArray[Any]) -> int:
    held = fold[groups == space.grouped]
    return int(held[0]) if len(held) else -1
