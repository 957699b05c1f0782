"""The journal of the CPU study, which keeps this study's records too."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

Record = dict[str, Any]

sys.path.append(str(Path(__file__).resolve().parents[1] / "cpu_first"))
Journal: Any = importlib.import_module("journal").Journal
"""See `experiments/cpu_first/journal.py`."""
