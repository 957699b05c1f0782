"""The op table: one entry holds all that an op is.

An entry gives type inference, the NumPy evaluation that defines the semantics (edges included), the access map that
tells fusion where elements come from, the scalar opcode that code generators emit, and the work it does. Adding an op
means adding one entry to a module of `autofuse.ir.ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from typing import Any

from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.index import Affine
from autofuse.ir.types import TensorType


class Family(Enum):
    """How fusion and lowering treat an op. The set is closed; code dispatches on it with `match`."""

    ELEMENTWISE = "elementwise"
    """Each result element is a scalar function (`scalar`) of the operands' elements at the same index."""
    LEAF = "leaf"
    """No operands: `constant`, `iota`."""
    INDEX = "index"
    """Moves elements: each result element is chosen among `access(...)`'s pieces."""
    REDUCE = "reduce"
    """`reduce`, `argmin`, `argmax`: folds away dimensions."""
    WINDOW = "window"
    """`reduce_window`, `cumulative`: folds over a neighbourhood, keeps dimensions."""
    CONTRACTION = "contraction"
    """`dot_general`, `convolution`."""
    OPAQUE = "opaque"
    """`sort`, `scatter`, `custom_call`: one call; only its declared dataflow is known."""
    CONTROL = "control"
    """`while`, `if`: owns regions."""


@dataclass(frozen=True, slots=True)
class Condition:
    """`lo <= value < hi`, and `value % multiple == remainder` where `multiple` > 1."""

    value: Affine
    lo: int
    hi: int
    multiple: int = 1
    remainder: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """One place a result element may come from: operand `operand` at `index`, if all of `conditions` hold."""

    operand: int
    index: tuple[Affine, ...]
    conditions: tuple[Condition, ...] = ()


AccessRule = Callable[[Sequence[TensorType], TensorType, Attrs, tuple[Affine, ...]], tuple[Piece, ...]]
"""(operand types, result type, attrs, result index) -> pieces, tried in order; the last is taken if no other one is.

Conditions of the last piece, where it has any, then always hold; they only say where its index lies inside the operand.

Pieces may read run-time integers through `index.Element` atoms whose `source` is an operand number."""

InferRule = Callable[[Sequence[TensorType], Attrs, Sequence[Graph]], tuple[TensorType, ...]]
"""(operand types, attrs, regions) -> result types. The attributes have been checked by `attributes.normalized`."""
EvaluateRule = Callable[[Sequence[NDArray[Any]], Attrs, Sequence[Graph]], tuple[NDArray[Any], ...]]
"""(operands, attrs, regions) -> results. CONTROL ops get the values of each region's captures after their operands."""
EvaluateIntoRule = Callable[[Sequence[NDArray[Any]], Attrs, Sequence[NDArray[Any] | None]], None]
"""(operands, attrs, memory for the results, None where nobody wants one): writes the results. The memory is
C-contiguous, of the inferred types, and shares nothing with the operands."""
EvaluateOverRule = Callable[[Sequence[NDArray[Any]], Attrs], NDArray[Any]]
"""(operands, attrs) -> the first operand, turned into the result. It is C-contiguous, and nobody else needs it."""
FlopRule = Callable[[Sequence[TensorType], Sequence[TensorType], Attrs], float]
ScratchRule = Callable[[Sequence[TensorType], Sequence[TensorType], Attrs], int]
"""(operand types, result types, attrs) -> bytes."""


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """One attribute of an op."""

    kind: str
    """`int`, `ints`, `bool`, `str`, `float`, `dtype`, `array`, `int_pairs` (tuple of (lo, hi)) or `types`."""
    doc: str
    choices: tuple[str, ...] = ()
    optional: bool = False
    """Absent is allowed; the op's rules give the meaning of absence."""


@dataclass(frozen=True, slots=True)
class OpDef:
    """All that one op is."""

    name: str
    doc: str
    """What it computes and what happens at the edges, in a sentence or three."""
    family: Family
    infer: InferRule
    """Result types; raises GraphError that names the operand or attribute, what is required and what came."""
    evaluate: EvaluateRule
    """NumPy evaluation: operands to results, exactly the inferred types. Never modifies an operand."""
    attrs: Mapping[str, AttrSpec] = field(default_factory=dict[str, AttrSpec])
    arity: int | None = None
    """Number of operands; None = any."""
    scalar: Callable[[Attrs], str] | None = None
    """ELEMENTWISE: the scalar opcode the backends emit, given the attributes."""
    access: AccessRule | None = None
    """INDEX: the access map."""
    flops: FlopRule | None = None
    """Scalar operations per call by (operand types, result types, attrs); None = one per result element."""
    commutative: bool = False
    expensive: bool = False
    """A transcendental or a division: not worth recomputing per user without asking the cost model."""
    evaluate_into: EvaluateIntoRule | None = None
    """`evaluate` into memory that is given, where that saves copying the results; None = it would save nothing."""
    evaluate_over: EvaluateOverRule | None = None
    """`evaluate` into the first operand's memory, for ops that else copy it and change a part."""
    scratch: ScratchRule | None = None
    """Bytes that `evaluate` takes for a while; None = at most a few times what operands and results have."""


_TABLE: dict[str, OpDef] = {}


def register(op: OpDef) -> OpDef:
    """Add an entry. Raises GraphError if the name is taken or the family's required rule is missing."""
    if op.name in _TABLE:
        raise GraphError(f"op {op.name!r} is registered twice")
    if op.family is Family.ELEMENTWISE and op.scalar is None:
        raise GraphError(f"elementwise op {op.name!r} needs a scalar opcode")
    if op.family is Family.INDEX and op.access is None:
        raise GraphError(f"index op {op.name!r} needs an access rule")
    _TABLE[op.name] = op
    return op


def lookup(name: str) -> OpDef:
    """The entry called `name`. Raises GraphError listing near names."""
    known = _TABLE.get(name)
    if known is not None:
        return known
    _load()
    try:
        return _TABLE[name]
    except KeyError:
        near = [other for other in _TABLE if other[:3] == name[:3]]
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise GraphError(f"unknown op {name!r}{hint}") from None


def all_ops() -> Iterator[OpDef]:
    """Every entry, by name."""
    _load()
    yield from sorted(_TABLE.values(), key=lambda op: op.name)


def _load() -> None:
    import_module("autofuse.ir.ops.all_families")  # the families register themselves on import
