"""Which schedules of a kernel to try first: those that suit similar kernels, and those that the cost model prefers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from autofuse.cost_models.base import KernelFacts
from autofuse.cost_models.features import FEATURES_VERSION, matrix
from autofuse.errors import BackendError, LegalityError
from autofuse.fusion.candidate import work_of
from autofuse.fusion.kind import kind_of, title_of
from autofuse.ir.digest import digest
from autofuse.lazydataclass import replace
from autofuse.lower.decisions import Choices
from autofuse.lower.lowering import lower, plain_scalars
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import ArgReduce, Load, Map, Reduce, Scan, Statement, Store
from autofuse.lower.tile import Dot, OpaqueProgram, Step, TileProgram
from autofuse.measurement.client import Bench
from autofuse.measurement.kernelnotes import KernelNote
from autofuse.search.policies.context import Context
from autofuse.search.space.candidates import Candidate

_FROM_OTHERS, _FROM_MODEL = 2, 2
"""Most guesses of either kind."""
_PRICES_PER_TRIAL = 4
"""Schedules that the model is asked about; each takes some milliseconds, a trial a tenth of a second or more."""
_CLEARLY = 0.98
"""A schedule that the model likes better than the default must be this much cheaper."""
_MOST_TITLE = 80


class WarmStart:
    """First guesses for one kernel of a program after another.

    Similar kernels run the same loops with the same operations, at other sizes. Those of this program count as soon as
    they have been tuned; those of other programs if the bench has records of them. The records of this program's own
    kernels do not count, nor those of its variants, so that a second run on them makes the same guesses as the first.
    """

    def __init__(self, context: Context, bench: Bench) -> None:
        self._context, self._bench = context, bench
        variant = context.program.variant
        self._program = digest(context.program.graph) if variant is None else variant.origin
        self._notes: dict[str, KernelNote] = {}
        self._tuned: list[tuple[KernelNote, Schedule]] = []

    def guesses(self, candidate: Candidate, choices: Choices, trials: int) -> list[Schedule]:
        """Schedules other than the default, the best guess first; for half of the trials at most."""
        if not choices or not isinstance(candidate.program, TileProgram):
            return []
        note = self._notes[candidate.digest] = self._noted(candidate, candidate.program)
        self._bench.note(note)
        others = [fitting(schedule, choices) for schedule in nearest(note, [*self._tuned, *self._elsewhere(note)])]
        found = dict.fromkeys(others[:_FROM_OTHERS])
        if len(found) < trials // 2:
            modelled = cheapest(self._price_of(candidate), choices, _PRICES_PER_TRIAL * trials)
            found |= dict.fromkeys(modelled[:_FROM_MODEL])
        found.pop(Schedule(), None)
        return list(found)[: trials // 2]

    def learn(self, candidate: Candidate, best: Schedule) -> None:
        """Take note of the schedule that was found for a kernel."""
        if candidate.digest in self._notes:
            self._tuned.append((self._notes[candidate.digest], best))

    def _noted(self, candidate: Candidate, program: TileProgram) -> KernelNote:
        kind = kind_of(candidate.kernel)
        price = self._context.prices(self._context.space).get(candidate.digest)
        us = math.inf if price is None else price.predicted_us
        features = self._context.problem.target.features(program)
        return KernelNote(
            kernel=work_of(candidate.digest),
            title=f"{kind}_{title_of(candidate.kernel)}"[:_MOST_TITLE],
            kind=kind,
            program=self._program,
            family=family_of(program),
            features=tuple(round(float(value), 3) for value in matrix([features])[0]),
            predicted_us=us if us < math.inf else None,
        )

    def _elsewhere(self, note: KernelNote) -> list[tuple[KernelNote, Schedule]]:
        """Similar kernels of other programs, with their best schedules."""
        own = {work_of(digest) for digest in self._context.prices(self._context.space)}
        return [(found.note, fastest(found.times)) for found in self._bench.relatives(note.family, self._program, own)]

    def _price_of(self, candidate: Candidate) -> Callable[[Schedule], float]:
        """The model's price of a kernel under a schedule; infinite where that is no kernel."""
        kernel, model = candidate.kernel, self._context.model
        scalars = max(self._context.limits.scalars, plain_scalars(kernel))
        limits = replace(self._context.limits, scalars=scalars)
        programs: dict[Schedule, TileProgram | OpaqueProgram] = {}

        def price(schedule: Schedule) -> float:
            lowering = limits.decisions.lowering(schedule)
            try:
                if lowering not in programs:
                    programs[lowering] = lower(kernel, lowering, "kernel", limits)
                program = programs[lowering]
                steered = replace(program, schedule=schedule) if isinstance(program, TileProgram) else program
                return float(model.price([KernelFacts(steered)]).us[0])
            except (LegalityError, BackendError):
                return math.inf

        return price


