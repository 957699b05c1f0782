"""One thread per grid point, or several packs of neighbouring ones: elementwise kernels, column reductions, scans."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from autofuse.errors import LegalityError
from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.schedule import Schedule
from autofuse.lower.sections import Ranges, body_within, cone, parts_of, repeated
from autofuse.lower.statements import Effect, Leave, Scalar, Statement
from autofuse.lower.tile import Buffer, Phase, Space, Stage
from autofuse.targets.cuda.codegen.access import Access, accesses_of, stages_of, vector_width, words
from autofuse.targets.cuda.codegen.body import StageBody
from autofuse.targets.cuda.codegen.copies import Copies
from autofuse.targets.cuda.codegen.gridpoints import ThreadPlan, walked, write_packs
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place, SharedArena
from autofuse.targets.cuda.ctypes_text import memory_type, register_type
from autofuse.targets.cuda.decisions import PACK_BYTES, PACKS, THREADS

ENOUGH_THREADS = 1 << 15
"""A thread that has loops of its own takes several points only when at least this many threads remain: a quarter of
what fills a large GPU."""
FULL_THREADS = 1 << 18
"""A thread takes more than one pack only when about as many threads remain as a large GPU holds: fewer would have less
in flight, not more."""
BYTES_IN_FLIGHT = 32
"""Loads of a thread that are asked for before the first is used. 2,048 threads then have 64 KiB on the way, of which a
multiprocessor of sm_90 wants 32 to 48 (bandwidth times latency: 4.8 TB/s x 1 us / 132 = 36 KiB)."""
MOST_PACKS = 8
REGISTER_WORDS = 64
"""Scratch of a thread up to this size is an array in registers (or, indexed by a loop, in local memory: L1)."""
LOCAL_BYTES = 1 << 16
"""Most local memory for one thread's scratch."""
_MOST_STATEMENTS = 2000
"""Of all copies of a thread: more take NVRTC long, and have loads enough in flight."""


