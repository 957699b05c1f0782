"""Elementwise ops: scalar functions of the operands' elements at one index.

Operands have equal shapes (broadcasting is explicit). 16-bit floats compute in f32 and round after each op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.oprecord import AttrSpec, ElementwiseOp, EvaluateRule, InferRule, Mix, OpClass, Region, Work
from autofuse.ir.ops import numerics, require
from autofuse.ir.ops.require import ANY, BITS, FLOAT, INTEGER, NUMBER, Kinds
from autofuse.ir.types import TensorType

Array = NDArray[Any]
Function = Callable[..., Any]


def _rsqrt(x: Array) -> Array:
    return x.dtype.type(1) / np.sqrt(x)


def _abs(x: Array) -> Array:
    return x if x.dtype.kind in "bu" else np.abs(x)


def _logistic(x: Array) -> Array:
    from scipy import special  # takes longer to load than most plans take to load and run

    return special.expit(x)


def _erf(x: Array) -> Array:
    from scipy import special  # see `_logistic`

    return special.erf(x)


def _clamp(low: Array, x: Array, high: Array) -> Array:
    return np.minimum(np.maximum(x, low), high)


def _fma(x: Array, y: Array, z: Array) -> Array:
    """Computed wider, of 64 bits in NumPy's longest type: seldom off by the last bit, where that rounds twice."""
    wide = np.float64 if x.dtype.itemsize < 8 else np.longdouble
    return (x.astype(wide) * y.astype(wide) + z.astype(wide)).astype(x.dtype)


_INTEGERS: Mix = (("integer", 1),)


def _plain(floats: Mix | None, integers: Mix | None = _INTEGERS) -> Work:
    """One or a few instructions that round nothing off."""
    return Work(floats, integers, vectors=1, flops=0, ulps=0, widens=True)


def _rounding(floats: Mix, integers: Mix | None, vectors: float = 1) -> Work:
    """Arithmetic that IEEE rounds correctly."""
    return Work(floats, integers, vectors, flops=1, ulps=0.5, widens=True)


def _function(*floats: tuple[OpClass, float], vectors: float) -> Work:
    """A function of floats that targets compute within 4 units in the last place."""
    return Work(floats, None, vectors, flops=1, ulps=4, widens=True)


def _bits(mix: Mix, ulps: float = 0) -> Work:
    """What looks at the bits of every dtype alike."""
    return Work(mix, mix, vectors=1, flops=0, ulps=ulps, widens=False)


_COMPARED: Mix = (("compare", 1),)
_CONVERTED: Mix = (("convert", 1),)
_ROUNDED = _plain(_CONVERTED, None)
_BITWISE = _plain(None)
_Row = tuple[Kinds, Function, Work, int, str]
"""Kinds of dtypes, evaluation, work, code, documentation."""

_UNARY: Mapping[str, _Row] = {
    "abs": (ANY, _abs, _plain(_COMPARED), 1, "Absolute value; of INT_MIN it is INT_MIN."),
    "negate": (NUMBER, np.negative, _plain((("add", 1),)), 1, "-x; integers wrap."),
    "sign": (ANY, numerics.sign, _plain((("compare", 4),)), 1, "-1, 0 or 1; of NaN NaN, of -0. -0."),
    "exp": (FLOAT, np.exp, _function(("exp", 1), vectors=12), 30, "e**x."),
    "exp2": (FLOAT, np.exp2, _function(("exp", 1), vectors=12), 30, "2**x."),
    "expm1": (FLOAT, np.expm1, _function(("exp", 1.5), vectors=16), 30, "e**x - 1, exact near 0."),
    "log": (FLOAT, np.log, _function(("log", 1), vectors=14), 30, "Natural logarithm; -inf at 0, NaN below."),
    "log2": (FLOAT, np.log2, _function(("log", 1), vectors=14), 30, "Logarithm to base 2; -inf at 0, NaN below."),
    "log1p": (FLOAT, np.log1p, _function(("log", 1.3), vectors=16), 30, "log(1 + x), exact near 0."),
    "sqrt": (
        FLOAT,
        np.sqrt,
        _rounding((("sqrt", 1),), None, vectors=8),
        1,
        "Square root, correctly rounded; NaN below 0, -0. at -0.",
    ),
    "rsqrt": (
        FLOAT,
        _rsqrt,
        _function(("sqrt", 1), ("divide", 1), vectors=12),
        1,
        "1 / sqrt(x); inf at 0, NaN below.",
    ),
    "cbrt": (FLOAT, np.cbrt, _function(("power", 0.7), vectors=20), 30, "Cube root, of negative numbers too."),
    "tanh": (FLOAT, np.tanh, _function(("tanh", 1), vectors=18), 30, "Hyperbolic tangent."),
    "sin": (FLOAT, np.sin, _function(("sin", 1), vectors=18), 100, "Sine; NaN at infinity."),
    "cos": (FLOAT, np.cos, _function(("sin", 1), vectors=18), 100, "Cosine; NaN at infinity."),
    "tan": (FLOAT, np.tan, _function(("sin", 1.2), ("divide", 1), vectors=24), 100, "Tangent; NaN at infinity."),
    "logistic": (FLOAT, _logistic, _function(("exp", 1), ("divide", 1), vectors=18), 30, "1 / (1 + exp(-x))."),
    "erf": (FLOAT, _erf, _function(("erf", 1), vectors=18), 30, "Error function."),
    "floor": (FLOAT, np.floor, _ROUNDED, 1, "Greatest integer not above x."),
    "ceil": (FLOAT, np.ceil, _ROUNDED, 1, "Least integer not below x."),
    "round_nearest_even": (FLOAT, np.round, _ROUNDED, 1, "Nearest integer, halves to even."),
    "round_nearest_afz": (
        FLOAT,
        numerics.round_nearest_afz,
        _plain((("convert", 2),), None),
        1,
        "Nearest integer, halves away from zero.",
    ),
    "not": (BITS, np.invert, _BITWISE, 1, "Bitwise complement; logical of bool."),
    "popcnt": (
        INTEGER,
        numerics.popcnt,
        _plain(None, (("integer", 8),)),
        1,
        "Number of one bits of the unsigned view.",
    ),
    "count_leading_zeros": (
        INTEGER,
        numerics.count_leading_zeros,
        _plain(None, (("integer", 4),)),
        1,
        "Zero bits above the first one; the width for 0.",
    ),
}

