"""`trace`: a NumPy function to a graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from autofuse.api.options import check_options
from autofuse.frontend.tracecontext import OnUnsupported
from autofuse.frontend.traced import trace as _trace
from autofuse.ir.graph import Graph


def trace(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] = MappingProxyType({}),
    static: Collection[int | str] | None = None,
    on_unsupported: OnUnsupported = "numpy",
    roll: bool = True,
) -> Graph:
    """The graph of a call `fn(*args, **kwargs)`: of arrays, `spec("f32[8,8]")`, or trees of them; the rest is constant.

    The graph is as traced, before clean-up. `static` names further arguments to hold constant. Calls
    without an implementation become calls of NumPy or SciPy where result types are known ("numpy"), or by running them
    ("eager"), or are refused ("error"). `roll`: as for `autofuse.compile`. Raises TraceError, naming the line.
    """
    check_options(fn=fn, kwargs=kwargs, static=static, on_unsupported=on_unsupported, roll=roll)
    return _trace(fn, *args, kwargs=kwargs, static=static, on_unsupported=on_unsupported, roll=roll).graph
