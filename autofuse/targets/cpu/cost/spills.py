"""Whether LLVM is expected to spill vectors in a kernel, told from its statements, where nothing was compiled.

Registers hold the values of the iterations in flight, what is reduced, and the constants of vector functions, which
LLVM loads before a loop. A function by itself spills from some number of vectors in flight on. Both are read off LLVM's
own output for each function alone: `FUNCTIONS`, which a test makes again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

from autofuse.cost_models.liveness import StraightLine
from autofuse.cost_models.loopnest import sources_of
from autofuse.cost_models.operations import price_class
from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.statements import ArgReduce, Carry, Load, Map, Position, Reduce, Scan, Statement, Test
from autofuse.lower.tile import Phase, Stage, TileProgram
from autofuse.lower.varying import varying_scalars
from autofuse.targets.cpu.codegen.conditions import most_alive
from autofuse.targets.cpu.codegen.phaselayout import Layout, plan_layout, stages_of
from autofuse.targets.cpu.codegen.widths import Widths

FLIGHTS = (1, 2, 3, 4, 6, 8)
"""Vectors in flight for which each function was compiled alone."""
FUNCTIONS: Mapping[tuple[int, str], Mapping[str, tuple[int, int | None]]] = {
    (32, "f32"): {
        "sign": (4, None),
        "rsqrt": (10, None),
        "exp": (14, None),
        "exp2": (13, None),
        "expm1": (18, None),
        "log": (16, None),
        "log2": (16, None),
        "log1p": (22, None),
        "tanh": (17, None),
        "logistic": (17, None),
        "erf": (31, 6),
        "erf_inv": (31, 4),
        "cbrt": (26, 6),
        "power": (31, 4),
        "atan2": (21, None),
        "remainder": (9, 1),
        "sin": (25, 1),
        "cos": (24, 1),
        "tan": (25, 1),
    },
    (32, "f64"): {
        "sign": (4, None),
        "rsqrt": (13, None),
        "exp": (21, None),
        "exp2": (20, None),
        "expm1": (24, None),
        "log": (20, None),
        "log2": (20, None),
        "log1p": (26, 8),
        "tanh": (23, None),
        "logistic": (24, None),
        "erf": (31, 4),
        "erf_inv": (31, 2),
        "cbrt": (27, 4),
        "power": (31, 8),
        "atan2": (31, 4),
        "remainder": (9, 1),
        "sin": (31, 1),
        "cos": (30, 1),
        "tan": (31, 1),
    },
    (16, "f32"): {
        "sign": (5, None),
        "rsqrt": (11, 6),
        "exp": (15, 3),
        "exp2": (15, 4),
        "expm1": (15, 3),
        "log": (15, 2),
        "log2": (15, 2),
        "log1p": (15, 2),
        "tanh": (15, 3),
        "logistic": (15, 2),
        "erf": (15, 3),
        "erf_inv": (15, 1),
        "cbrt": (15, 1),
        "power": (15, 1),
        "atan2": (15, 2),
        "remainder": (11, 1),
        "sin": (15, 1),
        "cos": (15, 1),
        "tan": (15, 1),
    },
    (16, "f64"): {
        "sign": (5, None),
        "rsqrt": (15, 3),
        "exp": (15, 3),
        "exp2": (15, 3),
        "expm1": (15, 2),
        "log": (15, 2),
        "log2": (15, 2),
        "log1p": (15, 2),
        "tanh": (15, 2),
        "logistic": (15, 2),
        "erf": (15, 2),
        "erf_inv": (15, 1),
        "cbrt": (15, 1),
        "power": (15, 1),
        "atan2": (15, 2),
        "remainder": (11, 1),
        "sin": (15, 1),
        "cos": (15, 1),
        "tan": (15, 1),
    },
}
"""By vector registers and price class, of each op whose code is long: registers that its constants fill, and the
vectors in flight (of FLIGHTS) from which on LLVM spills; None for none of them. LLVM 22, for AVX-512 and AVX2."""
_CROWDED, _CROWDED_PLAIN = 17 / 16, 19 / 16
"""Of the registers: LLVM spills for more values than that, where a function runs and where none does. It folds loads
into operations, and computes later."""
_LONG = 9
"""Constants of a function that count as one that runs."""
_OTHERS = 0.1
"""Of the constants of a stage's other functions: many are the same, and the rest LLVM reads from memory in time."""
_POSITIONS = 3
"""Values that an argument of a reduction holds for each vector in flight: the best, its position, a comparison."""


