"""The state of a GPU while it is measured, by NVML: clocks, temperature, power, and what slows it down.

NVML comes with the driver; its Python binding is the package `nvidia-ml-py`, which is optional. Without it nothing is
known, and that is said.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from autofuse.lazydataclass import dataclass

_IDLE = 1
"""NVML's bit for clocks that are low since nothing runs."""
MISSING = "unknown: pip install nvidia-ml-py"


@dataclass(frozen=True, slots=True)
class Conditions:
    """At one moment."""

    driver: str
    """The version that NVML gives: `580.82.07`."""
    multiprocessor_mhz: int
    multiprocessor_most_mhz: int
    memory_mhz: int
    temperature_c: int
    power_w: float
    throttled: int
    """Why clocks are low, as NVML's bits; 0 and 1 (idle) are nothing to worry about."""

    def text(self) -> str:
        """In a line."""
        clocks = f"{self.multiprocessor_mhz} MHz of {self.multiprocessor_most_mhz}, memory {self.memory_mhz} MHz"
        slowed = f", slowed down (NVML's reasons {self.throttled:#x})" if self.throttled & ~_IDLE else ""
        return f"{clocks}, {self.temperature_c} C, {self.power_w:.0f} W, driver {self.driver}{slowed}"


def conditions(pci_bus_id: str) -> Conditions | str:
    """Of the device at a PCI address, as CUDA names it (`0000:3B:00.0`); or why nothing is known."""
    try:
        nvml: Any = import_module("pynvml")
    except ImportError:
        return MISSING
    try:
        nvml.nvmlInit()
        try:
            return _asked(nvml, nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id))
        finally:
            nvml.nvmlShutdown()
    except (nvml.NVMLError, AttributeError) as failure:  # an older or newer binding may lack a function
        return f"unknown: NVML: {failure}"


def _asked(nvml: Any, device: Any) -> Conditions:
    version = nvml.nvmlSystemGetDriverVersion()
    return Conditions(
        driver=version.decode() if isinstance(version, bytes) else str(version),
        multiprocessor_mhz=int(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)),
        multiprocessor_most_mhz=int(nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM)),
        memory_mhz=int(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM)),
        temperature_c=int(nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)),
        power_w=nvml.nvmlDeviceGetPowerUsage(device) / 1e3,
        throttled=int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)),
    )
