"""`autofuse calibrate`: measure this machine's throughputs, which the cost model then uses."""

from __future__ import annotations

import argparse
import sys

from autofuse.cli.output import print_json
from autofuse.cli.parser import count, positive
from autofuse.cli.streams import say, show
from autofuse.report.progress import progress_report
from autofuse.report.quantities import bytes_text, table, three_digits
from autofuse.targets.cpu.cost.calibration import calibrate
from autofuse.targets.cpu.device.describe import CpuDescription
from autofuse.targets.cpu.device.store import CalibrationStore


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--seconds", type=positive, default=6.0, help="about how long to measure (default 6)")
    parser.add_argument("--threads", type=count, help="threads that plans will use (default one per core)")
    parser.add_argument("--force", action="store_true", help="keep the numbers of a busy machine too")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Calibrate and keep the numbers in the user's cache folder."""
    said: list[str] = []
    with progress_report(sys.stderr.isatty() and not options.json) as report:

        def progress(share: float, what: str) -> None:
            said.append(what)
            report("calibrating", share, 1.0)

        described = calibrate(options.seconds, progress, options.threads, force=options.force)
    warning = said[-1].removeprefix("done").lstrip("; ") if said else ""
    if warning:
        say(f"autofuse: {warning}")
    path = CalibrationStore().path(described)
    if options.json:
        print_json({"file": str(path), "key": described.key(), "calibration": described.calibration.to_json()})
    else:
        show(_text(described), end="")
        show(f"kept in {path}; plans are priced with these numbers from now on")
    return 0


def _text(described: CpuDescription) -> str:
    found = described.calibration
    levels = {
        "L1": found.l1_bytes_per_us,
        "L2": found.l2_bytes_per_us,
        f"L3 ({bytes_text(found.effective_l3_bytes)} usable)": found.l3_bytes_per_us,
        "memory": found.dram_bytes_per_us,
    }
    rows = [(name, three_digits(rate.one / 1e3), three_digits(rate.all / 1e3)) for name, rate in levels.items()]
    rows += [
        (f"BLAS {name} (Gflop/s)", three_digits(rate.one), three_digits(rate.all))
        for name, rate in found.blas_gflops.items()
    ]
    text = table((f"GB/s on {described.model}", "one core", f"{described.threads} threads"), rows)
    costs = (
        f"fork and join {three_digits(found.fork_join_us)} us, call {three_digits(found.call_overhead_us)} us, "
        f"fresh pages {three_digits(found.page_fault_us_per_mb)} us per MB"
    )
    return f"{text}{costs}\n"
