"""Exit codes, and data for machines on standard output."""

from __future__ import annotations

import json
from typing import Any

from autofuse.cli.streams import print_data

WRONG_ANSWER = 1
"""A check was asked for and failed."""
BAD_INPUT = 2
INTERRUPTED = 130
"""128 + SIGINT."""
TERMINATED = 143
"""128 + SIGTERM."""
BROKEN_PIPE = 141
"""128 + SIGPIPE."""


def print_json(data: Any) -> None:
    """Write data as JSON to standard output, which programs that print do not reach under `--json`."""
    print_data(json.dumps(data, indent=2, allow_nan=False))
