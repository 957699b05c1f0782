"""Trains the learned cost model on a data set: `python experiments/cost_model_eval/train.py RECORDS --out FOLDER`.

Records of one backend become `FOLDER/BACKEND.json` and `.npz`. The usual folder, `cost_models/trained`, is where
`model="learned"` looks: a model belongs there once the study shows that it chooses no worse than the analytical one.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from figures import figures
from provenance import ROOT, commit
from samples import Samples, samples_of, target_of

from autofuse.cost_models.learned.model import learned_model
from autofuse.cost_models.learned.trained import Card, Trained, save
from autofuse.cost_models.learned.training import USUAL, Examples, Settings, train
from autofuse.errors import AutofuseError, ModelError
from autofuse.plan.identity import Identity


def trained_on(samples: Samples, dataset: str, settings: Settings = USUAL, seed: int = 0) -> Trained:
    """A model of all samples, its card with figures of held-out programs.

    Each residual is of the machine's own prices, so those of several machines are learned from together. Raises
    ModelError for records of two backends.
    """
    machines = _machines(samples)
    groups = samples.numbered("grouped")
    fitted = train(Examples(samples.rows, samples.logs, groups), settings, seed)
    sigma = np.exp(fitted.spread.predict(samples.rows)) * fitted.spread_scale
    held = figures(samples, fitted.held_out, sigma, np.arange(len(samples.seen)))
    base = target_of(samples.seen[0]).cost_model().describe()
    card = Card(
        base=base["name"],
        base_version=base["version"],
        machines=machines,
        most_log=settings.most_log,
        spread_scale=fitted.spread_scale,
        records=len(samples.seen),
        programs=int(groups.max()) + 1,
        dataset=dataset,
        metrics={name: float(getattr(held, name)) for name in ("mape", "sigma", "pairs")},
        commit=commit(),
    )
    return Trained(card, fitted.mean, fitted.spread)


def _machines(samples: Samples) -> tuple[Identity, ...]:
    """One identity of each machine, the one with most records first."""
    numbers, first, records = np.unique(samples.numbered("machine"), return_index=True, return_counts=True)
    machines = tuple(samples.seen[first[n]].identity for n in sorted(numbers, key=lambda n: -records[n]))
    backends = sorted({machine.backend for machine in machines})
    if len(backends) > 1:
        raise ModelError(f"the records are of several backends ({', '.join(backends)}); train on one's")
    return machines


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, help="a file of records in columns (.npz)")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "cost_models" / "trained", help="folder (default %(default)s)"
    )
    options = parser.parse_args(argv)
    try:
        samples = samples_of(options.records)
        trained = trained_on(samples, hashlib.sha256(options.records.read_bytes()).hexdigest())
        path = options.out / f"{trained.card.machines[0].backend}.json"
        save(trained, path)
        learned_model(
            target_of(samples.seen[0]).cost_model(), trained.card.machines[0], options.out
        )  # it can be loaded
    except AutofuseError as error:
        print(error, file=sys.stderr)
        return 2
    print(
        f"{path}: {trained.card.records} records of {trained.card.programs} programs; held out: {trained.card.metrics}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
