"""What a kernel does, counted in neutral terms, and how long the device takes for that."""

from __future__ import annotations

import math
from collections import Counter

from autofuse.cost_models.features import (
    FEATURES_VERSION,
    AccessCounts,
    BufferFeatures,
    DotFeatures,
    KernelFeatures,
    OpaqueFeatures,
    PhaseFeatures,
    Reuse,
    StageFeatures,
)
from autofuse.cost_models.operations import StatementCosts, price_class, product_of
from autofuse.lower.statements import ArgReduce, Load, Reduce, Store
from autofuse.lower.tile import Buffer, Dot, OpaqueProgram, Phase, RowGroup, Space, Stage, TileProgram
from autofuse.testing.counted.device import BATCH, CountedDevice


def nanoseconds(kernel: KernelFeatures, device: CountedDevice) -> int:
    """What a kernel takes on the device: a sum over counts, the same whenever it is asked for."""
    slow = dict(device.slow)
    total = kernel.launches * device.launch_ns
    if kernel.opaque is not None:
        return total + kernel.opaque.nodes * device.node_ns + kernel.opaque.moved_bytes * device.byte_ns
    for phase in kernel.phases:
        total += device.byte_ns * sum(phase.reuse.traffic(0))
        for stage in phase.stages:
            for (name, _), count in stage.operations.items():
                each = device.issue_ns + stage.lanes * device.operation_ns * slow.get(name, 1)
                total += math.ceil(count * each)
        total += math.ceil(device.product_ns * sum(dot.flops for dot in phase.dots))
    return total


def features(program: TileProgram | OpaqueProgram) -> KernelFeatures:
    """Describe a kernel. Raises BackendError for an unknown opcode."""
    if isinstance(program, OpaqueProgram):
        return _described(program, 1, (), 1, 0, Counter({b.name: b.type.nbytes for b in program.buffers}))
    moved: Counter[str] = Counter()
    reader = _Reader(program, moved)
    phases = tuple(reader.phase(phase, number) for number, launch in enumerate(program.launches) for phase in launch)
    rows = (phase.row_block.size for phase in program.phases() if phase.row_block is not None)
    return _described(program, len(program.launches), phases, program.schedule[BATCH], max(rows, default=0), moved)


def _described(
    program: TileProgram | OpaqueProgram,
    launches: int,
    phases: tuple[PhaseFeatures, ...],
    batch: int,
    panel_rows: int,
    moved: Counter[str],
) -> KernelFeatures:
    buffers = [buffer for buffer in program.buffers if buffer.space is not Space.SCRATCH]
    return KernelFeatures(
        version=FEATURES_VERSION,
        launches=launches,
        phases=phases,
        buffers=tuple(_buffer(buffer, moved[buffer.name]) for buffer in buffers),
        opaque=_opaque(program) if isinstance(program, OpaqueProgram) else None,
        vector_bits=0,
        stream_stores=False,
        unroll=batch,
        panel_rows=panel_rows,
    )


def _buffer(buffer: Buffer, moved_bytes: int) -> BufferFeatures:
    """Bytes that are touched: at most all there are, and one element at least, if there are any."""
    touched, least = min(buffer.type.nbytes, moved_bytes), min(buffer.type.nbytes, buffer.type.dtype.itemsize)
    read = touched if buffer.space is not Space.OUTPUT else 0
    written = touched if buffer.space is not Space.INPUT else 0
    floors = min(read, least), min(written, least)
    return BufferFeatures(buffer.name, buffer.space, buffer.type.nbytes, read, written, *floors)


def _opaque(program: OpaqueProgram) -> OpaqueFeatures:
    results = sum(value.type.size for node in program.graph.nodes for value in node.outputs)
    moved = sum(buffer.type.nbytes for buffer in program.buffers)
    return OpaqueFeatures(len(program.graph.nodes), moved, sort_steps=0.0, scattered=0, elements=results)


class _Reader:
    """Reads the phases of one program, and counts the bytes that they move, by buffer."""

    def __init__(self, program: TileProgram, moved: Counter[str]) -> None:
        self.batch = program.schedule[BATCH]
        self.buffers = {buffer.name: buffer for buffer in program.buffers}
        self.moved = moved
        self.costs = StatementCosts()
        self.traffic: Counter[bool] = Counter()
        """Bytes of global memory that the phase at hand reads (False) and writes (True)."""

    def phase(self, phase: Phase, launch: int) -> PhaseFeatures:
        """Read one phase."""
        self.traffic.clear()
        points = math.prod(symbol.extent for symbol in phase.grid)
        steps = [step for step in phase.steps if isinstance(step, RowGroup)]
        stages = tuple(self._stage(stage, phase, points) for step in steps for stage in step.stages)
        dots = tuple(self._dot(step, phase, points) for step in phase.steps if isinstance(step, Dot))
        scratch = [buffer.type.nbytes for buffer in self.buffers.values() if buffer.space is Space.SCRATCH]
        reuse = Reuse(((0, self.traffic[False], self.traffic[True]),))
        return PhaseFeatures(launch, points, 1, 1.0, stages, dots, reuse, sum(scratch))

    def _stage(self, stage: Stage, phase: Phase, points: int) -> StageFeatures:
        loops = [symbol.extent for symbol in stage.symbols or phase.grid] or [1]
        entries = points if stage.symbols else 1
        iterations = entries * math.prod(loops)
        rounds = entries * math.prod(loops[:-1]) * -(-loops[-1] // self.batch)
        operations: dict[tuple[str, str], float] = {}
        accesses = 0
        for statement in stage.body:
            if isinstance(statement, Load | Store):
                accesses += 1
                self._move(statement.buffer, iterations, write=isinstance(statement, Store))
            for name, dtype, count in self.costs.of(statement):
                key = name, price_class(dtype)
                operations[key] = operations.get(key, 0.0) + count * rounds
        return StageFeatures(
            entries=entries,
            iterations=iterations,
            vectors=rounds,
            lanes=self.batch,
            unroll=1,
            operations=operations,
            scalar_operations={},
            flops=0.0,
            accesses=AccessCounts(contiguous=float(accesses * rounds)),
            far_walks=(),
            reduces=points * sum(isinstance(statement, Reduce | ArgReduce) for statement in stage.body),
            horizontal=0.0,
            placed=0.0,
            chain=0.0,
            scan_iterations=0.0,
            first_touch_bytes=0,
            loops=bool(stage.symbols),
            live=len(stage.body),
        )

    def _dot(self, dot: Dot, phase: Phase, points: int) -> DotFeatures:
        found = product_of(dot, phase, points)
        self._move(dot.lhs.buffer, found.all_rows * dot.depth, write=False)
        self._move(dot.rhs.buffer, found.calls * dot.depth * dot.columns, write=False)
        self._move(dot.out.buffer, found.all_rows * dot.columns, write=True)
        return found

    def _move(self, name: str, elements: int, *, write: bool) -> None:
        buffer = self.buffers[name]
        nbytes = elements * buffer.type.dtype.itemsize
        self.moved[name] += nbytes
        if buffer.space is not Space.SCRATCH:
            self.traffic[write] += nbytes
