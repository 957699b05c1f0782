"""A whole TileProgram: one `__global__` function per launch, phases of a launch told apart by block number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from autofuse.errors import LegalityError
from autofuse.ir.index import Affine, Symbol, of
from autofuse.lazydataclass import dataclass
from autofuse.lower.rewrite import affines, statements
from autofuse.lower.schedule import SIDES
from autofuse.lower.tile import Buffer, Dot, Phase, Space, TileProgram
from autofuse.targets.cuda.codegen.access import is_threaded, stages_of
from autofuse.targets.cuda.codegen.blockplans import RowBlockPlan, plan_row_blocks
from autofuse.targets.cuda.codegen.columns import ColumnPlan, plan_columns, write_columns
from autofuse.targets.cuda.codegen.ctext import IndexText, Names, Writer, needs_wide, symbol
from autofuse.targets.cuda.codegen.cudakernel import CudaKernel, CudaLaunch
from autofuse.targets.cuda.codegen.gridpoints import ThreadPlan
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place, SharedArena
from autofuse.targets.cuda.codegen.rowblocks import RowBlockWriter
from autofuse.targets.cuda.codegen.rowgroups import Group, plan_group
from autofuse.targets.cuda.codegen.rows import write_rows
from autofuse.targets.cuda.codegen.tasks import MOST_TASKS, in_turn
from autofuse.targets.cuda.codegen.threads import plan_threads, thread_places, write_threads
from autofuse.targets.cuda.codegen.tiles import with_product_tiles
from autofuse.targets.cuda.codegen.transposes import TransposePlan, plan_transposes
from autofuse.targets.cuda.codegen.transposewriting import write_transposes
from autofuse.targets.cuda.ctypes_text import memory_type
from autofuse.targets.cuda.decisions import REGISTERS
from autofuse.targets.cuda.gpus import blocks_for_registers, shared_bytes_per_block
from autofuse.targets.cuda.prelude import Prelude

MOST_BLOCKS = (1 << 31) - 1
"""Blocks of one launch along x."""
_HEADERS = {"f16": "cuda_fp16.h", "bf16": "cuda_bf16.h"}
"""Of the types of elements that C does not have."""

SHARED_MEMORY = "extern __shared__ __align__(16) unsigned char shared_memory[];"
_Plan = ThreadPlan | ColumnPlan | TransposePlan | Group | RowBlockPlan


@dataclass(frozen=True, slots=True)
class Planned:
    """One phase, and how it is given to threads."""

    phase: Phase
    buffers: Mapping[str, Buffer]
    plan: _Plan

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.plan.threads

    @property
    def cluster(self) -> int:
        """Blocks that run together and share a grid point."""
        return self.plan.cluster if isinstance(self.plan, Group) else 1

    @property
    def blocks(self) -> int:
        """Blocks of the phase."""
        match self.plan:
            case ThreadPlan() | RowBlockPlan() | ColumnPlan() | TransposePlan():
                return self.plan.blocks
            case Group():
                points = math.prod(symbol.extent for symbol in self.phase.grid)
                return max(1, -(-points // self.plan.points_per_block)) * self.plan.cluster


def generate(program: TileProgram, arch: str, held: Sequence[int] = ()) -> CudaKernel:
    """The CUDA C of `program` for `arch` (`sm_80`, `sm_90`), deterministic to the byte.

    `held`: of each launch, how many blocks a multiprocessor is to hold, which take tasks in turn if they can. 0, or no
    number: each block has a task of its own.

    Raises LegalityError when a capacity of `arch` does not suffice, BackendError for an unknown arch or opcode.
    """
    return Generator(program, arch).kernel(held)


def blocks_of(planned: Sequence[Planned], function: str) -> int:
    """Blocks of a launch. Raises LegalityError for more than a device takes."""
    blocks = sum(plan.blocks for plan in planned)
    if blocks > MOST_BLOCKS:
        raise LegalityError(
            f"{function} needs {blocks} blocks; a launch has at most {MOST_BLOCKS}: use more items per thread"
        )
    return blocks


def may_take_turns(planned: Sequence[Planned]) -> bool:
    """Whether a block of these could do several tasks, one after another.

    Not of products, where one that has more to do than others is waited for; nor in clusters, which start together.
    """
    alone = not any(isinstance(plan.plan, RowBlockPlan) or plan.cluster > 1 for plan in planned)
    return alone and sum(plan.blocks for plan in planned) <= MOST_TASKS


def shapes(program: TileProgram, arch: str) -> tuple[tuple[tuple[int, int], ...], ...]:
    """(blocks, threads of a block) of each phase of each launch, as `generate` decides them; raises what it raises."""
    generator = Generator(program, arch)
    return tuple(
        tuple((plan.blocks, plan.threads) for plan in generator.planned(phases)) for phases in program.launches
    )


class Generator:
    """Writes the functions of one program."""

    def __init__(self, program: TileProgram, arch: str, prelude: Prelude | None = None) -> None:
        """`prelude`: collects what this program and others need; by default one of its own."""
        self.program = program
        self.arch = arch
        self.capacity = shared_bytes_per_block(arch)
        self.buffers: Mapping[str, Buffer] = {buffer.name: buffer for buffer in program.buffers}
        self.prelude = prelude or Prelude()
        self.index = IndexText(self.prelude, wide=any(needs_wide(value) for value in _affines(program)))
        self.names = Names()
        self.places: dict[str, Place] = {}
        for buffer in program.parameters():
            name = self.names.fresh(buffer.name)
            self.places[buffer.name] = Place(name, buffer.type.dtype, "memory", size=buffer.type.size)

    def kernel(self, held: Sequence[int]) -> CudaKernel:
        """All launches, each a function of its own. `held`: see `generate`."""
        base = symbol(self.program.name)
        count = len(self.program.launches)
        functions: list[str] = []
        launches: list[CudaLaunch] = []
        for number, phases in enumerate(self.program.launches):
            each = held[number] if held else 0
            text, launch = self._launch(base if count == 1 else f"{base}_{number}", phases, each)
            functions.append(text)
            launches.append(launch)
        source = self.prelude.text() + "\n".join(functions)
        return CudaKernel(self.program.name, source, tuple(launches), self.program.parameters(), self.arch)

    def _arena(self) -> SharedArena:
        return SharedArena(self.arch, self.capacity)

    def _plan(self, phase: Phase, threads: int | None) -> Planned:
        schedule = self.program.schedule
        phase, buffers = with_product_tiles(phase, self.buffers, schedule, self.arch)
        if is_threaded(phase):
            transposes = plan_transposes(phase, buffers, schedule, threads)
            if transposes is not None:
                return Planned(phase, buffers, transposes)
            columns = plan_columns(phase, buffers, schedule, threads, self._arena())
            return Planned(phase, buffers, columns or plan_threads(phase, buffers, schedule, threads))
        if phase.row_block is not None or any(isinstance(step, Dot) for step in phase.steps):
            return Planned(phase, buffers, plan_row_blocks(phase, buffers, schedule, threads, self._arena()))
        points = math.prod(symbol.extent for symbol in phase.grid)
        stages = tuple(stages_of(phase))
        return Planned(phase, buffers, plan_group(stages, points, buffers, schedule, threads, self._arena()))

    def planned(self, phases: tuple[Phase, ...], threads: int | None = None) -> list[Planned]:
        """How the phases of a launch are given to threads: blocks of all of them are equally wide.

        `threads`: of a block; None: as many as the phases have work for.
        """
        if threads is not None:
            return [self._plan(phase, threads) for phase in phases]
        alone = [self._plan(phase, None) for phase in phases]
        if len(alone) == 1:
            return alone
        threads = max(plan.threads for plan in alone)
        return [self._plan(phase, threads) for phase in phases]

    def _launch(self, function: str, phases: tuple[Phase, ...], held: int) -> tuple[str, CudaLaunch]:
        planned = self.planned(phases)
        blocks, threads = blocks_of(planned, function), planned[0].threads
        tasks = blocks if held and may_take_turns(planned) else 0
        cluster = planned[0].cluster
        clusters = f"__cluster_dims__({cluster}, 1, 1) " if cluster > 1 else ""
        # one resident block is enough for products: for more, ptxas would rather spill sums than take registers
        multiplies = any(isinstance(plan.plan, RowBlockPlan) and plan.plan.multiplies for plan in planned)
        least = max(held if tasks else int(multiplies), self.least_blocks(threads))
        bounds = f"{threads}, {least}" if least else f"{threads}"
        head = f'extern "C" __global__ void {clusters}__launch_bounds__({bounds})'
        text, shared = self._function(f"{head}\n{function}", planned, tasks)
        return text, CudaLaunch(function, (blocks, 1, 1), (threads, 1, 1), shared, cluster, tasks)

    def least_blocks(self, threads: int) -> int:
        """How many blocks of so many threads the compiler is to leave registers for; 0: it may take all."""
        return blocks_for_registers(self.program.schedule[REGISTERS], threads, self.arch)

    def _function(self, head: str, planned: Sequence[Planned], tasks: int) -> tuple[str, int]:
        """What is launched: the function that does the work of one block, and the shared memory that it needs."""
        out = Writer()
        body, shared = self._phases(planned, "number" if tasks else "blockIdx.x", 2 if tasks else 1)
        with out.braces(f"{head}({', '.join(self._parameters())})"):
            if shared:
                out.line(SHARED_MEMORY)
            with in_turn(out, tasks, shared):
                out.insert(body)
        return out.text(), shared

    def inner_function(self, head: str, planned: Sequence[Planned]) -> tuple[str, int]:
        """The same as a function that others call: it takes the block's number, and shared memory if it needs some."""
        body, shared = self._phases(planned, "number", 1)
        more = ("const int number", *(("unsigned char* const shared_memory",) if shared else ()))
        return f"{head}({', '.join((*self._parameters(), *more))}) {{\n{body}}}\n", shared

    def _parameters(self) -> list[str]:
        return [self._parameter(buffer) for buffer in self.program.parameters()]

    def _parameter(self, buffer: Buffer) -> str:
        constant = "const " if buffer.space is Space.INPUT else ""
        if buffer.type.dtype.name in _HEADERS:  # copies alone need the type too
            self.prelude.header(_HEADERS[buffer.type.dtype.name])
        return f"{constant}{memory_type(buffer.type.dtype)}* __restrict__ {self.places[buffer.name].name}"

    def _phases(self, planned: Sequence[Planned], number_of_block: str, depth: int) -> tuple[str, int]:
        """The bodies of a launch's phases, so deep within others, and the shared memory they need."""
        out, shared, first = Writer(depth), 0, 0
        if len(planned) == 1:
            out.line(f"const {self.index.type} block = {number_of_block};")
            shared = self._phase(planned[0], out)
            return out.text(), shared
        for number, plan in enumerate(planned):
            last = first + plan.blocks
            with out.braces(f"{'else ' if number else ''}if ({number_of_block} < {last})"):
                start = "" if first == 0 else f" - {first}"
                out.line(f"const {self.index.type} block = {number_of_block}{start};")
                shared = max(shared, self._phase(plan, out))
            first = last
        return out.text(), shared

    def _phase(self, planned: Planned, out: Writer) -> int:
        """Write one phase; returns the shared memory it needs."""
        arena, phase = self._arena(), planned.phase
        grid = planned.plan.grid if isinstance(planned.plan, RowBlockPlan) else phase.grid  # tiles of products too
        if not all(symbol.extent for symbol in grid):
            return 0  # it has no points, and its blocks nothing to do
        buffers = planned.buffers
        code = PhaseCode(out, self.prelude, self.index, Names(self.names), dict(self.places))
        code.sides = self.program.schedule[SIDES]
        match planned.plan:
            case ThreadPlan() as plan:
                code.places.update(thread_places(phase, buffers, plan, arena, code))
                write_threads(code, phase, plan, "block")
            case TransposePlan() as plan:
                write_transposes(code, phase, plan, "block", arena)
            case ColumnPlan() as plan:
                write_columns(code, phase, plan, buffers, "block", arena)
            case Group() as group:
                write_rows(code, phase, group, buffers, "block", arena)
            case RowBlockPlan() as plan:
                RowBlockWriter(code, phase, plan, buffers, self.program.schedule, arena).write("block")
        return arena.used


def _affines(program: TileProgram) -> Iterator[Affine]:
    """Every index expression, and one that counts all grid points of each phase."""
    for phase in program.phases():
        points = math.prod(symbol.extent for symbol in phase.grid)
        yield of(Symbol("points", points + (1 << 20)))
        for step in phase.steps:
            if isinstance(step, Dot):
                for m, extents in ((step.lhs, (step.rows, step.depth)), (step.rhs, (step.depth, step.columns))):
                    sizes = m.row_stride * extents[0] + m.column_stride * extents[1]
                    yield m.offset + of(Symbol("span", sizes + 1))
                yield step.out.offset + of(Symbol("span", step.out.row_stride * (step.rows + 256) + step.columns + 256))
        for _, statement in statements(phase.steps):
            yield from affines(statement)
