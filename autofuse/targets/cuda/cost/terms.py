"""Microseconds of one launch by what limits it: each is what the launch would take if all else were free.

    memory   bytes over what arrives at most: bandwidth, or bytes in flight over the latency (Little's law)
    l2       bytes of sectors that warps ask for, over the L2's bandwidth
    issue    instructions of warps, over those that start in a cycle
    special  approximated functions, over what their units give
    product  products of matrices in whole tiles, on ordinary or on matrix units; the former wait for shared memory;
             the rows of row blocks, one after another, before products and behind them
    shared   wavefronts of shared memory, and local memory that the first-level cache holds
    serial   chains of dependent steps; rounds of products that wait for their tiles; chunks of running sums; blocks
             that wait for memory one after another, where a multiprocessor holds few
    start    from the kernel before

How many blocks a multiprocessor holds decides how much is in flight and how well latencies are hidden. A last wave that
does not fill the device has less in flight, and multiprocessors that get a block more than others work longer. A block
that is alone on its multiprocessor does nothing else while it multiplies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofuse.cost_models.base import Bound
from autofuse.cost_models.compiled import LaunchFacts
from autofuse.cost_models.features import PhaseFeatures, StageFeatures
from autofuse.lazydataclass import dataclass, fields
from autofuse.targets.cuda.cost.fastwork import FAST
from autofuse.targets.cuda.cost.launches import MOST_REGISTERS, WARP, WAVEFRONT_BYTES, WORD, LaunchCounts
from autofuse.targets.cuda.cost.products import ROUND_CLOCKS, ProductCounts, read_again_bytes
from autofuse.targets.cuda.cost.rates import Rates
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.nvrtc import Resources
from autofuse.targets.cuda.occupancy import Occupancy, occupancy

_OVERHEAD = 3.0
"""Instructions for neighbours that a thread takes together, beside arithmetic and memory: addresses, tests, loops."""
_ISSUE_SLOTS = {
    "add": 1.0,
    "multiply": 1.0,
    "compare": 1.0,
    "convert": 2.0,
    "integer": 1.0,
    "divide": 12.0,
    "sqrt": 8.0,
    "exp": 10.0,
    "log": 25.0,
    "tanh": 16.0,
    "sin": 28.0,
    "erf": 28.0,
    "power": 64.0,
    "gather": 1.0,
}
"""Instructions behind an operation on f32 in strict arithmetic, by class: counted in machine code for 9.0 (NVRTC 13.5),
without the ways that only subnormal and huge numbers take."""
_SPECIAL = {"divide": 1.0, "sqrt": 1.0, "exp": 1.0, "tanh": 2.0, "erf": 1.0, "power": 2.0}
"""Of these, those of the units for approximated functions."""
_LONG_SLOTS = {
    "add": 1.5,
    "multiply": 1.5,
    "compare": 2.0,
    "convert": 4.0,
    "integer": 2.0,
    "divide": 16.0,
    "sqrt": 21.0,
    "exp": 55.0,
    "log": 78.0,
    "tanh": 80.0,
    "sin": 60.0,
    "erf": 123.0,
    "power": 190.0,
    "gather": 2.0,
}
"""The same on f64, and on 64-bit integers: additions are of either."""
_F64_OPERATIONS = {
    "divide": 9.0,
    "sqrt": 9.0,
    "exp": 18.0,
    "log": 30.0,
    "tanh": 30.0,
    "sin": 17.0,
    "erf": 40.0,
    "power": 85.0,
}
"""Of these, those of the units for f64; of other classes one."""
_F32_OPERATIONS = frozenset({"add", "multiply"})
"""Of f32, those of the units for f32 alone."""
_INTEGERS_PER_CLOCK = 64
"""Additions, shifts and logic of 32-bit integers, and comparisons, of a multiprocessor in a cycle: CUDA C++ Programming
Guide, "Throughput of Native Arithmetic Instructions", 8.0 to 9.0."""
_FAST_SLOTS = {"divide": 2.0, "sqrt": 1.0, "exp": 1.5, "log": 1.5, "tanh": 5.0, "sin": 7.0}
_FAST_SPECIAL = {"divide": 1.0, "sqrt": 1.0, "exp": 1.0, "log": 1.0, "tanh": 2.0, "sin": 1.0}
"""The same of operations of the price class `FAST`, counted in machine code for 8.0 and 9.0."""
_HIDING_WARPS = 16.0
"""Warps of a multiprocessor that, each with one instruction under way, keep its four schedulers busy: a dependent
instruction starts four cycles later (Luo et al. 2024)."""
_MOST_PARALLEL = 4.0
"""Independent instructions that a warp is credited with, at most."""
_KEPT_REGISTERS = 16
"""Of a thread: those that no load arrives in."""
_EXPOSED = 0.25
"""Of the shorter of what ordinary units and shared memory do for a product, what the longer one does not hide. Steps of
tiles of 16 x 64, 64 x 64 and 128 x 64 took 46, 89 and 129 to 146 clocks of an H200; this says 43, 78 and 140."""
ALONE = 1.2
"""Times as long as a step of such a product takes in a block that has a multiprocessor for itself: 55 clocks were
measured for 16 x 64."""
_INTEGER_SHARE, _LONG_SHARE = 0.5, 0.125
"""Of the rate of products of f32: those of integers, and of 64-bit ones, which take several instructions."""
_BOUNDS: dict[str, Bound] = {
    "memory": "memory",
    "l2": "memory",
    "issue": "compute",
    "special": "compute",
    "product": "compute",
    "shared": "compute",
    "serial": "serial",
}


@dataclass(frozen=True, slots=True)
class Terms:
    """Microseconds of one launch, by what limits it; see above."""

    memory: float
    l2: float
    issue: float
    special: float
    product: float
    shared: float
    serial: float
    start: float
    flight_bytes: float
    """In flight on each multiprocessor, in a full wave."""
    waves: float
    """Blocks over those that the device holds."""

    @property
    def us(self) -> float:
        """All of it: what takes longest, after the start."""
        return max(getattr(self, name) for name in _BOUNDS) + self.start

    @property
    def bound(self) -> Bound:
        """What limits the launch."""
        longest = max(_BOUNDS, key=lambda name: getattr(self, name))
        return _BOUNDS[longest] if getattr(self, longest) > self.start else "overhead"

    @property
    def by_bound(self) -> dict[Bound, float]:
        """Microseconds of what may limit the launch: the longest of what counts as each."""
        found: dict[Bound, float] = {"overhead": self.start}
        for name, bound in _BOUNDS.items():
            found[bound] = max(found.get(bound, 0.0), getattr(self, name))
        return found

    def named(self) -> list[tuple[str, float]]:
        """The microseconds, by name."""
        return [(f.name, getattr(self, f.name)) for f in fields(self) if f.name in _BOUNDS or f.name == "start"]

    def text(self) -> str:
        """For people."""
        parts = [f"{name} {us:.3g}" for name, us in self.named() if us >= 0.005]
        return (
            f"by the model, us: {', '.join(parts)}; {self.flight_bytes / 1024:.0f} KiB in flight a multiprocessor, "
            f"{self.waves:.2f} waves"
        )


def estimated(counts: LaunchCounts) -> LaunchFacts:
    """What a launch that is not compiled is taken to need."""
    spilled = counts.spill_bytes
    return LaunchFacts(counts.registers, spill_bytes=spilled, private_bytes=spilled, shared_bytes=counts.shared_bytes)


def held(gpu: Gpu, counts: LaunchCounts, facts: LaunchFacts) -> Occupancy:
    """How many blocks a multiprocessor holds; one, where an estimate says that it holds none."""
    needed = Resources(facts.registers, facts.spill_bytes, facts.private_bytes, 0)
    found = occupancy(gpu, needed, counts.threads, min(facts.shared_bytes, gpu.shared_bytes_per_block))
    warps = -(-counts.threads // WARP)
    return found if found.blocks else Occupancy(1, warps, warps * WARP / gpu.threads, found.limit)


def launch_terms(
    gpu: Gpu, rates: Rates, phases: Sequence[PhaseFeatures], counts: LaunchCounts, facts: LaunchFacts
) -> Terms:
    """The terms of one launch of these phases."""
    stages = [stage for phase in phases for stage in phase.stages]
    blocks_held = held(gpu, counts, facts).blocks
    spread = _Spread(gpu, counts.blocks, blocks_held, counts.cluster)
    threads = counts.blocks * counts.threads
    spilled = facts.spill_bytes * threads * max(counts.rounds, 1.0)
    kept = min(1.0, max(gpu.shared_bytes - blocks_held * facts.shared_bytes, 0) / _private_bytes(counts, facts, spread))
    flight = _flight_bytes(counts, facts)
    moved = float(sum(sum(phase.reuse.traffic(0)) for phase in phases))
    moved += read_again_bytes(counts.products, gpu.l2_bytes, blocks_held * gpu.multiprocessors)
    requested = sum(stage.accesses.vector_bytes for stage in stages) + spilled * (1.0 - kept)
    requested += sum(product.requested_bytes for product in counts.products)
    slots = sum(_slots(stage, counts.pack) for stage in stages) + counts.shift_slots + spilled / (WORD * WARP)
    own_slots = sum(product.slots for product in counts.products)
    special = WARP * sum(_special(*key) * n for stage in stages for key, n in stage.operations.items())
    parallel = _MOST_PARALLEL if counts.products else min(counts.parallel, _MOST_PARALLEL)
    hidden = min(1.0, spread.warps(counts.threads) * parallel / _HIDING_WARPS)
    slow = spread.slowest / max(hidden, 1e-3)
    waves = counts.shared_wavefronts + spilled * kept / WAVEFRONT_BYTES
    chain = max((stage.chain / max(stage.entries, 1) for stage in stages), default=0.0)
    work = slow * max(slots / rates.issues_per_s, _units_s(gpu, rates, stages))
    multiplied, fed = _multiplied_s(gpu, rates, counts, spread, slow)
    apart = work / spread.each if counts.products else 0.0
    rows = counts.chain.waits * rates.latency_us + counts.chain.steps * rates.step_us
    rows *= math.ceil(spread.waves)
    memory = 1e6 * _memory_s(gpu, rates, moved, flight * counts.threads, spread)
    l2 = 1e6 * requested / rates.l2_bytes_per_s / max(spread.busy, 1e-3)
    issue = 1e6 * (work + slow * own_slots / rates.issues_per_s)
    special_us = 1e6 * slow * special / rates.special_per_s
    waited = sum(product.rounds / max(product.stages - 1, 1) for product in counts.products) * math.ceil(spread.waves)
    serial = chain * rates.step_us + 1e6 * (waited * ROUND_CLOCKS / gpu.clock_hz + apart)
    if not counts.products:
        busy = max(1e6 * moved / _top_rate(gpu, rates, moved), l2, issue, special_us)
        serial = max(serial + rows, spread.in_turn_us(busy, _wait_us(gpu, rates, moved)))
    return Terms(
        memory=memory,
        l2=l2,
        issue=issue,
        special=special_us,
        product=1e6 * (multiplied + apart) + (rows if counts.products else 0.0),
        shared=1e6 * (slow * waves / (gpu.multiprocessors * gpu.clock_hz) + fed + apart),
        serial=serial,
        start=rates.launch_us,
        flight_bytes=flight * counts.threads * spread.each,
        waves=spread.waves,
    )


@dataclass(frozen=True, slots=True)
class _Spread:
    """Blocks over multiprocessors, each of which holds so many."""

    gpu: Gpu
    blocks: int
    held: int
    cluster: int

    @property
    def usable(self) -> int:
        """Multiprocessors that clusters can be put on, one block on each."""
        return max(self.gpu.multiprocessors // self.cluster, 1) * self.cluster

    @property
    def waves(self) -> float:
        return self.blocks / (self.held * self.usable)

    @property
    def each(self) -> int:
        """Blocks at work on a multiprocessor, while there are enough."""
        return max(1, min(self.held, -(-self.blocks // self.usable)))

    @property
    def busy(self) -> float:
        """The share of multiprocessors that have work."""
        return min(1.0, self.blocks / self.gpu.multiprocessors)

    @property
    def slowest(self) -> float:
        """Times as long as if all blocks were spread evenly: the multiprocessor with the most blocks decides."""
        if not self.blocks:
            return 1.0
        return math.ceil(self.blocks / self.usable) * self.gpu.multiprocessors / self.blocks

    def warps(self, threads: int) -> float:
        """At work on a multiprocessor."""
        return self.each * -(-threads // WARP)

    def in_turn_us(self, busy_us: float, wait_us: float) -> float:
        """What blocks take that each wait once, and then have their share of what takes longest.

        While one waits, those that are held beside it may go on: so many customers of a closed network, who spend
        `wait_us` outside and `busy_us` together at its slowest station, are served no faster (Lazowska et al. 1984,
        "Quantitative System Performance", 5.3). The first ones wait where memory has that in its price.
        """
        return busy_us / self.each + max(self.waves - 1.0, 0.0) * wait_us


def _wait_us(gpu: Gpu, rates: Rates, moved: float) -> float:
    """For a load: from the L2, where what is moved stays there."""
    return 1e6 * ROUND_CLOCKS / gpu.clock_hz if _stays(gpu, moved) else rates.latency_us


def _stays(gpu: Gpu, moved: float) -> bool:
    """Whether what a launch moves stays in the L2 from kernel to kernel."""
    return moved <= gpu.l2_bytes / 2


def _top_rate(gpu: Gpu, rates: Rates, moved: float) -> float:
    """At which bytes come at most, a second."""
    return rates.l2_bytes_per_s if _stays(gpu, moved) else rates.memory_bytes_per_s


def _memory_s(gpu: Gpu, rates: Rates, moved: float, block_flight: float, spread: _Spread) -> float:
    """Full waves, then what is left. Bytes that stay in the L2 from kernel to kernel come at its rate."""
    top = _top_rate(gpu, rates, moved)

    def rate(blocks: float) -> float:
        return max(min(top, blocks * block_flight / (rates.latency_us * 1e-6)), 1.0)

    most = spread.held * spread.usable
    full, rest = divmod(spread.blocks, most)
    each = moved / max(spread.blocks, 1)
    return full * most * each / rate(most) + (rest * each / rate(rest) if rest else 0.0)


def _flight_bytes(counts: LaunchCounts, facts: LaunchFacts) -> float:
    """Of one thread: what it asks for, as far as there are registers for it."""
    held = WORD * max(min(facts.registers, MOST_REGISTERS) - _KEPT_REGISTERS, 4.0)
    return max(min(counts.flight_bytes, held), counts.copied_bytes)


def _private_bytes(counts: LaunchCounts, facts: LaunchFacts, spread: _Spread) -> float:
    """Memory of the threads' own on a multiprocessor."""
    return max(float(facts.private_bytes * counts.threads * spread.each), 1.0)