def plan_threads(phase: Phase, buffers: Mapping[str, Buffer], schedule: Schedule, threads: int | None) -> ThreadPlan:
    """Decide from the schedule, narrowed to what the phase has work for."""
    points = math.prod(symbol.extent for symbol in phase.grid)
    width = threads or max(32, schedule[THREADS] // 32 * 32)
    accesses = [access for stage in stages_of(phase) for access in accesses_of(stage, buffers)]
    grid = walked(phase.grid)
    vector = packs = 1
    if grid and not any(access.buffer.space is Space.SCRATCH for access in accesses):
        vector = _vector(phase, accesses, grid[-1], points, schedule)
        packs = schedule[PACKS] or _packs(phase, accesses, grid[-1], points, vector)
    packs = max(1, min(packs, points // (32 * vector)))
    while threads is None and width > 32 and points < 128 * width * packs * vector:
        width //= 2
        width = width // 32 * 32
    return ThreadPlan(width, vector, packs, points)


def _vector(phase: Phase, accesses: Sequence[Access], lane: Symbol, points: int, schedule: Schedule) -> int:
    """Points of a pack."""
    vector = vector_width([(access, lane) for access in accesses], (), schedule[PACK_BYTES])
    looping = any(stage.symbols for stage in stages_of(phase))
    while vector > 1 and ((looping and points < ENOUGH_THREADS * vector) or points < vector):
        vector //= 2
    return vector


def _packs(phase: Phase, accesses: Sequence[Access], lane: Symbol, points: int, vector: int) -> int:
    """Packs of a thread: as many as keep memory busy."""
    stages = list(stages_of(phase))
    if any(stage.symbols for stage in stages):
        return 1  # its loops are unrolled instead
    loads = {(a.buffer.name, a.offset): a.buffer.type.dtype.itemsize for a in accesses if not a.is_store}
    asked = sum(itemsize * vector for (_, offset), itemsize in loads.items() if offset.coefficient(lane))
    wanted = -(-BYTES_IN_FLIGHT // max(asked, 1)) if asked else 1
    statements = sum(len(stage.body) for stage in stages) * vector
    return max(1, min(wanted, MOST_PACKS, points // (FULL_THREADS * vector), _MOST_STATEMENTS // max(statements, 1)))


def thread_places(
    phase: Phase, buffers: Mapping[str, Buffer], plan: ThreadPlan, arena: SharedArena, code: PhaseCode
) -> dict[str, Place]:
    """A private copy of each scratch buffer for every thread: registers, else shared memory, else local memory."""
    used = {a.buffer.name: a.buffer for stage in stages_of(phase) for a in accesses_of(stage, buffers)}
    places: dict[str, Place] = {}
    for buffer in used.values():
        if buffer.space is not Space.SCRATCH:
            continue
        dtype, size = buffer.type.dtype, buffer.type.size
        name = code.names.fresh(buffer.name)
        striped = dtype.itemsize * size * plan.threads
        if size * words(dtype) > REGISTER_WORDS and arena.fits(striped):
            pointer = arena.pointer(memory_type(dtype), arena.take(striped, f"scratch {buffer.name}"))
            code.out.line(f"{memory_type(dtype)}* const {name} = {pointer};")
            places[buffer.name] = Place(name, dtype, "striped", stride=plan.threads)
            continue
        if size * 4 * words(dtype) > LOCAL_BYTES:
            raise LegalityError(
                f"scratch {buffer.name} needs {buffer.type.nbytes} bytes for each of {plan.threads} threads; a block "
                f"on {arena.arch} has {arena.capacity} bytes of shared memory and a thread {LOCAL_BYTES} bytes of "
                "local memory: give the stages a lane of their own, or split the kernel there"
            )
        code.out.line(f"{register_type(dtype)} {name}[{size}];")
        places[buffer.name] = Place(name, dtype, "private")
    return places


def write_threads(code: PhaseCode, phase: Phase, plan: ThreadPlan, block: str) -> None:
    """The code of one phase; `block` is the C name of the block's number within the phase."""
    grid = walked(phase.grid)
    with ExitStack() as stack:
        packs = write_packs(code, phase.grid, plan, block, stack)
        code.symbols.update(packs[0].symbols)
        copies = Copies(grid[-1] if grid else None, plan.vector * plan.packs, grid=grid, packs=packs)
        for stage in stages_of(phase):
            write_serial_stage(code, stage, copies)


def write_serial_stage(code: PhaseCode, stage: Stage, copies: Copies) -> None:
    """A stage whose iterations one thread walks in order."""
    body = StageBody(code, stage, copies.count)
    body.declare()
    body.begin(copies)
    if stage.sections:
        _Nest(code, stage, body, copies).write(stage.symbols, {})
        body.finish()
        return
    with ExitStack() as stack:
        for symbol in stage.symbols:
            endless = stage.leave is not None and stage.leave.required
            head = "for (;;)" if endless else serial_loop(code, symbol, backwards=stage.is_reversed)
            if symbol is stage.symbols[-1] and not stage.is_ordered:
                code.out.line("#pragma unroll 4")
            stack.enter_context(code.out.braces(head))
        body.body(copies)
    body.finish()


def serial_loop(
    code: PhaseCode, symbol: Symbol, *, backwards: bool = False, within: tuple[int, int] | None = None
) -> str:
    """The head of a loop over `symbol`, whose name comes into scope. `within`: first position, and the one behind."""
    name, type_ = code.loop_name(symbol), code.index.type
    if backwards:
        return f"for ({type_} {name} = {symbol.extent - 1}; {name} >= 0; --{name})"
    first, end = within or (0, symbol.extent)
    return f"for ({type_} {name} = {first}; {name} < {end}; ++{name})"


@dataclass(frozen=True, slots=True)
class _Nest:
    """Writes a stage that walks loops which follow one another in a loop: of each part, what is done there."""

    code: PhaseCode
    stage: Stage
    body: StageBody
    copies: Copies

    def write(self, symbols: Sequence[Symbol], ranges: Ranges) -> None:
        """The loops over `symbols`, and what is inside. `ranges`: where those around them stand."""
        if not symbols:
            self._statements(body_within(self.stage, ranges))
            return
        symbol, inner, leave = symbols[0], symbols[1:], self.stage.leave
        if leave is not None and leave.required and symbol == self.stage.symbols[0]:
            self._rounds(leave.settled, inner, ranges)
            return
        for part in parts_of(self.stage, symbol):
            here = {**ranges, symbol: (part[0], part[1] - 1)}
            again = repeated(self.stage, symbol, here)
            if not body_within(self.stage, here):
                continue
            with ExitStack() as stack:
                stack.enter_context(self.code.out.braces(serial_loop(self.code, symbol, within=part)))
                if again is None:
                    self.write(inner, here)
                else:
                    self._rounds(again.settled, inner, here)

    def _rounds(self, settled: Scalar, inner: Sequence[Symbol], ranges: Ranges) -> None:
        """The loops over `inner` again and again, until all points of the thread are settled."""
        asked = cone(self.stage.body, settled)
        with self.code.out.braces("for (;;)"):
            if inner:
                self._statements([*asked, Leave(settled)])
                self.write(inner, ranges)
                return
            known = {s.result for s in asked if not isinstance(s, Effect)}
            others = [s for s in body_within(self.stage, ranges) if isinstance(s, Effect) or s.result not in known]
            self._statements([*asked, Leave(settled), *others])

    def _statements(self, statements: Sequence[Statement]) -> None:
        self.body.inside = statements
        self.body.body(self.copies)