def spills(program: TileProgram, vector_bits: int) -> tuple[bool, ...]:
    """Of each phase, whether vectors are spilled, on a machine with vectors of at most `vector_bits` bits.

    Phases with products are said to spill nothing: their code keeps to the registers.
    """
    widths = Widths.chosen(program, vector_bits)
    return tuple(_phase_spills(program, phase, widths) for launch in program.launches for phase in launch)


def _phase_spills(program: TileProgram, phase: Phase, widths: Widths) -> bool:
    layout, stages = plan_layout(program, phase, widths), stages_of(phase)
    if len(stages) != sum(len(getattr(step, "stages", ())) for step in phase.steps) or not stages:
        return False
    registers = Registers(phase, layout, widths)
    spilled = [registers.after(stage, StraightLine(stage.body)).spills for stage in stages]
    return any(spilled) or (layout.strip is not None and _strip_spills(phase, stages, layout.lanes))


@dataclass(frozen=True, slots=True)
class Need:
    """What a stage asks of the vector registers."""

    beyond: float
    """Vectors for which there is no register in a round of the body, constants included: what is read again from
    memory, and stored before if it is no constant."""
    spills: bool
    """Whether some of them are no constants, or the code of a function spills by itself."""


_NO_NEED = Need(0.0, False)


class Registers:
    """The vector registers of a phase, as its stages are written one after another."""

    def __init__(self, phase: Phase, layout: Layout, widths: Widths) -> None:
        self._phase, self._layout, self._widths = phase, layout, widths
        self._varying = set[int]()

    def after(self, stage: Stage, line: StraightLine, vectors: tuple[int, int] | None = None) -> Need:
        """What the next stage needs, of this body. `vectors`: of a loop of its own, lanes and vectors in flight."""
        flight = _Flight.of(stage, self._phase, self._layout, self._widths, vectors)
        return _NO_NEED if flight.vectorised is None else _need(flight, line, self._varying)


def _strip_spills(phase: Phase, stages: Sequence[Stage], lanes: int) -> bool:
    """Whether vectors are spilled where a strip clears what it reduces into: by a call, across which no register lives.

    LLVM keeps constants of later loops in registers from before that call on, and masks of a last vector.
    """
    looping = [stage for stage in stages if any(symbol.extent > 1 for symbol in stage.symbols)]
    plain = any(not any(isinstance(s, Reduce | ArgReduce | Scan) for s in stage.body) for stage in looping)
    assert phase.vectorised is not None
    is_cut = phase.vectorised.extent % lanes != 0
    extremes = [
        stage for stage in stages for s in stage.body if isinstance(s, Reduce) and s.combiner in ("maximum", "minimum")
    ]
    return (len(looping) > 1 and plain) or any(is_cut or len(stage.body) > 2 for stage in extremes)


@dataclass(frozen=True, slots=True)
class _Flight:
    """A stage, and the vectors of it that are in flight."""

    stage: Stage
    vectorised: Symbol | None
    """Along which lanes differ; None where nothing is a vector."""
    owns: bool
    """Whether that is a loop of the stage."""
    vectors: int
    registers: int
    in_memory: bool
    """Whether what it reduces lies in memory."""

    @staticmethod
    def of(stage: Stage, phase: Phase, layout: Layout, widths: Widths, vectors: tuple[int, int] | None) -> _Flight:
        if layout.lanes > 1:
            flight = layout.unroll if layout.strip is None and layout.transpose is None else 1
            if layout.strip is not None and layout.strip.together:
                flight = layout.strip.together
            return _Flight(stage, phase.vectorised, False, flight, widths.registers, layout.strip is not None)
        if stage.vectorised is None:
            return _Flight(stage, None, False, 1, widths.registers, False)
        lanes, unroll = widths.of_stage(stage) if vectors is None else vectors
        return _Flight(stage, stage.vectorised if lanes > 1 else None, True, unroll, widths.registers, False)