def fastest(times: Mapping[Schedule, float]) -> Schedule:
    """The schedule with the shortest time."""
    return min(times, key=lambda schedule: times[schedule])


def fitting(schedule: Schedule, choices: Choices) -> Schedule:
    """What of a schedule a kernel with these choices can have; default values for the rest."""
    return Schedule.of(
        {decision: value for decision, known in choices.items() if (value := schedule[decision]) in known}
    )


def nearest(note: KernelNote, others: Sequence[tuple[KernelNote, Schedule]]) -> list[Schedule]:
    """The schedules of kernels of the same family, first of those whose features differ least."""
    kin = [
        (math.dist(note.features, other.features), place, schedule)
        for place, (other, schedule) in enumerate(others)
        if other.family == note.family and len(other.features) == len(note.features)
    ]
    return list(dict.fromkeys(schedule for _, _, schedule in sorted(kin, key=lambda found: found[:2])))


def cheapest(price: Callable[[Schedule], float], choices: Choices, most: int) -> list[Schedule]:
    """Schedules whose price is clearly below the default's, cheapest first, one of each price.

    From the default, one decision after another takes the value of least price, round and round until none changes;
    `price` is asked `most` times at most.
    """
    best = default = Schedule()
    known = {default: price(default)}
    moved = True
    while moved:
        moved = False
        for decision, options in choices.items():
            for other in [best.deciding({decision: option}) for option in options]:
                if other not in known and len(known) < most:
                    known[other] = price(other)
            least = fastest(known)
            moved = moved or known[least] < known[best]
            best = least
    distinct = {us: schedule for schedule, us in reversed(known.items())}
    return [distinct[us] for us in sorted(distinct) if us < _CLEARLY * known[default]]


def family_of(program: TileProgram) -> str:
    """A digest of the loops that a kernel runs and of the operations in each; extents do not count."""
    lines = [f"features {FEATURES_VERSION}"]
    for launch in program.launches:
        lines.append("launch")
        for phase in launch:
            lines.append(f"phase {len(phase.grid)} {'rows' if phase.row_block is None else 'panels'}")
            lines += [line for step in phase.steps for line in _described(step)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _described(step: Step) -> Iterator[str]:
    if isinstance(step, Dot):
        yield f"dot {step.dtype.name}{' fast' if step.fast else ''}"
        return
    for stage in step.stages:
        operations = {_operation(statement) for statement in stage.body}
        yield f"stage {len(stage.symbols)} {' '.join(sorted(operations))}"


def _operation(statement: Statement) -> str:
    match statement:
        case Load(dtype=dtype):
            return f"load:{dtype.name}"
        case Store():
            return "store"
        case Map(opcode=opcode, dtype=dtype, fast=fast):
            return f"{opcode}{'~' if fast else ''}:{dtype.name}"
        case Reduce(combiner=combiner, dtype=dtype):
            return f"reduce_{combiner}:{dtype.name}"
        case Scan(combiner=combiner, dtype=dtype):
            return f"scan_{combiner}:{dtype.name}"
        case ArgReduce(direction=direction, dtype=dtype):
            return f"{direction}:{dtype.name}"
        case _:  # constants, positions and tests: how many there are depends on sizes
            return ""
