"""Instructions: what XLA's rules decide about. `hlo_translation.py` makes them of a program."""

from __future__ import annotations

from functools import cache

from autofuse.ir.graph import Node
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import all_ops
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

_ADDED = frozenset({"negation", "reciprocal"})
"""Elementwise opcodes that only the other compiler has: of an exponent, and of a divisor."""
PASSED = frozenset({"broadcast", "bitcast", "transpose", "slice", "reverse", "get_tuple_element"}) | _ADDED
"""Opcodes that are no operations of ours. Nor is the reduction that is the second half of a product."""


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One instruction. Compared by identity."""

    number: int
    """Position in the program; operands come first."""
    opcode: str
    """The op's name here, but for `parameter`, `broadcast`, `bitcast`, `dot`, `custom_call`, `tuple`, ..."""
    operands: tuple[Instruction, ...]
    types: tuple[TensorType, ...]
    """Of its results."""
    node: Node | None = None
    """What it stands for. None for parameters, scalars, views of results, and what the other compiler adds."""
    axes: tuple[int, ...] = ()
    """Of a reduction: the dimensions of its operand that it reduces."""
    scalar: float | int | None = None
    """Of a constant of one element."""

    @property
    def type(self) -> TensorType:
        """Of the first result."""
        return self.types[0]

    @property
    def size(self) -> int:
        """Elements of all results."""
        return sum(type_.size for type_ in self.types)

    @property
    def nbytes(self) -> int:
        """Bytes of all results."""
        return sum(type_.nbytes for type_ in self.types)

    @property
    def is_elementwise(self) -> bool:
        """Whether each result element needs one element of each operand, at the same index. Constants count."""
        return self.opcode in _elementwise()

    @property
    def is_scalar_constant(self) -> bool:
        """Whether it is a constant of one element."""
        return self.scalar is not None

    @property
    def window(self) -> tuple[int, ...]:
        """The extents of a reduce-window; a running reduction's window is as long as its axis."""
        assert self.node is not None
        attrs = self.node.attrs
        if self.node.op == "cumulative":
            return (self.type.shape[attrs["dimension"]],)
        return attrs["window_dimensions"]

    @property
    def true_rank(self) -> int:
        """The most extents other than 1 that a result has."""
        return max((sum(extent != 1 for extent in type_.shape) for type_ in self.types), default=0)

    def __repr__(self) -> str:
        return f"{self.opcode} {self.number if self.node is None else self.node.name}"


def is_passed(value: Instruction) -> bool:
    """Whether an instruction is no operation of ours: its readers look through it."""
    return value.opcode in PASSED or (value.opcode == "reduce" and value.node is None)


@cache
def _elementwise() -> frozenset[str]:
    """Opcodes of elementwise instructions."""
    return frozenset(op.name for op in all_ops() if op.role is Role.ELEMENTWISE) | {"constant"} | _ADDED
