"""Where warnings of this package point: the code that called it."""

from __future__ import annotations

import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def outside(*packages: str) -> int:
    """The `stacklevel` with which `warnings.warn`, called by the caller, names the code that called the package.

    `packages`: files of others that call this package on behalf of a caller, whose paths begin so.
    """
    frame, level = sys._getframe(1), 1  # pyright: ignore[reportPrivateUsage]  # as `warnings` does
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_PACKAGE, *packages)):
        frame, level = frame.f_back, level + 1
    return level
