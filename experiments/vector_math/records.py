"""The journal of this study's records."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

Record = dict[str, Any]

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
Journal: Any = importlib.import_module("journal").Journal
"""See `experiments/common/journal.py`."""
