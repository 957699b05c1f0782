"""The rules of all operations, by name."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.frontend.stablehlo import (
    contractions,
    control,
    customcalls,
    drawing,
    elementwise,
    linearalgebra,
    normalization,
    reductions,
    scattering,
    shapes,
    sorting,
    tuples,
    windows,
)
from autofuse.frontend.stablehlo.rules import Rule

FAMILIES = (
    *(contractions, control, customcalls, drawing, elementwise, linearalgebra, normalization),
    *(reductions, scattering, shapes, sorting, tuples, windows),
)
"""The modules that hold the rules."""
RULES: Mapping[str, Rule] = {name: rule for family in FAMILIES for name, rule in family.RULES.items()}
