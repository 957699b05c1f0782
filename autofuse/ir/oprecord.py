"""The record of an op: all that one op is, in one place.

A record gives type inference, the NumPy evaluation that defines the semantics (edges included), the role that fusion
and lowering ask for, and what the role demands: where elements come from, or which scalar opcodes are emitted, how
exact they are and what they cost. What a constructor demands has no default: an op without it cannot be written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal

from numpy.typing import NDArray

from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.index import Affine
from autofuse.ir.pieces import Piece
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, field


class Role(Enum):
    """What an op is to fusion and lowering. The set is closed; the ops of a role have the attributes that it names."""

    ELEMENTWISE = "elementwise"
    """Each result element is a scalar function of the operands' elements at the same index."""
    CONSTANT = "constant"
    """An array of the graph: `value`."""
    IOTA = "iota"
    """No operands; elements follow from their position along `iota_dimension`."""
    VIEW = "view"
    """Renames positions: readers rewrite their indices instead of loading a copy."""
    RESHAPE = "reshape"
    """A view that keeps the row-major order: `shape`."""
    SLICE = "slice"
    """A view of every so-manieth element: `start_indices`, `limit_indices`, `strides`."""
    JOIN = "join"
    """The operands one after the other along `dimension`."""
    INDEX = "index"
    """Any other op that moves elements."""
    REDUCE = "reduce"
    """Reduces `dimensions` away with `combiner`."""
    ARG_REDUCE = "position of an extreme"
    """Reduces `dimension` away; the result, of `dtype`, is where the greatest or least element stands."""
    SCAN = "scan"
    """Runs along `dimension` with `combiner`, from the end if `reverse`."""
    WINDOW = "window"
    """Reduces every position of a window with `combiner`: `window_dimensions` and the like."""
    DOT = "dot"
    """A contraction with the dimension numbers of `dot_general`."""
    CONVOLUTION = "convolution"
    """A contraction with the dimension numbers of `convolution`."""
    SORT = "sort"
    """Puts the operands in the order of the first along `dimension`."""
    SCATTER = "scatter"
    """Combines updates into an array at positions known at run time; dimension numbers, `combiner`."""
    CALL = "call"
    """A call of a function, `call_target_name`: only its dataflow is known."""
    LOOP = "loop"
    """Owns the regions condition and body."""
    COUNTED_LOOP = "counted loop"
    """Owns the region body, which runs `length` times: `carries`, `reverse`."""
    BRANCH = "branch"
    """Owns a region for each outcome."""
    COMPLEX = "complex"
    """Joins two parts in complex numbers, or takes one; `autofuse.passes.complexparts` leaves none."""

    def __init__(self, label: str) -> None:
        self.is_leaf = label in ("constant", "iota")
        """Without operands."""
        self.is_view = label in ("view", "reshape", "slice")
        self.moves = self.is_view or label in ("join", "index")
        """The op chooses elements: its record is an `IndexOp`."""
        self.computes = not (self.is_leaf or self.is_view)
        self.is_reduction = label in ("reduce", "position of an extreme")
        self.is_contraction = label in ("dot", "convolution")
        self.is_reduction_like = self.is_reduction or self.is_contraction or label == "scan"
        """The op has loops that its result lacks, or walks one in order."""
        self.is_control = label in ("loop", "counted loop", "branch")
        """The op owns regions."""
        self.is_opaque = self.is_control or label in ("sort", "scatter", "call")
        """The op is one call: nothing can be computed inside it."""


Array = NDArray[Any]
Region = Callable[[Sequence[Array]], tuple[Array, ...]]
"""A region made ready to be run: arguments -> results. What it captures is bound already."""
AccessRule = Callable[[Sequence[TensorType], TensorType, Attrs, tuple[Affine, ...]], tuple[Piece, ...]]
"""(operand types, result type, attrs, result index) -> pieces, tried in order; the last is taken if no other one is.

Conditions of the last piece, where it has any, then always hold; they only say where its index lies inside the operand.

Pieces may read run-time integers through `index.Element` variables whose `source` is an operand number."""

