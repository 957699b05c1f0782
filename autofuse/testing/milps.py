"""HiGHS as a slow machine would run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autofuse.search.solve import coverprogram


class Late:
    """HiGHS that meets its time limit: its bound is loose, and `change(result)` may take more away.

    Give it to a test as `monkeypatch.setattr(coverprogram, "milp", Late(change))`.
    """

    def __init__(self, change: Callable[[Any], None] = lambda _: None) -> None:
        self.limits: list[float] = []
        """Seconds that each call was given."""
        self._change = change
        self._real: Callable[..., Any] = coverprogram.milp

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.limits.append(options["options"]["time_limit"])
        result = self._real(*args, **options)
        result.status = 1
        result.mip_dual_bound = 0.25 * result.fun
        self._change(result)
        return result
