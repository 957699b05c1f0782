"""Measured calibrations kept between runs: one small JSON file per kind of machine under the user's cache folder."""

from __future__ import annotations

import json
from pathlib import Path

from autofuse.errors import MeasureError
from autofuse.host.folders import cache_folder
from autofuse.lazydataclass import replace
from autofuse.plainfile import read_plain, write_whole
from autofuse.strictjson import parse
from autofuse.targets.cpu.device import detect
from autofuse.targets.cpu.device.describe import Calibration, CpuDescription, calibration_from

_MAX_BYTES = 1 << 20


def described_cpu(threads: int | None = None) -> CpuDescription:
    """The CPU of this machine, for plans of so many threads, with calibrated numbers where they were measured."""
    return CalibrationStore().describe(detect.detect(threads))


class CalibrationStore:
    """Calibrations by `CpuDescription.key()`. A file that cannot be read is a miss; `problem` then says why."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder() / "calibration"
        self.problem: str | None = None
        """Why the last `load` found nothing; None if it found something."""

    def path(self, description: CpuDescription) -> Path:
        """Where the calibration of such a CPU is kept."""
        return self.folder / f"cpu-{description.key()}.json"

    def load(self, description: CpuDescription) -> Calibration | None:
        """The calibration measured on such a CPU, or None."""
        path = self.path(description)
        self.problem = None
        try:
            text = read_plain(path, _MAX_BYTES, follow_links=False, own=True)
            return calibration_from(parse(text, MeasureError, str(path)))
        except OSError as failure:
            self.problem = f"{path}: {failure.strerror or failure}"
        except MeasureError as bad:
            self.problem = str(bad)
        return None

    def save(self, description: CpuDescription, calibration: Calibration) -> Path:
        """Keep a calibration; atomic, the last writer wins. Raises MeasureError if the folder cannot be written."""
        path = self.path(description)
        try:
            write_whole(path, json.dumps(calibration.to_json(), indent=2, sort_keys=True) + "\n")
        except OSError as failure:
            raise MeasureError(f"cannot keep the calibration in {path}: {failure}; set XDG_CACHE_HOME") from failure
        return path

    def describe(self, description: CpuDescription) -> CpuDescription:
        """`description` with its measured numbers if there are any, else as it is.

        What was measured of more threads of this CPU tells of fewer: the fewest of these are taken.
        """
        found = self.load(description)
        if found is not None:
            return description.with_calibration(_plausible(found, description))
        problem = self.problem
        for threads in range(description.threads + 1, description.logical + 1):
            found = self.load(replace(description, threads=threads))
            if found is not None:
                fewer = found.of_fewer(description.threads)
                return description.with_calibration(_plausible(fewer, description))
        self.problem = problem
        return description


def _plausible(found: Calibration, description: CpuDescription) -> Calibration:
    """A calibration, with the default for a fork and join of several threads that took no time.

    Calibrations kept such a difference of two disturbed times before.
    """
    if description.threads == 1 or found.fork_join_us > 0.0:
        return found
    unmeasured = tuple(sorted({*found.unmeasured, "fork_join_us"}))
    return replace(found, fork_join_us=description.calibration.fork_join_us, unmeasured=unmeasured)