_COMMUTING: Mapping[str, _Row] = {
    "add": (ANY, np.add, _rounding((("add", 1),), _INTEGERS), 1, "x + y; integers wrap, bool is or."),
    "multiply": (
        ANY,
        np.multiply,
        _rounding((("multiply", 1),), (("integer", 3),)),
        1,
        "x * y; integers wrap, bool is and.",
    ),
    "maximum": (ANY, np.maximum, _plain((("compare", 4),)), 1, "The greater; NaN where either is NaN."),
    "minimum": (ANY, np.minimum, _plain((("compare", 4),)), 1, "The lesser; NaN where either is NaN."),
    "and": (BITS, np.bitwise_and, _BITWISE, 1, "Bitwise and; logical of bool."),
    "or": (BITS, np.bitwise_or, _BITWISE, 1, "Bitwise or; logical of bool."),
    "xor": (BITS, np.bitwise_xor, _BITWISE, 1, "Bitwise exclusive or; logical of bool."),
}
"""Of two operands that may be swapped."""
_ORDERED: Mapping[str, _Row] = {
    "subtract": (NUMBER, np.subtract, _rounding((("add", 1),), _INTEGERS), 1, "x - y; integers wrap."),
    "divide": (
        NUMBER,
        numerics.divide,
        _rounding((("divide", 1),), (("divide", 2), ("integer", 6)), vectors=8),
        1,
        "x / y. Integers truncate toward zero; x/0 is -1 (all ones when unsigned), INT_MIN/-1 is INT_MIN.",
    ),
    "remainder": (
        NUMBER,
        numerics.remainder,
        Work(
            (("divide", 2), ("multiply", 4), ("compare", 4)),
            (("divide", 2), ("integer", 8)),
            vectors=20,
            flops=1,
            ulps=0,
            widens=True,
            uneven=True,
        ),
        1,
        "The remainder of x / y, with the sign of x (fmod). Integers: x%0 is x, INT_MIN%-1 is 0.",
    ),
    "power": (
        NUMBER,
        numerics.power,
        Work((("power", 1),), (("integer", 60),), vectors=36, flops=1, ulps=4, widens=True, uneven=True),
        100,
        "x ** y. Integers wrap; a negative exponent gives 0 unless x is 1 or -1 (the truncated reciprocal).",
    ),
    "atan2": (
        FLOAT,
        np.arctan2,
        _function(("sin", 1), ("divide", 1), vectors=24),
        100,
        "The angle of the point (y, x), in -pi..pi.",
    ),
    "shift_left": (INTEGER, numerics.shift_left, _BITWISE, 1, "x << y; 0 if y is negative or at least the width."),
    "shift_right_arithmetic": (
        INTEGER,
        numerics.shift_right_arithmetic,
        _BITWISE,
        1,
        "x >> y filled with the sign bit; all sign if y is negative or at least the width.",
    ),
    "shift_right_logical": (
        INTEGER,
        numerics.shift_right_logical,
        _BITWISE,
        1,
        "x >> y filled with zeros; 0 if y is negative or at least the width.",
    ),
}

