"""`trace`: a NumPy function to a graph."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

from autofuse.frontend.traced import trace as _trace
from autofuse.ir.graph import Graph


def trace(
    fn: Callable[..., Any],
    *args: Any,
    static: Collection[int | str] | None = None,
    on_unsupported: Literal["error", "eager"] = "error",
) -> Graph:
    """The graph of `fn` for these arguments: arrays, `spec("f32[8,8]")`, or trees of them; other values are constants.

    The graph is as traced, before clean-up. `static` names further arguments to hold constant. With
    `on_unsupported="eager"` a call that cannot be traced becomes a call of NumPy. Raises TraceError, naming the line.
    """
    return _trace(fn, *args, static=static, on_unsupported=on_unsupported).graph
