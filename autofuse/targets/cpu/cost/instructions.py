"""The time that one core takes for the instructions of a stage, its operands in the first cache.

The constants are of this model, not of a machine: fitted to kernels of two programs in three, and kept where they
held for the third (`docs/decisions/0080-*`). What differs from machine to machine is in its calibration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from autofuse.cost_models.features import FarWalk, StageFeatures
from autofuse.targets.cpu.device.describe import CpuDescription

_LATENCY_CYCLES = 2.5
"""Of a vector addition or comparison, the links of most chains."""
_ENTRY_CYCLES = 7.0
"""Entering and leaving a stage's loop: bounds, addresses, a branch that goes the other way once."""
_LEVEL_CYCLES = 0.6
"""One level of the tree that combines the lanes of a vector: a shuffle and an operation, overlapped with other rows."""
_PLACED_CYCLES = 5.0
"""The same, and one vector in flight joined to another, where positions are found: comparisons and choices of pairs."""
_PORTS = 0.4
"""Share of what moves that arithmetic does not hide, or the other way round."""
_DIVIDING = 0.6
"""The same of the divider and the other operations: what is divided, and what is made of it, wait for each other."""
_DIVIDER_SHARE = 0.85
"""Of what a division takes in a calibration: what the divider takes; the rest is what surrounds it there."""
_MASKED = 0.25
"""Extra accesses that a masked one counts as."""
_WAITED_FOR = frozenset(("divide", "sqrt", "exp", "log", "tanh", "sin", "erf", "power"))
_DEPTH = 1.5
"""What is computed once for all lanes is waited for: so many times as long as a vector of the same takes in a row of
others. Single operations are not: others are at hand meanwhile."""
_DIVIDED_BITS = 128
"""What a divider takes in at a time: wider vectors take as many times as long, one element as long as so many bits."""
_DIVIDER_DEPTH = 1.5
_DIVIDER = frozenset(("divide", "sqrt"))
_LEAST_STEP_US = 1e-5
"""What no step to another page takes less than: a hundredth of a nanosecond."""
_BY_ELEMENT = frozenset(("gather", "scatter"))
"""Classes of which an instruction costs what its elements do, not what a whole vector does."""


class InstructionModel:
    """Microseconds of instructions on one core of a CPU."""

    def __init__(self, description: CpuDescription) -> None:
        calibration = description.calibration
        self._calibration = calibration
        self._bits = description.vector_bits
        self._lanes = {"f32": description.lanes(4), "f64": description.lanes(8)}
        # two ports of fused multiply-adds, two flops each
        self.cycle_us = 4 * self._lanes["f32"] / calibration.fma_flops_per_us["f32"]
        self._access_us = self._bits / 8 / calibration.l1_bytes_per_us.one
        self._narrow_access_us = self._bits / 16 / calibration.narrow_l1_bytes_per_us
        divider = _DIVIDER_DEPTH * min(_DIVIDED_BITS / self._bits, 1.0)
        self._waiting = {op_class: divider if op_class in _DIVIDER else _DEPTH for op_class in _WAITED_FOR}
        steps = calibration.far_steps
        self._pages = np.log([step.pages for step in steps])
        costs = {True: [step.write_us for step in steps], False: [step.read_us for step in steps]}
        self._far_us = {write: np.log(np.maximum(us, _LEAST_STEP_US)) for write, us in costs.items()}

    def stage_us(self, stage: StageFeatures, vector_bits: int) -> float:
        """Vector operations, loads, stores, spills and the combining of lanes, on one core.

        The divider, the load and store ports and the others work side by side. What vectors narrower than half of the
        widest take is what those of half of it do.
        """
        narrow = vector_bits < self._bits
        arithmetic, divider = self._operations_us(stage, narrow)
        levels = math.log2(max(stage.lanes, 2))
        cycles = stage.horizontal * levels * _LEVEL_CYCLES
        cycles += stage.placed * (levels + stage.unroll - 1) * _PLACED_CYCLES
        arithmetic += cycles * self.cycle_us + self._scalars_us(stage.scalar_operations)
        counts = stage.accesses
        accesses = counts.contiguous + counts.uniform + _MASKED * counts.masked
        spilled = stage.spilled * stage.vectors / stage.unroll
        access_us = self._narrow_access_us if narrow else self._access_us
        moving = (accesses + 2 * spilled) * access_us + self._steps_us(stage.far_walks)
        work = max(arithmetic, divider) + _DIVIDING * min(arithmetic, divider)
        return max(work, moving) + _PORTS * min(work, moving)

    def entries_us(self, stage: StageFeatures) -> float:
        """Entering the loops of a stage."""
        return stage.entries * _ENTRY_CYCLES * self.cycle_us if stage.loops else 0.0

    def chain_us(self, stage: StageFeatures) -> float:
        """Operations that wait for one another."""
        return stage.chain * _LATENCY_CYCLES * self.cycle_us

    def _operations_us(self, stage: StageFeatures, narrow: bool) -> tuple[float, float]:
        """(all but the divider's, the divider's)."""
        arithmetic = divider = 0.0
        for (op_class, dtype), count in stage.operations.items():
            elements = stage.lanes if op_class in _BY_ELEMENT else self._lanes[dtype] / (1 + narrow)
            us = count * elements / self._calibration.throughput(op_class, dtype, narrow=narrow)
            if op_class in _DIVIDER:
                divider += us * _DIVIDER_SHARE
            else:
                arithmetic += us
        return arithmetic, divider

    def _scalars_us(self, operations: Mapping[tuple[str, str], float]) -> float:
        """What is computed once for all lanes."""
        return math.fsum(
            count
            * self._lanes[dtype]
            / self._calibration.throughput(op_class, dtype)
            * self._waiting.get(op_class, 1.0)
            for (op_class, dtype), count in operations.items()
        )

    def _steps_us(self, walks: tuple[FarWalk, ...]) -> float:
        """Steps from page to page. The walks of a stage take turns, so their pages add up.

        Between two numbers of pages that were measured, the logarithm of the cost grows with that of the pages.
        """
        pages = sum(walk.pages for walk in walks)
        if not walks or not self._pages.size:
            return 0.0
        at = math.log(max(pages, 1.0))
        us = {write: math.exp(float(np.interp(at, self._pages, logs))) for write, logs in self._far_us.items()}
        return math.fsum(walk.steps * us[walk.write] for walk in walks)
