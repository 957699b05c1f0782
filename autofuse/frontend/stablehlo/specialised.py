"""Programs whose extents are not all known, made static for the arguments of a call, by StableHLO's own passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autofuse.frontend.stablehlo.bindings import lowered
from autofuse.frontend.stablehlo.tensortypes import mlir_text
from autofuse.ir.types import TensorType

_PASSES = (
    "inline",
    "func.func(stablehlo-canonicalize-dynamism)",
    "stablehlo-refine-shapes",
    "func.func(stablehlo-canonicalize-dynamism)",
)


def made_static(module: Any, types: Sequence[TensorType]) -> None:
    """Give the main function's arguments these types, and all that follows from them theirs, in place.

    Raises ParseError where that leaves a contradiction.
    """
    arguments = f"stablehlo-refine-arguments{{types={','.join(map(mlir_text, types))}}}"
    lowered(module, ",".join((arguments, *_PASSES)))
