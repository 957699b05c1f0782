"""One program compiled and called in this process: child.py TASK OUTCOME."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

# The programs beside this file, with the package that PYTHONPATH names.
from programs import PROGRAMS

import autofuse as af

warnings.simplefilter("ignore")
af.compile(lambda x: x + 1, af.spec("f32[8]"))  # imports are not what is measured
task = json.loads(Path(sys.argv[1]).read_text())
function, arguments = PROGRAMS[task["program"]][0](task["steps"])
begin = time.perf_counter()
plan = af.compile(function, *arguments, policy=task["policy"])
compiled = time.perf_counter()
plan(*arguments)
called = time.perf_counter()
decided = any(note.startswith("the deadline of") for note in plan.document.notes)
outcome = {
    "compile_s": compiled - begin,
    "call_s": called - compiled,
    "kernels": len(plan.kernels),
    "decided": decided,
}
Path(sys.argv[2]).write_text(json.dumps(outcome))