def _need(flight: _Flight, line: StraightLine, varying: set[int]) -> Need:
    """`line`: the stage's body. `varying`: numbers of vectors; those of the stage are added."""
    body, function_spills = flight.stage.body, False
    vectors, registers = flight.vectors, flight.registers
    if flight.stage.before:
        differs = varying_scalars(flight.stage, varying, flight.vectorised)
        varying.update(s.result for s in body if isinstance(s, Carry) and s.result in differs)
    constants: dict[tuple[str, str], int] = {}
    for statement in body:
        if type(statement) is Map:
            is_vector = not varying.isdisjoint(statement.operands)
            if is_vector:
                varying.add(statement.result)
            function_spills |= _counts_constants(statement, flight, is_vector, constants)
        elif _varies(statement, flight, varying):
            varying.add(statement.result)
    held = carried = 0
    for statement in body:
        if type(statement) in _HELD:
            held += _HELD[type(statement)]
        elif type(statement) is Carry and statement.result in varying:
            carried += 1
    reduced = vectors * (carried if flight.in_memory else held + carried)
    most, every = max(constants.values(), default=0), sum(constants.values())
    limit = registers * (_CROWDED if most >= _LONG else _CROWDED_PLAIN)
    if every + vectors * len(body) + reduced <= limit:  # however they follow one another
        return Need(0.0, True) if function_spills else _NO_NEED
    together = max(1, registers * 5 // 4 // max(most_alive(body), 1))  # as `Body.write` interleaves them
    needed = every + min(vectors, together) * _most_varying(line, varying) + reduced
    return Need(max(0.0, needed - limit), function_spills or needed - (1 - _OTHERS) * (every - most) > limit)


def _counts_constants(statement: Map, flight: _Flight, is_vector: bool, constants: dict[tuple[str, str], int]) -> bool:
    """Add what the constants of a function fill. Returns whether it spills by itself."""
    kind = price_class(statement.dtype)
    filled, first = FUNCTIONS.get((flight.registers, kind), _NONE).get(statement.opcode, _PLAIN)
    if is_vector:
        # by itself it fits, as LLVM showed, though its temporaries were counted too
        constants[statement.opcode, kind] = min(filled, int(_CROWDED * flight.registers) - flight.vectors)
    return first is not None and (flight.vectors if is_vector else 1) >= first


_PLAIN: tuple[int, None] = (0, None)
_NONE: Mapping[str, tuple[int, int | None]] = {}
_Vector = Load | Position | Test | Reduce | ArgReduce | Scan | Carry
_HELD: Mapping[type, int] = {ArgReduce: _POSITIONS, Reduce: 1, Scan: 1}
"""Registers for what a statement reduces."""


def _varies(statement: Statement, flight: _Flight, varying: set[int]) -> TypeGuard[_Vector]:
    """Whether a statement, which is no Map, has a result in which lanes differ."""
    match statement:
        case Load(offset=offset):
            return _depends(offset, flight, varying)
        case Position(value=value):
            return _depends(value, flight, varying)
        case Reduce() | ArgReduce():
            return not flight.owns
        case Scan() | Test():
            return True
        case Carry(result=number):
            return number in varying
        case _:
            return False


def _depends(offset: Affine, flight: _Flight, varying: set[int]) -> bool:
    return any(source == flight.vectorised or source in varying for source in sources_of(offset))


def _most_varying(line: StraightLine, varying: set[int]) -> int:
    """The most vectors alive at a time; an operand that is read for the last time makes room for the result."""
    last = line.last
    alive, most = set[int](), 0
    for at, (number, numbers) in enumerate(zip(line.made, line.reads, strict=True)):
        for read in numbers:
            if last[read] == at:
                alive.discard(read)
        if number in last and number in varying:
            alive.add(number)
            if len(alive) > most:
                most = len(alive)
    return most