def _slots(stage: StageFeatures, pack: int) -> float:
    """Instructions that warps issue for a stage; one loads or stores several neighbours of a thread."""
    accesses = stage.accesses
    walked = accesses.contiguous / pack + accesses.strided + accesses.gather + accesses.uniform + accesses.masked
    worked = sum(count * _issued(*key) for key, count in stage.operations.items())
    return walked + worked + _OVERHEAD * stage.vectors / pack + stage.horizontal * 2 * WARP.bit_length()


def _issued(name: str, price_class: str) -> float:
    """Instructions behind an operation of a class."""
    if price_class == FAST:
        return _FAST_SLOTS[name]
    return (_LONG_SLOTS if price_class == "f64" else _ISSUE_SLOTS)[name]


def _special(name: str, price_class: str) -> float:
    """Those of the units for approximated functions."""
    return _FAST_SPECIAL[name] if price_class == FAST else _SPECIAL.get(name, 0.0)


def _units_s(gpu: Gpu, rates: Rates, stages: Sequence[StageFeatures]) -> float:
    """Of the units for f64, for f32, and for integers and comparisons: those that take the longest."""
    long = short = other = 0.0
    for stage in stages:
        for (name, price_class), count in stage.operations.items():
            if name == "integer" or (name == "compare" and price_class != "f64"):
                other += count * _issued(name, price_class)
            elif price_class == "f64":
                long += count * _F64_OPERATIONS.get(name, 1.0)
            elif name in _F32_OPERATIONS:
                short += count
    cycles = rates.issues_per_s / 4
    return WARP * max(long / gpu.f64_per_clock, short / gpu.f32_per_clock, other / _INTEGERS_PER_CLOCK) / cycles


def _multiplied_s(gpu: Gpu, rates: Rates, counts: LaunchCounts, spread: _Spread, slow: float) -> tuple[float, float]:
    """What multiplying takes, and what the products of ordinary units take beside reading shared memory."""
    multiplied = fed = 0.0
    alone = ALONE if spread.each == 1 else 1.0
    for product in counts.products:
        own = spread.slowest * _product_s(gpu, rates, product)
        if product.units == "plain":
            read = slow * product.wavefronts / (gpu.multiprocessors * gpu.clock_hz)
            exposed = _EXPOSED * min(own, read)
            fed += (alone - 1.0) * read + alone * exposed
            own = alone * (own + exposed)
        multiplied += own
    return multiplied, fed


def _product_s(gpu: Gpu, rates: Rates, product: ProductCounts) -> float:
    if product.units == "matrix":
        return product.flops / (rates.tf32_flops if product.is_tf32 else rates.matrix_flops)
    share = 1.0
    if not product.dtype.is_float:
        share = _LONG_SHARE if product.dtype.bits == 64 else _INTEGER_SHARE
    elif product.dtype.bits == 64:
        share = gpu.f64_per_clock / gpu.f32_per_clock
    return product.flops / (share * rates.product_flops)
