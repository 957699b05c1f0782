"""What is said of a GPU that was calibrated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autofuse.errors import BackendError
from autofuse.lazydataclass import asdict
from autofuse.measurement.timer import Clock
from autofuse.targets.base import Calibrated
from autofuse.targets.cuda.conditions import Conditions
from autofuse.targets.cuda.cost.calibration import measured_rates
from autofuse.targets.cuda.cost.rates import Rates, sheet_rates
from autofuse.targets.cuda.cost.ratestore import keep_rates
from autofuse.targets.cuda.target import CudaTarget


def calibrated(
    target: CudaTarget, seconds: float, report: Callable[[float, str], None], clock: Clock | None = None
) -> Calibrated:
    """Measure a GPU's rates and keep them. `clock`: of the device, by default the target's.

    Raises BackendError where there is none, MeasureError where nothing can be measured or kept.
    """
    driver = target.driver
    if driver is None:
        raise BackendError(
            f"{target.device.name} is not here, so its rates cannot be measured; plans use its data sheet"
        )
    before = driver.conditions()
    rates = measured_rates(target, sheet_rates(target.device), seconds, report, clock or target.clock)
    state = {"before": _plain(before), "after": _plain(driver.conditions())}
    path = keep_rates(driver, rates, state)
    facts = {"device": target.device.name, "rates": asdict(rates), "conditions": state}
    return Calibrated(str(path), facts, _text(target, rates, before))


def _plain(found: Conditions | str) -> Any:
    return asdict(found) if isinstance(found, Conditions) else found


def _text(target: CudaTarget, rates: Rates, state: Conditions | str) -> str:
    said = state if isinstance(state, str) else f"{state.multiprocessor_mhz} MHz, {state.temperature_c} degrees"
    return (
        f"{target.device.name} (clocks: {said})\n"
        f"launch   {rates.launch_us:.2f} us from kernel to kernel, {rates.alone_us:.2f} us more for one alone\n"
        f"memory   {rates.memory_bytes_per_s / 1e9:.0f} GB/s\n"
        f"L2       {rates.l2_bytes_per_s / 1e9:.0f} GB/s\n"
        f"issue    {rates.issues_per_s / 1e9:.0f} thousand million instructions of warps a second\n"
        f"products {rates.product_flops / 1e12:.1f} TFLOP/s on ordinary units\n"
    )
