"""Calls that cannot be traced: an error that names the nearest supported spelling, or, if asked, a call left to NumPy.

With `trace(..., on_unsupported="eager")` a function without an implementation becomes a `custom_call` node between the
traced ones:

1. The traced arrays among its arguments are the node's operands; everything else is fixed, as JSON, in the target's
   name.
2. Result shapes and dtypes are learned by running it once: the graph recorded so far is interpreted on the sample
   arguments given to `trace` to get the operands. So eager tracing needs arrays, not specs.
3. The target's name, `numpy.linalg.inv(#0)`, says all that the call is. `resolve` in
   `autofuse.ir.ops.calls` finds the function again in another process, for functions of NumPy and SciPy; other
   functions must be registered there under the name before the plan is loaded.

Limits: results must be arrays (or a tuple of them) whose shapes do not depend on the data; fixed arguments must be
numbers, strings, None, or tuples of those; the function must not write into its arguments.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from autofuse.frontend.dispatch import FUNCTIONS, UNSUPPORTED, describe
from autofuse.frontend.location import trace_error

_INSTEAD = {
    "nonzero": "np.where(condition, a, b), or arithmetic on the mask: the number of results depends on data",
    "flatnonzero": "np.where(condition, a, b), or arithmetic on the mask: the number of results depends on data",
    "argwhere": "np.where(condition, a, b), or arithmetic on the mask: the number of results depends on data",
    "unique": "np.sort(x), or np.bincount(x, minlength=n): the number of results depends on data",
    "compress": "np.where(condition, a, 0)",
    "extract": "np.where(condition, a, 0)",
    "vectorize": "call the function on the whole arrays, with np.where for branches",
    "apply_along_axis": "call the function on the whole array with axis=",
}


def unsupported(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A function without an implementation was called on traced arrays."""
    del args, kwargs
    label = describe(function)
    name = label.rpartition(".")[2]
    raise trace_error(f"{label} cannot be traced", _INSTEAD.get(name) or _nearest(name))


UNSUPPORTED.append(unsupported)


def _nearest(name: str) -> str:
    """What is supported under a similar name."""
    known = {describe(function): function for function in FUNCTIONS if callable(function)}
    short = {label.rpartition(".")[2]: label for label in known}
    near = difflib.get_close_matches(name, short, n=3, cutoff=0.6)
    if near:
        return "near names that can be traced: " + ", ".join(short[item] for item in near)
    return (
        "compose it from elementwise functions, reductions, matmul and indexing; or"
        ' trace(..., on_unsupported="eager") to leave the call to NumPy'
    )
