"""Measured rates kept between runs: one small JSON file for each device and driver under the user's cache folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from autofuse.errors import MeasureError
from autofuse.host.folders import cache_folder
from autofuse.lazydataclass import asdict, fields
from autofuse.plainfile import read_plain, write_whole
from autofuse.strictjson import parse
from autofuse.targets.cuda.cost.rates import Rates
from autofuse.targets.cuda.driver import Driver
from autofuse.targets.cuda.identity import GENERATOR

_MAX_BYTES = 1 << 16
MEASURED = "measured"


def rates_path(driver: Driver) -> Path:
    """Where the rates of a device are kept: named by all that decides them.

    That is the device with its clocks, the driver's version, and the generator of the kernels that measure.
    """
    described = json.dumps([asdict(driver.gpu), driver.version(), GENERATOR], sort_keys=True)
    return cache_folder() / "calibration" / f"gpu-{hashlib.sha256(described.encode()).hexdigest()[:16]}.json"


def kept_rates(driver: Driver) -> Rates | None:
    """Rates that were measured on such a device; None if there are none that can be read."""
    path = rates_path(driver)
    try:
        found: Any = parse(read_plain(path, _MAX_BYTES, follow_links=False, own=True), MeasureError, str(path))
        item = found.fields(["rates", "conditions"])["rates"]
        names = [field.name for field in fields(Rates) if field.name != "source"]
        numbers = item.fields(names)
        rates = Rates(source=MEASURED, **{name: numbers[name].number() for name in names})
    except (OSError, MeasureError):
        return None
    return rates if all(getattr(rates, name) > 0 for name in names) else None


def keep_rates(driver: Driver, rates: Rates, conditions: object) -> Path:
    """Keep them; atomic, the last writer wins. `conditions`: of the device meanwhile, as plain data.

    Raises MeasureError if the folder cannot be written.
    """
    path = rates_path(driver)
    numbers = {name: value for name, value in asdict(rates).items() if name != "source"}
    text = json.dumps({"rates": numbers, "conditions": conditions}, indent=2, sort_keys=True) + "\n"
    try:
        write_whole(path, text)
    except OSError as failure:
        raise MeasureError(f"cannot keep the calibration in {path}: {failure}; set XDG_CACHE_HOME") from failure
    return path
