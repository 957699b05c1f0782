"""The analytical model of a GPU: what a kernel costs by counting, at the rates of its data sheet or measured ones.

    kernel = launches, one after another
    launch = starting it + the longest of its terms (`terms.py`)

What a kernel needs of a multiprocessor decides how many of its blocks run side by side. It is estimated, or what its
compiler said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.cost_models.base import BOUNDS, Bound, KernelFacts, Prices
from autofuse.cost_models.features import FEATURES_VERSION, KernelFeatures, matrix
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import asdict
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.targets.cuda.cost.counts import Counted, counted
from autofuse.targets.cuda.cost.librarycosts import opaque_us
from autofuse.targets.cuda.cost.libraryproducts import library_terms
from autofuse.targets.cuda.cost.rates import SHEET, Rates, sheet_rates
from autofuse.targets.cuda.cost.terms import Terms, estimated, launch_terms
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.productcalls import library_code

MODEL_VERSION = 14
"""Raised when prices change."""
SIGMA, MEASURED_SIGMA = 0.7, 0.4
"""Deviation of log(measured / predicted), with rates of the data sheet and with measured ones: guesses, as no kernels
were measured."""


class GpuModel:
    """See `autofuse.cost_models.base.CostModel`."""

    def __init__(self, device: Gpu, rates: Rates | None = None) -> None:
        """`device`: its data sheet. `rates`: by default the sheet's."""
        self._gpu = device
        self.rates = sheet_rates(device) if rates is None else rates

    def price(self, kernels: Sequence[KernelFacts]) -> Prices:
        told = [counted(facts.program, self._gpu.arch) for facts in kernels]
        terms = [self._terms(kernel, facts) for kernel, facts in zip(told, kernels, strict=True)]
        us = [
            opaque_us(facts.program, self.rates)
            if isinstance(facts.program, OpaqueProgram)
            else sum(launch.us for launch in launches)
            for facts, launches in zip(kernels, terms, strict=True)
        ]
        floors = np.array([self._floor_us(kernel.features) for kernel in told], np.float64)
        sigma = SIGMA if self.rates.source == SHEET else MEASURED_SIGMA
        bounds: tuple[Bound, ...] = tuple(_bound(launches) for launches in terms)
        rows = matrix([kernel.features for kernel in told])
        us = np.maximum(np.array(us, np.float64), floors)
        of_bounds = np.array([_by_bound(*of) for of in zip(terms, us, strict=True)], np.float64)
        of_bounds = of_bounds.reshape(len(told), len(BOUNDS))
        return Prices(us, np.full(len(told), sigma), floors, bounds, features=rows, terms=of_bounds)

    def launches(self, facts: KernelFacts) -> tuple[Terms, ...]:
        """What each launch of a kernel is taken to cost, by what limits it; () for calls."""
        return self._terms(counted(facts.program, self._gpu.arch), facts)

    def write_us(self, value: TensorType) -> float:
        return value.nbytes / self.rates.memory_bytes_per_s * 1e6

    def describe(self) -> dict[str, Any]:
        return {
            "name": "analytical-gpu",
            "version": MODEL_VERSION,
            "feature_version": FEATURES_VERSION,
            "device": asdict(self._gpu),
            "rates": asdict(self.rates),
        }

    def _terms(self, kernel: Counted, facts: KernelFacts) -> tuple[Terms, ...]:
        code = library_code(facts.program) if isinstance(facts.program, TileProgram) else None
        if code is not None:
            return (library_terms(self._gpu, self.rates, code.product),)
        compiled = None if facts.compiled is None else facts.compiled.launches
        if compiled is None or len(compiled) != len(kernel.launches):
            compiled = tuple(estimated(launch) for launch in kernel.launches)
        return tuple(
            launch_terms(
                self._gpu, self.rates, [p for p in kernel.features.phases if p.launch == number], launch, needs
            )
            for number, (launch, needs) in enumerate(zip(kernel.launches, compiled, strict=True))
        )

    def _floor_us(self, kernel: KernelFeatures) -> float:
        """Bytes that must move and arithmetic that must be done, at the most that the device is known for.

        The L2 gives the bytes if it could hold all of them. Arithmetic on 16 bits may be done two at a time.
        """
        gpu, rates = self._gpu, self.rates
        moved = sum(buffer.floor_read_bytes + buffer.floor_written_bytes for buffer in kernel.buffers)
        memory = max(gpu.memory_bytes_per_s, rates.memory_bytes_per_s)
        near = 2.0 * max(rates.l2_bytes_per_s, sheet_rates(gpu).l2_bytes_per_s)
        moving_s = moved / (near if moved <= gpu.l2_bytes else memory)
        scalar_s = sum(stage.flops for phase in kernel.phases for stage in phase.stages) / (2.0 * gpu.f32_flops)
        dots = [dot for phase in kernel.phases for dot in phase.dots]
        product_s = sum(dot.flops / self._most_flops(dot.dtype) for dot in dots)
        return max(1e6 * max(moving_s, scalar_s, product_s), 1e-3)

    def _most_flops(self, dtype: str) -> float:
        """Of products of a type, whichever units do them."""
        matrix = {"bf16": self._gpu.matrix_flops, "f16": self._gpu.matrix_flops, "f32": self._gpu.tf32_flops}
        return max(self._gpu.f32_flops, matrix.get(dtype, 0.0))


def _by_bound(launches: Sequence[Terms], us: float) -> list[float]:
    """Microseconds of each of `BOUNDS`, over all launches; of a call, all of them are the library's."""
    if not launches:
        return [us * (bound == "library") for bound in BOUNDS]
    found = [launch.by_bound for launch in launches]
    return [sum(one.get(bound, 0.0) for one in found) for bound in BOUNDS]


def _bound(launches: Sequence[Terms]) -> Bound:
    """Of the launch that takes the longest."""
    if not launches:
        return "library"
    return max(launches, key=lambda launch: launch.us).bound
