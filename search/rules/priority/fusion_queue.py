"""XLA:GPU's priority fusion: the merge that saves most comes first, by XLA's own predictions or by the cost model's.

Source: priority_fusion.cc and fusion_pipeline.cc of OpenXLA. An entry of the queue is a producer: it is computed within
all of its readers, or within none. After the queue numbers are inlined, and equal copies within kernels become one.
Multi-output fusion follows. Each pass runs once. Vetoes are in `vetoes.py`, predictions in `run_times.py`. What the
program is taken to be is in `translation.py`.

Not modelled are some passes before the queue. DotMerger makes one product of small products with an operand in common.
GemmRewriter puts a scale, a bias, an activation or an added matrix into a call of cuBLAS, as in `a @ b + c @ d`. The
convolution rewriters put a bias, an addend or an activation into a call of cuDNN. Fusion by Triton is left out too, and
after the queue horizontal fusion of loops and reductions, which versions from the middle of 2023 until 2025 run.

Beyond XLA's rules a merge is left out where this code generator has no kernel for it. A returned reshape costs XLA
nothing. So here the kernel that makes its operand writes it, where there is such a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf

from autofuse.errors import LegalityError
from autofuse.lazydataclass import dataclass, field
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.prices.pricing import class_prices
from autofuse.search.rules.grouping import Group, Grouping
from autofuse.search.rules.priority.cost_analysis import WorkCount
from autofuse.search.rules.priority.emitters import Emitters
from autofuse.search.rules.priority.gpu_devices import H100, GpuDescription
from autofuse.search.rules.priority.gpu_module import Module
from autofuse.search.rules.priority.kernel_bodies import Kernel
from autofuse.search.rules.priority.multi_output import MultiOutputFusion
from autofuse.search.rules.priority.run_times import RunTimes, XlaTimes
from autofuse.search.rules.priority.vetoes import LATEST, PriorityLimits, Vetoes
from autofuse.search.space.candidates import Candidate


@dataclass(frozen=True, slots=True)
class XlaPriority:
    """As XLA:GPU would fuse for a device, with its constants."""

    device: GpuDescription = H100
    limits: PriorityLimits = LATEST
    name: str = "rule:xla-priority"

    def partition(self, context: Context) -> Partition:
        """Merge while XLA's performance model predicts a gain. Raises LegalityError, SearchError."""
        grouping, emitters, work = Grouping(context), Emitters(self.device), WorkCount(self.device)
        fuse(Module(grouping), XlaTimes(emitters, work), Vetoes(emitters, work, self.limits))
        return grouping.partition()


@dataclass(frozen=True, slots=True)
class XlaPriorityCalibrated:
    """XLA:GPU's queue and vetoes with the cost model's predictions for the device at hand.

    What a device description is still asked for are budgets and the choice of emitters that the vetoes look at.
    """

    device: GpuDescription = H100
    limits: PriorityLimits = LATEST
    name: str = "rule:xla-priority-calibrated"

    def partition(self, context: Context) -> Partition:
        """Merge while the cost model predicts a gain. Raises LegalityError, SearchError."""
        grouping, emitters, work = Grouping(context), Emitters(self.device), WorkCount(self.device)
        module = Module(grouping)
        fuse(module, ModelTimes(context, module), Vetoes(emitters, work, self.limits))
        return grouping.partition()


def fuse(module: Module, times: RunTimes, vetoes: Vetoes) -> None:
    """Run the passes of the fusion pipeline, each once."""
    PriorityQueue(module, times, vetoes).run()
    module.inline_constants()
    module.clean()
    MultiOutputFusion(module, times, vetoes).run()
    module.clean()
    module.write_bitcasts_in_place()