_TERNARY: Mapping[str, _Row] = {
    "clamp": (
        ANY,
        _clamp,
        _plain((("compare", 8),), (("integer", 2),)),
        1,
        "minimum(maximum(x, min), max): max wins where min > max; NaN where any is NaN.",
    ),
}
_SUMMED: Mapping[str, _Row] = {
    "fma": (
        FLOAT,
        _fma,
        Work((("multiply", 1),), None, vectors=1, flops=2, ulps=1, widens=True),
        1,
        "x * y + z, rounded once; not StableHLO's.",
    ),
}
_COMPARISONS: Mapping[str, Function] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _infer_same(op: str, kinds: Kinds, names: Sequence[str]) -> InferRule:
    def infer(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
        require.kind(op, names[0], operands[0], kinds)
        require.same_type(op, names, operands)
        return (operands[0],)

    return infer


def _evaluate_with(function: Function) -> EvaluateRule:
    compute = numerics.rounded(function)

    @np.errstate(all="ignore")
    def evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
        return (compute(*operands),)

    return evaluate


def _same(name: str, row: _Row, names: Sequence[str], *, commutative: bool) -> ElementwiseOp:
    """An op whose operands and result have one type."""
    kinds, function, work, code, doc = row
    return ElementwiseOp(
        name=name,
        doc=doc,
        infer=_infer_same(name, kinds, names),
        evaluate=_evaluate_with(function),
        code=code,
        arity=len(names),
        work=work,
        commutative=commutative,
    )


def _infer_predicate(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    require.kind("is_finite", "x", operands[0], FLOAT)
    return (TensorType(operands[0].shape, dtypes.BOOL),)


def _is_finite(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    return (np.asarray(np.isfinite(numerics.widen(operands[0]))),)


def _infer_compare(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    require.same_type("compare", ("x", "y"), operands)
    return (TensorType(operands[0].shape, dtypes.BOOL),)


@np.errstate(all="ignore")
def _compare(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    return (np.asarray(_COMPARISONS[attrs["direction"]](*map(numerics.widen, operands))),)


def _infer_select(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    pred, on_true, on_false = operands
    required = TensorType(on_true.shape, dtypes.BOOL)
    if pred != required:
        raise GraphError(f"select: operand pred must be {required}, the shape of on_true, got {pred}")
    require.same_type("select", ("on_true", "on_false"), (on_true, on_false))
    return (on_true,)


def _select(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    return (np.asarray(np.where(*operands)),)


def _infer_convert(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    return (TensorType(operands[0].shape, attrs["dtype"]),)


@np.errstate(all="ignore")
def _convert(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    return (np.asarray(numerics.convert(operands[0], attrs["dtype"])),)


def _infer_bitcast(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    source, target = operands[0].dtype, attrs["dtype"]
    if source.bits != target.bits or (source != target and "bool" in (source.kind, target.kind)):
        raise GraphError(
            f"bitcast_convert: attribute dtype must be {source.bits} bits wide like operand x ({operands[0]}) and "
            f"not mix bool with numbers, got {target} ({target.bits} bits)"
        )
    return _infer_convert(operands, attrs, regions)


def _bitcast(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    return (operands[0].view(attrs["dtype"].numpy),)


def _all_same() -> Iterator[ElementwiseOp]:
    for table, names, commutative in (
        (_UNARY, ("x",), False),
        (_COMMUTING, ("x", "y"), True),
        (_ORDERED, ("x", "y"), False),
        (_TERNARY, ("min", "x", "max"), False),
        (_SUMMED, ("x", "y", "z"), False),
    ):
        for name, row in table.items():
            yield _same(name, row, names, commutative=commutative)


OPS = (
    *_all_same(),
    ElementwiseOp(
        name="is_finite",
        doc="Whether x is neither NaN nor infinite.",
        infer=_infer_predicate,
        evaluate=_is_finite,
        code=1,
        arity=1,
        work=_plain((("compare", 2),), None),
        commutative=False,
    ),
    ElementwiseOp(
        name="compare",
        doc="Ordered comparison; with NaN every direction but NE is false. The opcode is the direction in lower case.",
        infer=_infer_compare,
        evaluate=_compare,
        code=1,
        attrs={"direction": AttrSpec("str", "the relation of x to y", tuple(_COMPARISONS))},
        arity=2,
        work=_bits(_COMPARED),
        commutative=False,
        variant="direction",
    ),
    ElementwiseOp(
        name="select",
        doc="on_true where pred holds, else on_false; all three of one shape.",
        infer=_infer_select,
        evaluate=_select,
        code=1,
        arity=3,
        work=_bits(_COMPARED),
        commutative=False,
    ),
    ElementwiseOp(
        name="convert",
        doc="Float to integer truncates toward zero, saturates, NaN gives 0. Integers wrap. To bool is `!= 0`. "
        "Floats round to even; f64 to bf16 goes through f32, as do integers to 16-bit floats.",
        infer=_infer_convert,
        evaluate=_convert,
        code=1,
        attrs={"dtype": AttrSpec("dtype", "the result's dtype")},
        arity=1,
        work=_bits(_CONVERTED, ulps=0.5),
        commutative=False,
    ),
    ElementwiseOp(
        name="bitcast_convert",
        doc="The same bits as another dtype of the same width; bool has no bits to reinterpret.",
        infer=_infer_bitcast,
        evaluate=_bitcast,
        code=1,
        attrs={"dtype": AttrSpec("dtype", "the result's dtype, as wide as x's")},
        arity=1,
        work=_bits(()),
        commutative=False,
    ),
)
