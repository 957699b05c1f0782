"""The analytical model of the device: right about memory and launches, and blind to what is slow to compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.cost_models.base import Bound, KernelFacts, Prices
from autofuse.cost_models.features import FEATURES_VERSION, KernelFeatures
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import replace
from autofuse.testing.counted.device import CountedDevice
from autofuse.testing.counted.work import features, nanoseconds

_SIGMA = 0.5
"""A kernel of slow operations takes up to so much longer, as a logarithm."""


class CountedModel:
    """See `autofuse.cost_models.base.CostModel`."""

    def __init__(self, device: CountedDevice) -> None:
        """`device`: what its data sheet says."""
        self._device = replace(device, slow=())

    def price(self, kernels: Sequence[KernelFacts]) -> Prices:
        told = [features(facts.program) for facts in kernels]
        spilt = [self._spilt_ns(facts) for facts in kernels]
        us = np.array(
            [(nanoseconds(k, self._device) + ns) / 1e3 for k, ns in zip(told, spilt, strict=True)], np.float64
        )
        floors = np.array([kernel.launches * self._device.launch_ns / 1e3 for kernel in told], np.float64)
        return Prices(us, np.full(len(told), _SIGMA), floors, tuple(self._bound(kernel) for kernel in told))

    def _spilt_ns(self, facts: KernelFacts) -> int:
        """Of what its compiler had no registers for: as if all of it crossed to global memory once."""
        launches = () if facts.compiled is None else facts.compiled.launches
        return sum(launch.spill_bytes for launch in launches) * self._device.byte_ns

    def _bound(self, kernel: KernelFeatures) -> Bound:
        if kernel.opaque is not None:
            return "library"
        moving = self._device.byte_ns * sum(sum(phase.reuse.traffic(0)) for phase in kernel.phases)
        starting = kernel.launches * self._device.launch_ns
        computing = nanoseconds(kernel, self._device) - moving - starting
        terms: tuple[tuple[int, Bound], ...] = ((starting, "overhead"), (moving, "memory"), (computing, "compute"))
        longest = max(terms, key=lambda term: term[0])
        return longest[1]

    def write_us(self, value: TensorType) -> float:
        return value.nbytes * self._device.byte_ns / 1e3

    def describe(self) -> dict[str, Any]:
        return {"name": "analytical-counted", "feature_version": FEATURES_VERSION, "rates": self._device.to_json()}
