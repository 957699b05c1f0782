"""One thread per grid point (or several neighbouring ones): elementwise kernels, column reductions, scans."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack

from autofuse.errors import LegalityError
from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Buffer, Phase, Scan, Space, Stage
from autofuse.targets.cuda.codegen.access import accesses_of, has_scan, stages_of, vector_width, words
from autofuse.targets.cuda.codegen.body import Copies, PhaseCode, StageBody
from autofuse.targets.cuda.codegen.places import Place, SharedArena
from autofuse.targets.cuda.ctypes_text import memory_type, register_type
from autofuse.targets.cuda.decisions import ITEMS, THREADS

ENOUGH_THREADS = 1 << 15
"""A thread takes several points only when at least this many threads remain: a quarter of what fills a large GPU."""
REGISTER_WORDS = 64
"""Scratch of a thread up to this size is an array in registers (or, indexed by a loop, in local memory: L1)."""
LOCAL_BYTES = 1 << 16
"""Most local memory for one thread's scratch."""


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    """How grid points are given to threads."""

    threads: int
    vector: int
    """Neighbouring points of one thread."""
    chunks: int
    """Groups of `vector` points of one thread, a block's width apart."""
    points: int
    blocks: int


def plan_threads(phase: Phase, buffers: Mapping[str, Buffer], schedule: Schedule, threads: int | None) -> ThreadPlan:
    """Decide from the schedule, narrowed to what the phase has work for."""
    points = math.prod(symbol.extent for symbol in phase.grid)
    width = threads or max(32, schedule[THREADS] // 32 * 32)
    items = max(1, min(schedule[ITEMS], points // ENOUGH_THREADS))
    accesses = [access for stage in stages_of(phase) for access in accesses_of(stage, buffers)]
    vector = 1
    if phase.grid and not any(access.buffer.space is Space.SCRATCH for access in accesses):
        lane = phase.grid[-1]
        vector = vector_width(((access, lane) for access in accesses), (lane.extent,), items)
    chunks = max(1, items // vector)
    while threads is None and width > 32 and points < 128 * width * chunks * vector:
        width //= 2
        width = width // 32 * 32
    blocks = max(1, -(-points // (width * chunks * vector)))
    return ThreadPlan(width, vector, chunks, points, blocks)


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
    out, type_ = code.out, code.index.type
    start = f"{block} * {plan.threads} + (int)threadIdx.x"
    with ExitStack() as stack:
        if plan.chunks > 1:
            out.line("#pragma unroll")
            stack.enter_context(out.braces(f"for (int chunk = 0; chunk < {plan.chunks}; ++chunk)"))
            start = f"({block} * {plan.chunks} + chunk) * {plan.threads} + (int)threadIdx.x"
        single = len(phase.grid) == 1 and phase.grid[0].extent > 1
        name = code.loop_name(phase.grid[0]) if single else "point"
        out.line(f"const {type_} {name} = {start if plan.vector == 1 else f'({start}) * {plan.vector}'};")
        if plan.points < plan.blocks * plan.threads * plan.chunks * plan.vector:
            stack.enter_context(out.braces(f"if ({name} < {plan.points})"))
        if not single:
            define_symbols(code, phase.grid, "point")
        copies = Copies(phase.grid[-1] if phase.grid else None, plan.vector)
        for stage in stages_of(phase):
            write_serial_stage(code, stage, copies)


def define_symbols(code: PhaseCode, grid: tuple[Symbol, ...], point: str) -> None:
    """Names for the grid symbols at flat grid point `point`, last symbol fastest."""
    step = math.prod(symbol.extent for symbol in grid)
    first = True
    for symbol in grid:
        if symbol.extent <= 1:
            code.symbols[symbol] = "0"
            continue
        step //= symbol.extent
        text = point if step == 1 else f"{point} / {step}"
        name = code.loop_name(symbol)
        whole = text if first else (f"{text} % {symbol.extent}" if step == 1 else f"({text}) % {symbol.extent}")
        code.out.line(f"const {code.index.type} {name} = {whole};")
        code.symbols[symbol] = name
        first = False


def write_serial_stage(code: PhaseCode, stage: Stage, copies: Copies) -> None:
    """A stage whose iterations one thread walks in order."""
    body = StageBody(code, stage, copies.count)
    body.declare()
    with ExitStack() as stack:
        for symbol in stage.symbols:
            head = serial_loop(code, symbol, backwards=_is_reversed(stage))
            if symbol is stage.symbols[-1] and not has_scan(stage):
                code.out.line("#pragma unroll 4")
            stack.enter_context(code.out.braces(head))
        body.body(copies)
    body.finish()


def serial_loop(code: PhaseCode, symbol: Symbol, *, backwards: bool = False) -> str:
    """The head of a loop over `symbol`, whose name comes into scope."""
    name, type_ = code.loop_name(symbol), code.index.type
    if backwards:
        return f"for ({type_} {name} = {symbol.extent - 1}; {name} >= 0; --{name})"
    return f"for ({type_} {name} = 0; {name} < {symbol.extent}; ++{name})"


def _is_reversed(stage: Stage) -> bool:
    return any(isinstance(statement, Scan) and statement.reverse for statement in stage.body)
