"""What is computed: figures of every model on held-out kernels, learning curves, and choices in whole spaces.

A cell is one row of a table, under a key of plain data. Cells of one model and seed are a task: they share what was
fitted. The tasks that cost most come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from figures import coverage, figures, measured_again
from heldout import HeldOut, leaves_enough
from regressors import GROUPS, MODELS
from samples import Samples
from spaces import WholeSpace, choice, noise_of

SPLITS = ("grouped", "family", "record", "machine")
"""Held out together: programs whatever their sizes, families of programs, as a warning single records, and machines."""
CURVE = (0.1, 0.25, 0.5)
"""Shares of the programs that are learned from, beside all of them."""

Key = Mapping[str, Any]
"""What tells a cell from others."""
Found = Mapping[str, Any]
"""What is computed for it: `figures` by name, None where there is nothing to tell, and what plots need."""
Task = tuple[Key, ...]
"""Cells that share fits."""


@dataclass(frozen=True)
class Settings:
    """How much is computed."""

    models: Sequence[str] = tuple(MODELS)
    seeds: int = 3
    folds: int = 5
    curves: Sequence[str] = ("ridge", "learned")
    """Models whose learning curves are drawn."""
    without: Sequence[str] = ("ridge", "learned, two bags")
    """Models that also learn without each group of columns, on all splits and seeds."""
    programs_only: Sequence[str] = ("learned, centred",)
    """Models that are judged on programs held out, and by their choices."""


@dataclass(frozen=True)
class Study:
    """All that figures come from."""

    samples: Samples
    spaces: Sequence[WholeSpace]
    settings: Settings

    def prepare(self) -> None:
        """Compute what all tasks read."""
        _ = self.samples.rows, self.samples.logs, self.samples.numbered("grouped")

    def tasks(self) -> list[Task]:
        """All there is to compute."""
        splits = [split for split in SPLITS if leaves_enough(self.samples, split, self.settings.folds)]
        found: list[Task] = []
        for model in reversed(self.settings.models):
            for seed in range(self.settings.seeds):
                judged = splits if model not in self.settings.programs_only else [s for s in splits if s == "grouped"]
                own = tuple(_held(split, seed, model) for split in judged)
                chosen = tuple(_choice(space, seed, model) for space in self.spaces)
                found.append((*own, *chosen))
                if model in self.settings.without:
                    found += [tuple(_held(s, seed, model, without) for s in splits) for without in (*GROUPS, "shape")]
                if model in self.settings.curves and "grouped" in splits:
                    found += [(_held("grouped", seed, model, share=share),) for share in CURVE]
        return [
            *found,
            ({"kind": "measured again"},),
            *(({"kind": "space", "program": space.name},) for space in self.spaces),
        ]

    def computed(self, task: Task) -> Iterator[tuple[Key, Found]]:
        """The cells of a task."""
        models: dict[tuple[Any, ...], HeldOut] = {}
        spaces = {space.name: space for space in self.spaces}
        for key in task:
            if key["kind"] == "measured again":
                yield key, {"figures": _plain(measured_again(self.samples))}
            elif key["kind"] == "space":
                yield key, {"figures": _plain(noise_of(spaces[key["program"]]))}
            else:
                about = key["model"], key["seed"], self.settings.folds, key.get("without", ""), key.get("share", 1.0)
                model = models.setdefault(about, HeldOut(self.samples, *about))
                yield (
                    key,
                    self._held_out(key, model)
                    if key["kind"] == "held out"
                    else self._chosen(spaces[key["program"]], model),
                )

    def _held_out(self, key: Key, model: HeldOut) -> Found:
        """Figures of the kernels that a model did not see."""
        mean, sigma = model.predicted(key["split"])
        every = np.arange(len(self.samples.seen))
        found: dict[str, Any] = {"figures": asdict(figures(self.samples, mean, sigma, every))}
        if key["split"] == "grouped" and key["seed"] == 0 and not key["without"] and key["share"] == 1.0:
            found["coverage"] = [round(share, 3) for share in coverage(self.samples, mean, sigma)]
        return found

    def _chosen(self, space: WholeSpace, model: HeldOut) -> Found:
        """What a model that did not see a program chooses in its whole space."""
        return {"figures": _plain(choice(space, model.predict(model.fold_of(space.grouped)), model.seed))}


def _held(split: str, seed: int, model: str, without: str = "", share: float = 1.0) -> Key:
    return {"kind": "held out", "split": split, "seed": seed, "model": model, "without": without, "share": share}


def _choice(space: WholeSpace, seed: int, model: str) -> Key:
    return {"kind": "choice", "model": model, "seed": seed, "program": space.name}


def _plain(figure: Any) -> Mapping[str, float] | None:
    return None if figure is None else asdict(figure)
