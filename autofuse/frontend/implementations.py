"""Loads every module that implements NumPy functions, so that they are registered."""

from __future__ import annotations

from importlib import import_module

_MODULES = (
    "ufunc_formulas",
    "complexinverses",
    "complexrules",
    "ufuncs",
    "reductions",
    "moments",
    "running",
    "nanreductions",
    "subscripts",
    "flat",
    "integerindexing",
    "at",
    "manipulation",
    "conversion",
    "joining",
    "padding",
    "creation",
    "matrices",
    "choosing",
    "filters",
    "sorting",
    "statistics",
    "linalg",
    "einsum",
    "special",
    "rolling.arithmetic",
    "rolling.raggedfunctions",
    "eager",
)


def load() -> None:
    """Import the implementing modules, once."""
    for name in _MODULES:
        import_module(f"autofuse.frontend.{name}")
