"""What the launches of a kernel ask of a multiprocessor, as far as it can be told before they are compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.cost_models.features import PhaseFeatures
from autofuse.cost_models.liveness import most_live
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import Buffer, Load, Phase, RowGroup, Space, Stage, Store

WARP = 32
WORD = 4
WAVEFRONT_BYTES = 128
"""What shared memory gives in a cycle: 32 banks of 4 bytes."""
MOST_REGISTERS = 255
_BASE_REGISTERS = 12
"""For addresses, counters and what math functions keep."""
_PRODUCT_REGISTERS, _PRODUCT_SHARED_BYTES = 40, 8 << 10
"""Of generated products: their tiles of both factors."""
_KEPT_WORDS = 64
"""Of values that stages pass on, in registers: more lie in shared memory."""
_LOAD_BYTES = 16


@dataclass(frozen=True, slots=True)
class LaunchCounts:
    """What one launch asks of a multiprocessor, as far as it can be told before it is compiled."""

    blocks: int
    threads: int
    """Of a block."""
    registers: int
    """Of a thread: an estimate."""
    shared_bytes: int
    """Of a block: what is kept on chip, at most."""
    flight_bytes: float
    """That a thread asks memory for before it waits, if registers suffice: the mean of all threads."""
    parallel: float
    """Iterations of a thread that do not wait for one another."""
    rounds: float
    """Times that a thread passes through the code of a stage: the most of all stages."""
    shared_wavefronts: float
    """Of shared memory, 128 bytes each, without bank conflicts."""


def asked(
    phase: Phase, counts: PhaseFeatures, threads: int, buffers: Mapping[str, Buffer], items: int, wavefronts: float
) -> LaunchCounts:
    """What a phase asks of a multiprocessor.

    `counts`: of it. `threads`: of a block. `items`: elements of a thread, as the schedule has it. `wavefronts`: of
    shared memory.
    """
    stages = [stage for step in phase.steps if isinstance(step, RowGroup) for stage in step.stages]
    everybody = max(counts.shares, 1.0)
    flights, at_once, words = [0.0], [1.0], [0.0]
    for stage, counted in zip(stages, counts.stages, strict=True):
        own = counted.iterations / everybody
        flights.append(_flight(stage, own, buffers, items))
        at_once.append(min(max(own, 1.0), items))
        words.append(most_live(stage.body) + flights[-1] / WORD)
    kept = counts.scratch_bytes / WORD * counts.points / everybody
    registers, shared = _BASE_REGISTERS + 2 * len(buffers) + max(words), counts.scratch_bytes
    if counts.dots:
        registers, shared = max(registers, _PRODUCT_REGISTERS), shared + _PRODUCT_SHARED_BYTES
        flights.append(_LOAD_BYTES)
    elif kept <= _KEPT_WORDS:
        registers, shared = registers + kept, 0
    return LaunchCounts(
        blocks=counts.blocks,
        threads=threads,
        registers=min(round(registers), MOST_REGISTERS),
        shared_bytes=shared,
        flight_bytes=max(flights),
        parallel=max(at_once),
        rounds=max((stage.vectors * WARP / everybody for stage in counts.stages), default=1.0),
        shared_wavefronts=wavefronts,
    )


def _flight(stage: Stage, iterations: float, buffers: Mapping[str, Buffer], items: int) -> float:
    """Bytes that a thread asks for before it waits, in a stage of which it does so many iterations."""
    loads = [s for s in stage.body if isinstance(s, Load)] or [s for s in stage.body if isinstance(s, Store)]
    outside = [buffers[access.buffer] for access in loads]
    sizes = [buffer.type.dtype.itemsize for buffer in outside if buffer.space is not Space.SCRATCH]
    return float(sum(min(max(iterations, 1.0) * size, max(items * WORD, size)) for size in sizes))


def together(phases: Sequence[LaunchCounts]) -> LaunchCounts:
    """The phases of one launch, whose blocks run beside each other; every block is given what the neediest needs."""
    blocks = sum(phase.blocks for phase in phases)
    share = [phase.blocks / blocks for phase in phases]
    return LaunchCounts(
        blocks=blocks,
        threads=max(phase.threads for phase in phases),
        registers=max(phase.registers for phase in phases),
        shared_bytes=max(phase.shared_bytes for phase in phases),
        flight_bytes=sum(phase.flight_bytes * part for phase, part in zip(phases, share, strict=True)),
        parallel=sum(phase.parallel * part for phase, part in zip(phases, share, strict=True)),
        rounds=max(phase.rounds for phase in phases),
        shared_wavefronts=sum(phase.shared_wavefronts for phase in phases),
    )
