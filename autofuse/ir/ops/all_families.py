"""Imports every family so that its ops are registered."""

from autofuse.ir.ops import (
    calls,
    control,
    convolution,
    dot,
    dynamic,
    elementwise,
    gather,
    joins,
    leaves,
    reductions,
    scatter,
    sort,
    views,
    windows,
)

FAMILIES = (
    *(calls, control, convolution, dot, dynamic, elementwise, gather),
    *(joins, leaves, reductions, scatter, sort, views, windows),
)
"""The modules that hold the op table's entries."""
