"""Records as Optuna studies, one per kernel, so that optuna-dashboard shows which schedules were tried.

They are made from the record database after the fact: nothing that writes studies can disturb tuning, and runs of any
number, also merged ones of other machines, can be looked at.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from autofuse.errors import ArgumentError
from autofuse.lower.decisions import Decisions
from autofuse.lower.schedule import Decision, Schedule
from autofuse.measurement.database import Database
from autofuse.measurement.kernelnotes import KernelNote
from autofuse.measurement.kernelrecords import PRUNED
from autofuse.measurement.records import Record
from autofuse.plan.identity import Identity
from autofuse.search.schedules.schedulesearch import silent_optuna

_MOST_MESSAGE = 1000


def write_studies(database: Database, path: Path, decisions_of: Callable[[str], Decisions]) -> int:
    """Write a study for each kernel that was measured under several schedules, and return how many.

    `decisions_of`: those of a target, by its name. The file is a journal of Optuna's. Trials have the decisions that
    were varied as parameters and microseconds as values; those given up early are pruned, those that failed say why.
    Raises ArgumentError for a file that exists or cannot be written and where there is no such kernel, SearchError
    without Optuna.
    """
    optuna = silent_optuna()
    kernels = _searched(database.records(all_devices=True))
    if not kernels:
        raise ArgumentError(f"{database.path} has no kernel that was measured under several schedules")
    notes, machines = database.all_notes(), database.devices()
    try:
        if path.exists():
            raise ArgumentError(f"{path} exists already; give the name of a new file")
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".autofuse-") as folder:
            journal = Path(folder, "journal")
            storage = _storage(optuna, journal)
            names: dict[str, int] = {}
            for records in kernels:
                first = records[0]
                note = notes.get((first.device, first.measurement.kernel))
                study = optuna.create_study(storage=storage, study_name=_name(first, note, names))
                for key, value in _attributes(first, note, machines[first.device]).items():
                    study.set_user_attr(key, value)
                _add_trials(optuna, study, records, decisions_of(machines[first.device].backend))
            journal.rename(path)
    except OSError as failure:
        raise ArgumentError(f"cannot write {path}: {failure.strerror or failure}") from failure
    return len(kernels)


def _searched(records: Sequence[Record]) -> list[list[Record]]:
    """Comparable records of each kernel that has several schedules."""
    found: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        m = record.measurement
        values = m.input_values if m.status == "ok" else ""
        key = (record.device, m.kernel, m.code_version, values, m.policy.removesuffix(PRUNED))
        found.setdefault(key, []).append(record)
    return [group for group in found.values() if len({record.measurement.schedule for record in group}) > 1]


def _storage(optuna: Any, journal: Path) -> Any:
    backend = optuna.storages.journal
    lock = backend.JournalFileOpenLock(str(journal))  # the default one needs symbolic links
    return optuna.storages.JournalStorage(backend.JournalFileBackend(str(journal), lock_obj=lock))


def _name(record: Record, note: KernelNote | None, taken: dict[str, int]) -> str:
    title = record.measurement.signature if note is None else note.title
    name = f"{title} {record.measurement.kernel[:12]}"
    taken[name] = number = taken.get(name, 0) + 1
    return name if number == 1 else f"{name} ({number})"


def _attributes(record: Record, note: KernelNote | None, machine: Identity) -> dict[str, Any]:
    m = record.measurement
    known: dict[str, Any] = (
        {"title": note.title, "kind": note.kind, "predicted_us": note.predicted_us} if note is not None else {}
    )
    return {
        "kernel": m.kernel,
        **known,
        "signature": m.signature,
        "unit": "microseconds",
        "machine": machine.product,
        "device": record.device,
        "code_version": m.code_version,
        "policy": m.policy.removesuffix(PRUNED),
    }


def _add_trials(optuna: Any, study: Any, records: Sequence[Record], decisions: Decisions) -> None:
    differing = _differing([record.measurement.schedule for record in records], decisions)
    categorical = optuna.distributions.CategoricalDistribution
    categories = {decision.name: categorical(values) for decision, values in differing.items()}
    for record in records:
        params = {decision.name: record.measurement.schedule[decision] for decision in differing}
        trial = optuna.trial.create_trial(params=params, distributions=categories, **_result(optuna, record))
        trial.datetime_start = trial.datetime_complete = datetime.fromtimestamp(record.created_ns / 1e9)
        study.add_trial(trial)


def _differing(schedules: Sequence[Schedule], decisions: Decisions) -> Mapping[Decision[Any], tuple[Any, ...]]:
    """What the schedules differ in: decision to values, None first."""
    values = {decision: {schedule[decision] for schedule in schedules} for decision in decisions.by_name.values()}
    return {
        decision: tuple(sorted(found, key=lambda value: (value is not None, value)))
        for decision, found in values.items()
        if len(found) > 1
    }


def _result(optuna: Any, record: Record) -> dict[str, Any]:
    """State, value and attributes of a trial."""
    m, state = record.measurement, optuna.trial.TrialState
    if m.us is None:
        return {"state": state.FAIL, "user_attrs": {"status": m.status, "message": m.message[:_MOST_MESSAGE]}}
    attributes = {"samples": len(m.samples_us)}
    if m.policy.endswith(PRUNED):
        early = {0: m.us}
        return {"state": state.PRUNED, "value": m.us, "intermediate_values": early, "user_attrs": attributes}
    return {"state": state.COMPLETE, "value": m.us, "user_attrs": attributes}
