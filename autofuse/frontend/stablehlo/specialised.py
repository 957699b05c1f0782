"""Programs whose extents are not all known, made static for the arguments of a call, by StableHLO's own passes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from autofuse.errors import ArgumentError
from autofuse.frontend.stablehlo.bindings import lowered, parsed, refined
from autofuse.frontend.stablehlo.tensortypes import mlir_text
from autofuse.ir.types import TensorType


def made_static(module: Any, types: Sequence[TensorType], name: str) -> Any:
    """The module for arguments of these types: all that follows from them has a type too.

    Raises ArgumentError, which says what the program `name` demands, for types that contradict it.
    """
    lowered(module, f"stablehlo-refine-arguments{{types={','.join(map(mlir_text, types))}}}")
    held = io.BytesIO()
    module.operation.write_bytecode(held)
    try:
        return parsed(refined(held.getvalue()))
    except (ValueError, RuntimeError) as error:
        given = ", ".join(map(str, types))
        reason = " ".join(str(error).split())
        raise ArgumentError(f"{name}: arguments {given} are not what the program demands: {reason:.400}") from None
