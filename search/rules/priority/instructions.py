"""The instructions that a program consists of for XLA:GPU; views and constants are instructions too."""

from __future__ import annotations

from functools import cache
from typing import Any

from autofuse.fusion.atoms import FusionAtom
from autofuse.ir.graph import Attrs
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import lookup
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, field
from autofuse.search.rules.hlo_rewrites import EXPANDED

PARAMETER, CONSTANT, BITCAST, LIBRARY = "parameter", "constant", "bitcast", "library"
"""Opcodes beside the names of the op table. LIBRARY is whatever fuses with nothing."""

_MOVING = frozenset(
    (
        *("broadcast_in_dim", "transpose", "slice", "reverse", "iota", "concatenate", "pad", "gather"),
        *("dynamic_slice", "dynamic_update_slice", "reduce", "argmin", "argmax", "reduce_window"),
    )
)
"""Opcodes that fuse, besides elementwise ones and bitcasts (priority_fusion.cc, IsFusible)."""


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One operation, input or constant. Compared by identity."""

    number: int
    """Position in the program: later instructions have larger ones."""
    opcode: str
    type: TensorType
    operands: tuple[Instruction, ...] = ()
    attrs: Attrs = field(default_factory=dict[str, Any])
    atom: FusionAtom | None = None
    """The operation on this side; None for views, constants and inputs."""

    def __repr__(self) -> str:
        return f"{self.opcode}.{self.number} {self.type}"

    @property
    def is_elementwise(self) -> bool:
        return _is_elementwise(self.opcode)

    @property
    def is_fusible(self) -> bool:
        """Whether XLA fuses it with others at all."""
        return self.opcode in _MOVING or self.opcode == BITCAST or self.is_elementwise

    @property
    def is_source(self) -> bool:
        """An input or a constant: no kernel computes it."""
        return self.opcode in (PARAMETER, CONSTANT)

    @property
    def is_variadic(self) -> bool:
        """A reduction with two results in XLA; readers see one of them through an instruction that never fuses."""
        return self.opcode in ("argmin", "argmax")

    @property
    def operand_count(self) -> int:
        """How many operands the last of XLA's instructions for it has."""
        return 2 if self.opcode in EXPANDED else len(self.operands)


@cache
def _is_elementwise(opcode: str) -> bool:
    return opcode not in (PARAMETER, CONSTANT, BITCAST, LIBRARY) and lookup(opcode).role is Role.ELEMENTWISE