InferRule = Callable[[Sequence[TensorType], Attrs, Sequence[Graph]], tuple[TensorType, ...]]
"""(operand types, attrs, regions) -> result types. The attributes have been checked by `attributes.normalized`."""
EvaluateRule = Callable[[Sequence[Array], Attrs, Sequence[Region]], tuple[Array, ...]]
"""(operands, attrs, regions) -> results."""
EvaluateIntoRule = Callable[[Sequence[Array], Attrs, Sequence[Array | None]], None]
"""(operands, attrs, memory for the results, None where nobody wants one): writes the results. The memory is
C-contiguous, of the inferred types, and shares nothing with the operands."""
EvaluateOverRule = Callable[[Sequence[Array], Attrs], Array]
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
    """Whether a node may be without it."""


NUMERICS: Mapping[str, AttrSpec] = {
    "numerics": AttrSpec("str", "fast: targets may approximate it", choices=("fast",), optional=True)
}
"""The attribute of ops that a target may approximate, of f32 and shorter floats: within what
`autofuse.measurement.errorbounds.approximations` allows. A node without it is strict."""


def is_fast(attrs: Attrs) -> bool:
    """Whether a node with these attributes may be approximated."""
    return attrs.get("numerics") == "fast"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class OpDef:
    """All that one op is."""

    name: str
    doc: str
    """What it computes and what happens at the edges, in a sentence or three."""
    role: Role
    infer: InferRule
    """Result types; raises GraphError that names the operand or attribute, what is required and what came."""
    evaluate: EvaluateRule
    """NumPy evaluation: operands to results, exactly the inferred types. Never modifies an operand."""
    code: int
    """How much code it becomes, in plain operations: an exponential is like 30 of them, a view is none."""
    attrs: Mapping[str, AttrSpec] = field(default_factory=dict[str, AttrSpec])
    arity: int | None = None
    """Number of operands; None = any."""
    flops: FlopRule | None = None
    """Scalar operations per call by (operand types, result types, attrs), where they are not one per result element."""
    evaluate_into: EvaluateIntoRule | None = None
    """`evaluate` into memory that is given, where that saves copying the results; None = it would save nothing."""
    evaluate_over: EvaluateOverRule | None = None
    """`evaluate` into the first operand's memory, for ops that else copy it and change a part."""
    scratch: ScratchRule | None = None
    """Bytes that `evaluate` takes for a while; None = at most a few times what operands and results have."""


OpClass = Literal[
    "add", "multiply", "compare", "convert", "integer", "divide", "sqrt", "exp", "log", "tanh", "sin", "erf", "power"
]
"""Scalar work with a throughput of its own."""
Mix = Mapping[OpClass, float]
"""Operations by class."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Work:
    """What one element of a scalar operation takes, in terms that no target owns."""

    floats: Mix | None
    """Of floats; None = they do not have the operation."""
    integers: Mix | None
    """Of integers and bool; None = they do not have the operation."""
    vectors: float
    """Vector instructions, roughly: how much of it is worth a thread's while."""
    flops: int
    """Floating-point operations that a peak rate counts: 1, 2 of fma, 0 of what compares, chooses and converts."""
    ulps: float
    """Of floats: units in the last place that a target may be off by. 0 = exact, 0.5 = rounded correctly."""
    widens: bool
    """Whether 16-bit floats are widened before and rounded after."""
    uneven: bool
    """Whether some operands take longer than others: targets compute them behind a branch."""

    @property
    def rounds(self) -> bool:
        """Whether a result of 16-bit floats may need rounding; what only chooses or drops digits gives one of them."""
        return bool(self.flops or self.ulps)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ElementwiseOp(OpDef):
    """An op that targets emit as a scalar opcode: its name, or the choices of one of its attributes."""

    role: Role = field(init=False, default=Role.ELEMENTWISE)
    work: Work
    commutative: bool
    variant: str | None = None
    """The attribute whose choices, in lower case, are the opcodes; None = the opcode is the name."""

    def opcode(self, attrs: Attrs) -> str:
        """The scalar opcode that targets emit."""
        return self.name if self.variant is None else attrs[self.variant].lower()

    @property
    def opcodes(self) -> tuple[str, ...]:
        """All that `opcode` may give."""
        return (self.name,) if self.variant is None else tuple(map(str.lower, self.attrs[self.variant].choices))


EVERY = 1 << 30
"""All operands, where a number of leading ones is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class IndexOp(OpDef):
    """An op that moves elements: each result element is chosen among pieces."""

    access: AccessRule
    data: int
    """Leading operands whose elements the result holds; the others say where."""
    once: int
    """Leading operands of which each element is read exactly once, but for what negative padding removes."""
