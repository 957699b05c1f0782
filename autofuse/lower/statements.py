"""Scalar statements: what the body of a stage of a TileProgram does, one after another.

    statement = Constant | Position | Test | Load | Map | Reduce | ArgReduce | Scan | Carry | Leave
              | Repeat | Next | Store

Scalars are numbered; numbers are unique in a phase. A statement's result lives for one iteration of its stage, except
those of Reduce, ArgReduce and Carry, which are complete when their stage ends and can be read by every later stage of
the same RowGroup (they hold one value per grid point). Everything else passes from stage to stage through a scratch
buffer.
"""

from __future__ import annotations

from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.pieces import Condition
from autofuse.lazydataclass import dataclass

Scalar = int
"""The number of a scalar value."""


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """`result = value`, of `dtype`. `value` is a Python bool, int or float (inf and nan allowed).

    Two are equal if they are the same code: 0.0 and -0.0 differ, one NaN is like another.
    """

    result: Scalar
    dtype: DType
    value: bool | int | float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Scalar, DType, str]:
        return self.result, self.dtype, repr(self.value)


@dataclass(frozen=True, slots=True)
class Position:
    """`result = value`, an index as an integer of `dtype` (the lowering of iota)."""

    result: Scalar
    dtype: DType
    value: Affine


@dataclass(frozen=True, slots=True)
class Test:
    """`result` (bool) = all conditions hold."""

    result: Scalar
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """`result = buffer[offset]`, or `fill` where `mask` is false (then memory is not touched).

    `offset` may hold `Element(source, (), lo, hi)` variables: the integer scalar number `source`, clamped.
    """

    result: Scalar
    dtype: DType
    buffer: str
    offset: Affine
    mask: Scalar | None = None
    fill: Scalar | None = None


@dataclass(frozen=True, slots=True)
class Map:
    """`result = opcode(operands)`: the scalar opcodes of the op table (docs/ops.md)."""

    result: Scalar
    dtype: DType
    opcode: str
    operands: tuple[Scalar, ...]
    fast: bool = False
    """Whether a target may approximate it, as `autofuse.measurement.errorbounds.approximations` allows."""


@dataclass(frozen=True, slots=True)
class Reduce:
    """`result` = `operand` reduced with `combiner` over all iterations of the stage, accumulated in `dtype`."""

    result: Scalar
    dtype: DType
    combiner: str
    operand: Scalar


@dataclass(frozen=True, slots=True)
class ArgReduce:
    """`result` = `position` where `operand` is least / greatest: the first of equals; the first NaN beats all."""

    result: Scalar
    dtype: DType
    direction: str
    """`argmin` or `argmax`."""
    operand: Scalar
    position: Affine


@dataclass(frozen=True, slots=True)
class Scan:
    """`result` = `operand` of this and all earlier iterations combined with `combiner` (later ones if `reverse`).

    The stage has exactly one stream symbol, walked in order. A backend may combine neighbours first, in a fixed order.
    """

    result: Scalar
    dtype: DType
    combiner: str
    operand: Scalar
    reverse: bool


@dataclass(frozen=True, slots=True)
class Carry:
    """`result` = what the `Next` of the iteration before gave; `initial`, made by `Stage.before`, in the first one.

    Behind the stage, `result` is what the last iteration gave. A carry that no `Next` of the stage is for stays what it
    is. The stage's symbols are walked in order, as nested loops.
    """

    result: Scalar
    dtype: DType
    initial: Scalar
    reverse: bool = False
    """Whether the iterations are walked from the last to the first; as the stage's other carries and scans."""


@dataclass(frozen=True, slots=True)
class Next:
    """What the next iteration gets of `carry`, the number of a Carry of the stage that stands before."""

    carry: Scalar
    value: Scalar


@dataclass(frozen=True, slots=True)
class Leave:
    """The worker may leave the stage here, without what the next iteration would get, once `settled` holds everywhere.

    Where `settled` holds at a point, no later iteration changes what is read of its carries behind the stage. A stage
    has at most one; only Nexts stand behind it, and nothing is stored or reduced in the stage.
    """

    settled: Scalar
    """Whether a point is settled, computed from carries and from what is the same in all iterations."""
    required: bool = False
    """Whether it must: iterations go on until then, and the extent of the stage's symbol is only a guess. `settled`
    then is the same at all points of a worker, or nothing changes any more where it holds."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """An iteration of `symbol`, with all that is inside of it, is done again as long as `settled` is false anywhere.

    Each time it gets what was handed on before; where `settled` holds at all points of a worker, it is not done at all.

    Where `settled` holds at a point, later rounds change nothing there that is read once they are over.
    """

    symbol: Symbol
    where: Scalar
    """A Test of `symbol`, and of symbols around it: which of its iterations are meant."""
    settled: Scalar
    """Computed from carries and from what is the same in all iterations; not from symbols inside of `symbol`."""


@dataclass(frozen=True, slots=True)
class Store:
    """`buffer[offset] = value`, where `mask` (if any) is true. Every element of an output is stored exactly once.

    Of an output that holds elements of an input, at most once.
    """

    buffer: str
    offset: Affine
    value: Scalar
    mask: Scalar | None = None


Statement = Constant | Position | Test | Load | Map | Reduce | ArgReduce | Scan | Carry | Leave | Repeat | Next | Store
Effect = Leave | Repeat | Next | Store
"""Statements without a result."""
EFFECTS: frozenset[type] = frozenset((Leave, Repeat, Next, Store))
"""The same as types: asked of millions of statements, a set answers sooner than `isinstance`."""
