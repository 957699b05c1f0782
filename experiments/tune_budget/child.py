"""One program tuned in this process, or two plans of it timed against each other: child.py TASK OUTCOME."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import autofuse as af
from autofuse.measurement.workloads import load

warnings.simplefilter("ignore")
task = json.loads(Path(sys.argv[1]).read_text())
workload = load(task["program"])
arguments = workload.inputs(task["size"])
if task["step"] == "tune":
    begin = time.perf_counter()
    plan = af.tune(workload.function, *arguments, budget=task["budget"], progress=False)  # imports what it needs
    seconds = time.perf_counter() - begin
    plan.save(task["plan"])
    certificate = plan.certificate
    outcome = {
        "seconds": seconds,
        "measured": certificate.measured,
        "schedules": certificate.schedules_tried,
        "spent": getattr(certificate, "spent", None),
    }
else:
    from autofuse.report.comparison import interleave

    plans = {name: af.load(path, on_mismatch="run") for name, path in task["plans"].items()}
    calls = {name: (lambda plan=plan: plan(*arguments)) for name, plan in plans.items()}
    samples = interleave(calls, task["blocks"], 20_000.0, 0, resting=False)
    outcome = {"us": {name: float(np.median(times)) for name, times in samples.items()}}
Path(sys.argv[2]).write_text(json.dumps(outcome))
