"""`trace`: a NumPy function to a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autofuse.frontend.traced import trace as _trace
from autofuse.ir.graph import Graph


def trace(fn: Callable[..., Any], *args: Any) -> Graph:
    """The graph of `fn` for these arguments: arrays, `spec("f32[8,8]")`, or trees of them; other values are constants.

    The graph is as traced, before clean-up. Raises TraceError, naming the line, for what cannot be traced.
    """
    return _trace(fn, *args).graph
