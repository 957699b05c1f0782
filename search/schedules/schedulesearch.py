"""The seeded search over the schedules of one kernel: Optuna proposes them, in batches, and is told what they take."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autofuse.errors import SearchError
from autofuse.lower.decisions import Choices
from autofuse.lower.schedule import Schedule

BATCH = 4
"""Schedules asked for together: they are compiled beside each other, then timed one by one."""
HOPELESS = 3.0
"""A schedule that takes so many times as long as the best one so far need not be timed well."""
_RANDOM = 6
"""Schedules that are known before Optuna models which ones are good."""
_PROPOSALS = 4
"""Proposals per trial, at most: where few schedules are left, most proposals repeat an earlier one."""

Measure = Callable[[Sequence[Schedule], float], Sequence[float]]
"""Given schedules and a limit, their times in this order: infinite for one that fails; fewer than were asked for when
the budget is used up. Times beyond the limit may be rough."""


def tune_schedule(
    choices: Choices,
    measure: Measure,
    trials: int,
    seed: int,
    known: Mapping[Schedule, float],
    first: Sequence[Schedule] = (),
) -> tuple[Schedule, float, int]:
    """The best schedule, its time, and how many were measured: at most `trials` with those already `known`.

    Guesses are tried first, in their order. Then Optuna's TPE proposes schedules from a fixed seed, told of all that is
    known; a proposal seen before costs nothing. A space no larger than the trials is tried whole. Raises SearchError
    without Optuna.
    """
    times = dict(known)
    if choices:
        _search(choices, measure, trials, seed, times, first)
    best = min(times, key=lambda schedule: times[schedule])
    return best, times[best], len(times) - len(known)


def _search(
    choices: Choices,
    measure: Measure,
    trials: int,
    seed: int,
    times: dict[Schedule, float],
    first: Sequence[Schedule],
) -> None:
    size = math.prod(map(len, choices.values()))
    everything = _all_schedules(choices) if size <= trials else ()
    trials = min(trials, size)
    study = _study(seed)
    for schedule in (*times, *first, *everything):
        study.enqueue_trial({decision.name: schedule[decision] for decision in choices}, skip_if_exists=True)
    proposals = 0
    while len(times) < trials and proposals < _PROPOSALS * trials:
        asked = [_ask(study, choices) for _ in range(min(BATCH, trials - len(times)))]
        proposals += len(asked)
        limit = HOPELESS * min(times.values(), default=math.inf)
        fresh = list(dict.fromkeys(schedule for _, schedule in asked if schedule not in times))
        found = measure(fresh, limit) if fresh else ()
        times.update(zip(fresh, found, strict=False))
        if len(found) < len(fresh):
            return
        for trial, schedule in asked:
            _tell(study, trial, times[schedule], limit)


def _all_schedules(choices: Choices) -> list[Schedule]:
    return [_chosen(choices, values) for values in itertools.product(*choices.values())]


def _chosen(choices: Choices, values: Sequence[Any]) -> Schedule:
    return Schedule.of(dict(zip(choices, values, strict=True)))


def _study(seed: int) -> Any:
    optuna = silent_optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some releases call these options experimental
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=_RANDOM, multivariate=True, constant_liar=True)
    return optuna.create_study(sampler=sampler)


def _ask(study: Any, choices: Choices) -> tuple[Any, Schedule]:
    trial = study.ask()
    values = [trial.suggest_categorical(decision.name, options) for decision, options in choices.items()]
    return trial, _chosen(choices, values)


def _tell(study: Any, trial: Any, us: float, limit: float) -> None:
    """A schedule beyond the limit is pruned. So is one that fails: TPE would forget a failed trial."""
    if us <= limit and us < math.inf:
        study.tell(trial, us)
        return
    if us < math.inf:
        trial.report(us, step=0)
    study.tell(trial, state=silent_optuna().trial.TrialState.PRUNED)


def silent_optuna() -> Any:
    """The Optuna package, told not to log. Raises SearchError where it is not installed."""
    try:
        import optuna
    except ImportError:
        raise SearchError("tuning needs Optuna, which is not installed: pip install 'autofuse[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