@dataclass(slots=True)
class PriorityQueue:
    """One run of the queue (PriorityFusionQueue). Priorities are times saved."""

    module: Module
    times: RunTimes
    vetoes: Vetoes
    _heap: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    _waiting: dict[int, tuple[float, Kernel]] = field(default_factory=dict[int, tuple[float, Kernel]])
    """By number, what is in the queue."""
    _fused: dict[tuple[Kernel, Kernel], float | None] = field(
        default_factory=dict[tuple[Kernel, Kernel], "float | None"]
    )

    def run(self) -> bool:
        """Merge until the queue is empty. Whether anything was merged."""
        self._update(self.module)
        changed = False
        while self._heap:
            priority, number = heappop(self._heap)
            entry = self._waiting.get(-number)
            if entry is None or entry[0] != -priority:
                continue
            del self._waiting[-number]
            producer = entry[1]
            consumers = self._consumers(producer)
            made = self.module.fuse(producer, consumers) if consumers else ()
            if not made:
                continue
            changed = True
            for old in consumers:
                self._waiting.pop(old.number, None)
            self._update(kernel for new in made for kernel in (*self.module.makers(new), new) if kernel is not producer)
        return changed

    def priority(self, producer: Kernel) -> float | None:
        """What computing a kernel within all of its readers saves (CalculateProducerPriority). None: it may not be."""
        if producer.is_bitcast:
            return inf
        consumers = self._consumers(producer)
        if not consumers or self.module.is_output(producer):
            return None
        if any(self.vetoes.refusal(producer, user) is not None for user in consumers):
            return None
        return self._saved(producer)

    def _saved(self, producer: Kernel) -> float | None:
        """Bitcasts that read the producer count, though it is not fused into them."""
        saved = self.times.launch + self.times.alone(producer)
        for user in self.module.users(producer):
            fused = self._time_fused(producer, user)
            if fused is None:
                return None
            saved += self.times.alone(user) - fused
        return saved

    def _consumers(self, producer: Kernel) -> tuple[Kernel, ...]:
        """The readers that a producer is fused into. A bitcast may be fused into some only."""
        users = tuple(user for user in self.module.users(producer) if not user.is_bitcast)
        if not producer.is_bitcast:
            return users
        return tuple(user for user in users if self.vetoes.refusal(producer, user) is None)

    def _time_fused(self, producer: Kernel, user: Kernel) -> float | None:
        pair = producer, user
        if pair not in self._fused:
            self._fused[pair] = self.times.fused(producer, user, self.vetoes.merged(producer, user))
        return self._fused[pair]

    def _update(self, kernels: Iterable[Kernel]) -> None:
        """Compute priorities anew; what would not save anything leaves the queue."""
        for kernel in dict.fromkeys(kernels):
            self._waiting.pop(kernel.number, None)
            priority = self.priority(kernel) if kernel.is_fusible else None
            if priority is not None and priority >= 0:
                self._waiting[kernel.number] = priority, kernel
                heappush(self._heap, (-priority, -kernel.number))


@dataclass(slots=True)
class ModelTimes:
    """Run times asked of the cost model, for kernels as this code generator writes them, in microseconds.

    Views take no time here: fusing one saves nothing, so it comes after all that does.
    """

    context: Context
    module: Module
    launch: float = 0.0
    """Prices of kernels include what starting them takes."""
    _prices: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def grouping(self) -> Grouping:
        """The groups that the kernels are."""
        return self.module.grouping

    def alone(self, kernel: Kernel) -> float:
        """The price of a kernel's group."""
        group = self.module.group(kernel)
        return 0.0 if group is None or kernel.is_bitcast else self._price(self.grouping.candidate(group))

    def fused(self, producer: Kernel, consumer: Kernel, merged: Kernel, writes_both: bool = False) -> float | None:
        """The price of the group that the two would be; a kernel that has only views is part of the other for free."""
        maker, user = self.module.group(producer), self.module.group(consumer)
        if maker is None or user is None or consumer.is_bitcast:
            return self.alone(consumer if maker is None else producer)
        roots = maker.roots | user.roots if writes_both else user.roots
        try:
            return self._price(self.grouping.trial(Group(merged.atoms, roots)))
        except LegalityError:
            return None

    def _price(self, candidate: Candidate) -> float:
        if candidate.digest not in self._prices:
            (price,) = class_prices(self.context.model, [candidate]).values()
            self._prices[candidate.digest] = price.predicted_us
        return self._prices[candidate.digest]
