"""Which schedules of a kernel are worth trying, and the seeded search over them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from autofuse.lower.schedule import Schedule
from autofuse.lower.streaming import streams_stores
from autofuse.lower.tile import Dot, OpaqueProgram, Reduce, RowGroup, Space, TileProgram

Choices = dict[str, tuple[Any, ...]]

_WIDE_BITS = 512
"""Narrower machines have one width that is worth using, which is what they get by default."""
_STREAMED_BYTES = 8 << 20
"""An output this large does not stay in a core's caches, so writing past them can pay."""


def choices_for(program: TileProgram | OpaqueProgram, vector_bits: int | None = None) -> Choices:
    """The decisions that change this kernel's code, each with its values; empty if there is nothing to decide.

    `vector_bits`: the widest vectors of the device; None if not known.
    """
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
        choices["panel_rows"] = (0, 32, 64, 128, 256, 512, 1024)
    elif any(stage.symbols for stage in stages):
        choices["lane"] = ("auto", "grid", "stream")
    if any(isinstance(s, Dot) and s.dtype.name in ("f32", "f64") for p in program.phases() for s in p.steps):
        choices["dots"] = ("auto", "library")
    if stages:
        choices["unroll"] = (1, 2, 4, 8)
        if vector_bits is None or vector_bits >= _WIDE_BITS:
            choices["vector_bits"] = (_WIDE_BITS // 2, _WIDE_BITS)
    if any(b.space is Space.OUTPUT and b.type.nbytes >= _STREAMED_BYTES for b in program.buffers):
        choices["stream_stores"] = (None, not streams_stores(program))
    if any(buffer.space is Space.SCRATCH for buffer in program.buffers):
        choices["placement"] = ("scratch", "recompute")
    if any(isinstance(s, Reduce) for stage in stages for s in stage.body) and "panel_rows" not in choices:
        choices["split"] = (0, 1, 4, 8, 32)
    return choices


def tune_schedule(
    choices: Choices,
    measure: Callable[[Schedule], float | None],
    trials: int,
    seed: int,
    known: Mapping[Schedule, float],
) -> tuple[Schedule, float, int]:
    """The best schedule, its time, and how many were measured: at most `trials` with those already `known`.

    `measure` gives infinity for a schedule that fails, None when the budget is used up. Optuna's TPE proposes schedules
    from a fixed seed, told of the known ones; a proposal seen before costs nothing.
    """
    times = dict(known)
    if choices:
        _search(choices, measure, trials, seed, times)
    best = min(times, key=lambda schedule: times[schedule])
    return best, times[best], len(times) - len(known)


def _search(
    choices: Choices,
    measure: Callable[[Schedule], float | None],
    trials: int,
    seed: int,
    times: dict[Schedule, float],
) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Optuna warns about a default of its own
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=6)
    study = optuna.create_study(sampler=sampler)
    for schedule in times:
        study.enqueue_trial({name: getattr(schedule, name) for name in choices}, skip_if_exists=True)
    repeats = 0
    while len(times) < trials and repeats < 4 * trials:
        trial = study.ask()
        values: dict[str, Any] = {name: trial.suggest_categorical(name, options) for name, options in choices.items()}
        schedule = replace(Schedule(), **values)
        repeats += schedule in times
        us = times[schedule] if schedule in times else measure(schedule)
        if us is None:
            return
        times[schedule] = us
        if us == math.inf:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, us)
