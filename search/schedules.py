"""Which schedules of a kernel are worth trying, and the seeded search over them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, Reduce, RowGroup, Space, TileProgram

Choices = dict[str, tuple[Any, ...]]

_STREAMED_BYTES = 8 << 20
"""An output this large does not stay in a core's caches, so writing past them can pay."""


def choices_for(program: TileProgram | OpaqueProgram) -> Choices:
    """The decisions that change this kernel's code, each with its values; empty if there is nothing to decide."""
    if isinstance(program, OpaqueProgram):
        return {}
    choices: Choices = {}
    stages = [
        stage
        for phase in program.phases()
        for step in phase.steps
        if isinstance(step, RowGroup)
        for stage in step.stages
    ]
    if any(phase.panel is not None for phase in program.phases()):
        choices["panel_rows"] = (32, 64, 128, 256, 512, 1024)
    elif any(stage.symbols for stage in stages):
        choices["lane"] = ("auto", "grid", "stream")
    if stages:
        choices["unroll"] = (1, 2, 4, 8)
        choices["vector_bits"] = (256, 512)
    if any(b.space is Space.OUTPUT and b.type.nbytes >= _STREAMED_BYTES for b in program.buffers):
        choices["stream_stores"] = (False, True)
    if any(buffer.space is Space.SCRATCH for buffer in program.buffers):
        choices["placement"] = ("scratch", "recompute")
    if any(isinstance(s, Reduce) for stage in stages for s in stage.body) and "panel_rows" not in choices:
        choices["split"] = (0, 1, 4, 8, 32)
    return choices


def tune_schedule(
    choices: Choices,
    measure: Callable[[Schedule], float],
    trials: int,
    seed: int,
    start: Sequence[Schedule] = (Schedule(),),
) -> tuple[Schedule, float, int]:
    """The best schedule found in at most `trials` measurements, its time, and how many were tried.

    `start` is tried first. Optuna's TPE proposes the rest from a fixed seed; a proposal seen before costs nothing.
    """
    known: dict[Schedule, float] = {}
    for schedule in start:
        known[schedule] = measure(schedule)
    if choices and trials > len(known):
        _search(choices, measure, trials, seed, known)
    best = min(known, key=lambda schedule: known[schedule])
    return best, known[best], len(known)


def _search(
    choices: Choices, measure: Callable[[Schedule], float], trials: int, seed: int, known: dict[Schedule, float]
) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Optuna warns about a default of its own
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=6)
    study = optuna.create_study(sampler=sampler)
    repeats = 0
    while len(known) < trials and repeats < 4 * trials:
        trial = study.ask()
        values: dict[str, Any] = {name: trial.suggest_categorical(name, options) for name, options in choices.items()}
        schedule = replace(Schedule(), **values)
        if schedule in known:
            repeats += 1
        else:
            known[schedule] = measure(schedule)
        value = known[schedule]
        if value == float("inf"):
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, value)
