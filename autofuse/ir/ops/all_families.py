"""Imports every family so that its ops are registered."""

from autofuse.ir.ops import dot, elementwise, joins, leaves, reductions, views

FAMILIES = (dot, elementwise, joins, leaves, reductions, views)
"""The modules that hold the op table's entries."""
