"""A trained model as two files: a card of JSON that says what it is for, and its numbers as an `.npz` archive.

The card names the archive and its SHA-256. Neither is trusted: a file that is truncated, foreign, or of another version
is one ModelError with the file and the field. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from autofuse.arrayfile import read_arrays, write_arrays
from autofuse.cost_models.covariates import COLUMNS
from autofuse.cost_models.features import FEATURES_VERSION
from autofuse.cost_models.learned.forest import Forest
from autofuse.errors import ModelError
from autofuse.lazydataclass import dataclass
from autofuse.plainfile import read_plain
from autofuse.plan.atomic import written_whole
from autofuse.plan.identity import Identity, identity_from, identity_to_json
from autofuse.strictjson import Item, parse

FORMAT = 2
"""Of the files. Raised when a reader of an earlier version would misread them."""
_MOST_BYTES = 32 << 20
"""Of the card, of the archive, and of what it holds."""
_MOST_DEPTH = 12
_MOST_MACHINES = 100
_FORESTS = ("mean", "spread")
_CARD = (
    *("format", "feature_version", "columns", "base", "base_version", "machines", "most_log", "spread_scale"),
    *("records", "programs", "dataset", "metrics", "commit", "sha256"),
)
"""Keys of a card."""


@dataclass(frozen=True, slots=True)
class Card:
    """What a trained model is for, and what it comes from."""

    base: str
    """`name` of the description of the model that it corrects."""
    base_version: int
    """Its `version`."""
    machines: tuple[Identity, ...]
    """One identity of each machine that the records come from."""
    most_log: float
    """Largest correction of the logarithm of a price, up or down; what it was trained on was clipped to it."""
    spread_scale: float
    """By which the predicted spread is multiplied, so that nine in ten residuals of programs held out lie within 1.645
    standard deviations."""
    records: int
    """Kernels under schedules that it was trained on."""
    programs: int
    """Groups of programs that these come from."""
    dataset: str
    """SHA-256 of the file of records."""
    metrics: Mapping[str, float]
    """Of programs held out in training, by name."""
    commit: str = ""
    """Of autofuse, as far as known."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained model."""

    card: Card
    mean: Forest
    """Mean of log(measured / base price), by `covariates`."""
    spread: Forest
    """Logarithm of its standard deviation, before `spread_scale`."""

    @property
    def digest(self) -> str:
        """SHA-256 of all that decides what it predicts."""
        found = hashlib.sha256(f"{self.card.most_log} {self.card.spread_scale}".encode())
        for array in (array for forest in (self.mean, self.spread) for array in _parts(forest).values()):
            found.update(str(array.shape).encode() + array.tobytes())
        return found.hexdigest()

    def predict(self, rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Mean and standard deviation of log(measured / base price), f64[n] each, of rows of `covariates`."""
        mean = np.clip(self.mean.predict(rows), -self.card.most_log, self.card.most_log)
        return mean, np.exp(self.spread.predict(rows)) * self.card.spread_scale


def save(trained: Trained, path: Path) -> None:
    """Write the card to `path`, which ends in `.json`, and the archive beside it. Raises ModelError."""
    arrays = {f"{name}_{part}": array for name in _FORESTS for part, array in _parts(getattr(trained, name)).items()}
    buffer = io.BytesIO()
    write_arrays(buffer, arrays, zipfile.ZIP_DEFLATED)
    numbers = buffer.getvalue()
    card = _card_to_json(trained.card, hashlib.sha256(numbers).hexdigest())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for file, content in ((path.with_suffix(".npz"), numbers), (path, json.dumps(card, indent=1).encode() + b"\n")):
            with written_whole(file.absolute().parent) as (opened, place):
                opened.write(content)
                place(file)
    except OSError as failure:
        raise ModelError(f"cannot write {path}: {failure.strerror or failure}") from failure


def load(path: Path) -> Trained:
    """Read what `save` wrote. Raises ModelError that names the file and the field for anything else."""
    try:
        text = read_plain(path, _MOST_BYTES)
    except OSError as failure:
        raise ModelError(f"{path}: cannot be read: {failure.strerror or failure}") from failure
    card, sha256 = _card_from(parse(text, ModelError, str(path)))
    archive = _Archive(path.with_suffix(".npz"), sha256)
    return Trained(card, archive.forest("mean"), archive.forest("spread"))


def _parts(forest: Forest) -> dict[str, NDArray[Any]]:
    return {
        "base": np.array(forest.base, np.float64),
        "feature": forest.feature.astype(np.int16),
        "threshold": forest.threshold.astype(np.float64),
        "value": forest.value.astype(np.float64),
    }


def _card_to_json(card: Card, sha256: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "feature_version": FEATURES_VERSION,
        "columns": list(COLUMNS),
        "base": card.base,
        "base_version": card.base_version,
        "machines": [identity_to_json(machine) for machine in card.machines],
        "most_log": card.most_log,
        "spread_scale": card.spread_scale,
        "records": card.records,
        "programs": card.programs,
        "dataset": card.dataset,
        "metrics": dict(card.metrics),
        "commit": card.commit,
        "sha256": sha256,
    }


def _card_from(item: Item) -> tuple[Card, str]:
    head = item.members(at_most=100)
    if "format" not in head:
        item.fail("the key 'format' is missing; this is no card of a trained cost model")
    for key, here in (("format", FORMAT), ("feature_version", FEATURES_VERSION)):
        if key in head and head[key].value != here:
            head[key].fail(f"is {head[key].value!r:.80}, and this autofuse has {here}; train the model again")
    keys = item.fields(_CARD)
    if keys["columns"].value != list(COLUMNS):
        keys["columns"].fail("are not the columns of this autofuse; train the model again")
    metrics = {name: value.number(-1e18) for name, value in keys["metrics"].members(1000).items()}
    card = Card(
        base=keys["base"].text(),
        base_version=keys["base_version"].integer(0, 1 << 31),
        machines=_machines_from(keys["machines"]),
        most_log=keys["most_log"].number(0.0, 20.0),
        spread_scale=keys["spread_scale"].number(1e-3, 1e3),
        records=keys["records"].integer(0, 1 << 40),
        programs=keys["programs"].integer(0, 1 << 40),
        dataset=keys["dataset"].text(),
        metrics=metrics,
        commit=keys["commit"].text(),
    )
    return card, keys["sha256"].text()


def _machines_from(item: Item) -> tuple[Identity, ...]:
    machines = tuple(map(identity_from, item.items(_MOST_MACHINES)))
    if len({machine.backend for machine in machines}) != 1:
        item.fail("must be one machine or more, all of one backend")
    return machines


class _Archive:
    """The numbers of a model, checked as they are taken."""

    def __init__(self, path: Path, sha256: str) -> None:
        self.path = path
        try:
            content = read_plain(path, _MOST_BYTES)
        except OSError as failure:
            raise ModelError(f"{path}: cannot be read: {failure.strerror or failure}") from failure
        if hashlib.sha256(content).hexdigest() != sha256:
            self._unfit("sha256", "is not the one that the card names: the file is truncated, or of another model")
        self._arrays = read_arrays(io.BytesIO(content), _MOST_BYTES, ModelError, path)

    def forest(self, name: str) -> Forest:
        """One of the model's forests. Raises ModelError for what is none."""
        base = self._array(f"{name}_base", np.float64, 0)
        value = self._array(f"{name}_value", np.float64, 2)
        trees, leaves = value.shape
        if leaves not in [1 << depth for depth in range(_MOST_DEPTH + 1)]:
            self._unfit(f"{name}_value", f"has trees of {leaves} leaves, no power of two up to {1 << _MOST_DEPTH}")
        feature = self._array(f"{name}_feature", np.int16, 2)
        threshold = self._array(f"{name}_threshold", np.float64, 2, may_be=math.inf)
        for part, array in (("feature", feature), ("threshold", threshold)):
            if array.shape != (trees, leaves - 1):
                self._unfit(f"{name}_{part}", f"has the shape {array.shape}, not {(trees, leaves - 1)}")
        if feature.size and not (feature.min() >= 0 and feature.max() < len(COLUMNS)):
            self._unfit(f"{name}_feature", f"names a column outside of 0..{len(COLUMNS) - 1}")
        return Forest(float(base), feature, threshold, value)

    def _array(self, name: str, dtype: type, rank: int, may_be: float | None = None) -> NDArray[Any]:
        if name not in self._arrays:
            self._unfit(name, "is missing")
        array = self._arrays[name]
        if array.dtype != dtype or array.ndim != rank:
            self._unfit(name, f"is {array.dtype}{list(array.shape)}, not {np.dtype(dtype)} of rank {rank}")
        finite = np.isfinite(array) if may_be is None else np.isfinite(array) | (array == may_be)
        if not finite.all():
            self._unfit(name, "holds what is no finite number")
        return array

    def _unfit(self, field: str, problem: str) -> NoReturn:
        raise ModelError(f"{self.path}: {field}: {problem}")
