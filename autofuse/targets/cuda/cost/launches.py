"""What the launches of a kernel ask of a multiprocessor, as far as it can be told before they are compiled."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.cost_models.features import PhaseFeatures
from autofuse.cost_models.liveness import most_live
from autofuse.lazydataclass import dataclass
from autofuse.lower.schedule import Schedule
from autofuse.targets.cuda.codegen.access import stages_of
from autofuse.targets.cuda.codegen.blockplans import RowBlockPlan
from autofuse.targets.cuda.codegen.program import Planned
from autofuse.targets.cuda.cost.onchip import few_rows_registers, kept_on_chip, product_registers
from autofuse.targets.cuda.cost.products import ProductCounts, few_rows_products, products_of
from autofuse.targets.cuda.cost.progress import RowChain, iterations_at_once, load_bytes, pack_of, row_chain
from autofuse.targets.cuda.cost.sweeps import swept_copies, swept_products, swept_registers
from autofuse.targets.cuda.decisions import REGISTERS

WARP = 32
WORD = 4
WAVEFRONT_BYTES = 128
"""What shared memory gives in a cycle: 32 banks of 4 bytes."""
MOST_REGISTERS = 255
_BASE_REGISTERS = 12
"""For addresses, counters and what math functions keep."""


@dataclass(frozen=True, slots=True)
class LaunchCounts:
    """What one launch asks of a multiprocessor, as far as it can be told before it is compiled."""

    blocks: int
    threads: int
    """Of a block."""
    registers: int
    """Of a thread: an estimate."""
    spill_bytes: int
    """Of a thread: of registers that a schedule does not let it have, by that estimate."""
    shared_bytes: int
    """Of a block: what is kept on chip, at most."""
    flight_bytes: float
    """That a thread asks memory for before it waits, if registers suffice: the mean of all threads."""
    copied_bytes: float
    """The same of what is copied to shared memory without registers, by asynchronous copies."""
    parallel: float
    """Iterations of a thread that do not wait for one another."""
    pack: int
    """Neighbouring elements that a thread loads or stores at once."""
    rounds: float
    """Times that a thread passes through the code of a stage: the most of all stages."""
    shared_wavefronts: float
    """Of shared memory, 128 bytes each, without bank conflicts."""
    shift_slots: float
    """Instructions of warps that put packs together which lie across two."""
    cluster: int
    """Blocks that start together and share grid points."""
    chain: RowChain
    """Of the rows of a row block, or of running sums, in one block: the longest of all phases."""
    products: tuple[ProductCounts, ...]
    """Of all phases."""


def asked(
    planned: Planned, counts: PhaseFeatures, schedule: Schedule, wavefronts: float, shifts: float
) -> LaunchCounts:
    """What a phase asks of a multiprocessor.

    `planned`: how it is given to threads. `counts`: of the phase. `schedule`: of the kernel. `wavefronts`: of shared
    memory. `shifts`: instructions of warps for packs that lie across two.
    """
    everybody = max(counts.shares, 1.0)
    flights, at_once, words = [0.0], [1.0], [0.0]
    for stage, counted in zip(stages_of(planned.phase), counts.stages, strict=True):
        own = max(counted.iterations / everybody, 1.0)
        together = min(own, iterations_at_once(planned, stage, schedule))
        flights.append(together * load_bytes(stage, planned.buffers))
        at_once.append(together)
        words.append(most_live(stage.body) + flights[-1] / WORD)
    kept = kept_on_chip(planned)
    registers, copied = _BASE_REGISTERS + 2 * len(planned.buffers) + max(words) + kept.words, 0.0
    products: tuple[ProductCounts, ...] = ()
    if isinstance(planned.plan, RowBlockPlan) and planned.plan.dots:
        tiles = [shape for _, shape in planned.plan.dots]
        products = products_of(planned.phase, planned.plan, planned.buffers)
        registers = max(registers, *(product_registers(dot, shape) for dot, shape in planned.plan.dots))
        copied = max((shape.stages - 1) * shape.stage_bytes for shape in tiles) / planned.threads
        if (sweep := planned.plan.sweep) is not None:
            own = [dot for dot, shape in planned.plan.dots if shape is sweep.scores or shape is sweep.product]
            products = (*products, *swept_products(planned.plan, planned.buffers))
            registers = max(registers, swept_registers(sweep, *own))
            copied = max(copied, swept_copies(sweep) / planned.threads)
    if isinstance(planned.plan, RowBlockPlan) and planned.plan.few_rows:
        products = few_rows_products(planned.phase, planned.plan, planned.buffers)
        registers = max(registers, *(few_rows_registers(dot, shape) for dot, shape in planned.plan.few_rows))
    most = schedule[REGISTERS] or MOST_REGISTERS
    return LaunchCounts(
        blocks=counts.blocks,
        threads=planned.threads,
        registers=min(round(registers), most),
        spill_bytes=WORD * max(min(round(registers), MOST_REGISTERS) - most, 0),
        shared_bytes=kept.nbytes,
        flight_bytes=max(flights),
        copied_bytes=copied,
        parallel=max(at_once),
        pack=pack_of(planned),
        rounds=max((stage.vectors * WARP / everybody for stage in counts.stages), default=1.0),
        shared_wavefronts=wavefronts + sum(product.wavefronts for product in products),
        shift_slots=shifts,
        cluster=planned.cluster,
        chain=row_chain(planned, schedule),
        products=products,
    )


def together(phases: Sequence[LaunchCounts]) -> LaunchCounts:
    """The phases of one launch, whose blocks run beside each other; every block is given what the neediest needs."""
    blocks = sum(phase.blocks for phase in phases)
    share = [phase.blocks / blocks for phase in phases]
    return LaunchCounts(
        blocks=blocks,
        threads=max(phase.threads for phase in phases),
        registers=max(phase.registers for phase in phases),
        spill_bytes=max(phase.spill_bytes for phase in phases),
        shared_bytes=max(phase.shared_bytes for phase in phases),
        flight_bytes=sum(phase.flight_bytes * part for phase, part in zip(phases, share, strict=True)),
        copied_bytes=sum(phase.copied_bytes * part for phase, part in zip(phases, share, strict=True)),
        parallel=sum(phase.parallel * part for phase, part in zip(phases, share, strict=True)),
        pack=min(phase.pack for phase in phases),
        rounds=max(phase.rounds for phase in phases),
        shared_wavefronts=sum(phase.shared_wavefronts for phase in phases),
        shift_slots=sum(phase.shift_slots for phase in phases),
        cluster=max(phase.cluster for phase in phases),
        chain=max((phase.chain for phase in phases), key=lambda chain: (chain.waits, chain.steps)),
        products=tuple(product for phase in phases for product in phase.products),
    )
