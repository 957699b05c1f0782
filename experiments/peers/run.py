"""autofuse beside its peers on every workload: python experiments/peers/run.py, or `make peers`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

# The journal, the interleaving and the processes are those of the CPU study.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

if __name__ == "__main__":
    sys.exit(importlib.import_module("study").main())
