"""How far may an answer be from the interpreter's? Bounds of rounding errors, carried through the graph by element."""

from autofuse.measurement.errorbounds.walk import Bound, bounds_of

__all__ = ["Bound", "bounds_of"]
