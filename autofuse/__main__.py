"""The command line as a process: `autofuse`, and `python -m autofuse` where its script is not on the path."""

from __future__ import annotations

import sys

from autofuse.cli.interrupts import interrupts_wait


def run() -> int:
    """Run the command line of this process and return the exit code."""
    try:
        with interrupts_wait():
            from autofuse.cli.main import main
        return main()
    except KeyboardInterrupt:
        print("autofuse: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run())
