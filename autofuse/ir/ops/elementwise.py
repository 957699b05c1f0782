"""Elementwise ops: scalar functions of the operands' elements at one index.

Operands have equal shapes (broadcasting is explicit). 16-bit floats compute in f32 and round after each op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.ops import numerics, require
from autofuse.ir.ops.require import ANY, BITS, FLOAT, INTEGER, NUMBER, Kinds
from autofuse.ir.optable import AttrSpec, EvaluateRule, Family, InferRule, OpDef, register
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


_UNARY: Mapping[str, tuple[Kinds, Function, str]] = {
    "abs": (ANY, _abs, "Absolute value; of INT_MIN it is INT_MIN."),
    "negate": (NUMBER, np.negative, "-x; integers wrap."),
    "sign": (ANY, numerics.sign, "-1, 0 or 1; of NaN NaN, of -0. -0."),
    "exp": (FLOAT, np.exp, "e**x."),
    "exp2": (FLOAT, np.exp2, "2**x."),
    "expm1": (FLOAT, np.expm1, "e**x - 1, exact near 0."),
    "log": (FLOAT, np.log, "Natural logarithm; -inf at 0, NaN below."),
    "log2": (FLOAT, np.log2, "Logarithm to base 2; -inf at 0, NaN below."),
    "log1p": (FLOAT, np.log1p, "log(1 + x), exact near 0."),
    "sqrt": (FLOAT, np.sqrt, "Square root, correctly rounded; NaN below 0, -0. at -0."),
    "rsqrt": (FLOAT, _rsqrt, "1 / sqrt(x); inf at 0, NaN below."),
    "cbrt": (FLOAT, np.cbrt, "Cube root, of negative numbers too."),
    "tanh": (FLOAT, np.tanh, "Hyperbolic tangent."),
    "sin": (FLOAT, np.sin, "Sine; NaN at infinity."),
    "cos": (FLOAT, np.cos, "Cosine; NaN at infinity."),
    "tan": (FLOAT, np.tan, "Tangent; NaN at infinity."),
    "logistic": (FLOAT, _logistic, "1 / (1 + exp(-x))."),
    "erf": (FLOAT, _erf, "Error function."),
    "floor": (FLOAT, np.floor, "Greatest integer not above x."),
    "ceil": (FLOAT, np.ceil, "Least integer not below x."),
    "round_nearest_even": (FLOAT, np.round, "Nearest integer, halves to even."),
    "round_nearest_afz": (FLOAT, numerics.round_nearest_afz, "Nearest integer, halves away from zero."),
    "not": (BITS, np.invert, "Bitwise complement; logical of bool."),
    "popcnt": (INTEGER, numerics.popcnt, "Number of one bits of the unsigned view."),
    "count_leading_zeros": (INTEGER, numerics.count_leading_zeros, "Zero bits above the first one; the width for 0."),
}

_BINARY: Mapping[str, tuple[Kinds, Function, str]] = {
    "add": (ANY, np.add, "x + y; integers wrap, bool is or."),
    "subtract": (NUMBER, np.subtract, "x - y; integers wrap."),
    "multiply": (ANY, np.multiply, "x * y; integers wrap, bool is and."),
    "divide": (
        NUMBER,
        numerics.divide,
        "x / y. Integers truncate toward zero; x/0 is -1 (all ones when unsigned), INT_MIN/-1 is INT_MIN.",
    ),
    "remainder": (
        NUMBER,
        numerics.remainder,
        "The remainder of x / y, with the sign of x (fmod). Integers: x%0 is x, INT_MIN%-1 is 0.",
    ),
    "maximum": (ANY, np.maximum, "The greater; NaN where either is NaN."),
    "minimum": (ANY, np.minimum, "The lesser; NaN where either is NaN."),
    "power": (
        NUMBER,
        numerics.power,
        "x ** y. Integers wrap; a negative exponent gives 0 unless x is 1 or -1 (the truncated reciprocal).",
    ),
    "atan2": (FLOAT, np.arctan2, "The angle of the point (y, x), in -pi..pi."),
    "and": (BITS, np.bitwise_and, "Bitwise and; logical of bool."),
    "or": (BITS, np.bitwise_or, "Bitwise or; logical of bool."),
    "xor": (BITS, np.bitwise_xor, "Bitwise exclusive or; logical of bool."),
    "shift_left": (INTEGER, numerics.shift_left, "x << y; 0 if y is negative or at least the width."),
    "shift_right_arithmetic": (
        INTEGER,
        numerics.shift_right_arithmetic,
        "x >> y filled with the sign bit; all sign if y is negative or at least the width.",
    ),
    "shift_right_logical": (
        INTEGER,
        numerics.shift_right_logical,
        "x >> y filled with zeros; 0 if y is negative or at least the width.",
    ),
}

_COMMUTATIVE = frozenset(("add", "multiply", "maximum", "minimum", "and", "or", "xor"))
_EXPENSIVE = frozenset(
    (
        *("exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "cbrt", "tanh", "sin", "cos", "tan"),
        *("logistic", "erf", "divide", "remainder", "power", "atan2"),
    )
)
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
    def evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Graph]) -> tuple[Array, ...]:
        return (compute(*operands),)

    return evaluate


def _register_same(name: str, kinds: Kinds, function: Function, doc: str, names: Sequence[str]) -> None:
    register(
        OpDef(
            name,
            doc,
            Family.ELEMENTWISE,
            _infer_same(name, kinds, names),
            _evaluate_with(function),
            arity=len(names),
            scalar=lambda _: name,
            commutative=name in _COMMUTATIVE,
            expensive=name in _EXPENSIVE,
        )
    )


def _clamp(low: Array, x: Array, high: Array) -> Array:
    return np.minimum(np.maximum(x, low), high)


def _infer_predicate(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    require.kind("is_finite", "x", operands[0], FLOAT)
    return (TensorType(operands[0].shape, dtypes.BOOL),)


def _is_finite(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Graph]) -> tuple[Array, ...]:
    return (np.asarray(np.isfinite(numerics.widen(operands[0]))),)


def _infer_compare(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    require.same_type("compare", ("x", "y"), operands)
    return (TensorType(operands[0].shape, dtypes.BOOL),)


@np.errstate(all="ignore")
def _compare(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Graph]) -> tuple[Array, ...]:
    return (np.asarray(_COMPARISONS[attrs["direction"]](*map(numerics.widen, operands))),)


def _infer_select(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    pred, on_true, on_false = operands
    required = TensorType(on_true.shape, dtypes.BOOL)
    if pred != required:
        raise GraphError(f"select: operand pred must be {required}, the shape of on_true, got {pred}")
    require.same_type("select", ("on_true", "on_false"), (on_true, on_false))
    return (on_true,)


def _select(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Graph]) -> tuple[Array, ...]:
    return (np.asarray(np.where(*operands)),)


def _infer_convert(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    return (TensorType(operands[0].shape, attrs["dtype"]),)


@np.errstate(all="ignore")
def _convert(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Graph]) -> tuple[Array, ...]:
    return (np.asarray(numerics.convert(operands[0], attrs["dtype"])),)


def _infer_bitcast(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    source, target = operands[0].dtype, attrs["dtype"]
    if source.bits != target.bits or (source != target and "bool" in (source.kind, target.kind)):
        raise GraphError(
            f"bitcast_convert: attribute dtype must be {source.bits} bits wide like operand x ({operands[0]}) and "
            f"not mix bool with numbers, got {target} ({target.bits} bits)"
        )
    return _infer_convert(operands, attrs, regions)


def _bitcast(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Graph]) -> tuple[Array, ...]:
    return (operands[0].view(attrs["dtype"].numpy),)


def _register_all() -> None:
    for name, (kinds, function, doc) in _UNARY.items():
        _register_same(name, kinds, function, doc, ("x",))
    for name, (kinds, function, doc) in _BINARY.items():
        _register_same(name, kinds, function, doc, ("x", "y"))
    doc = "minimum(maximum(x, min), max): max wins where min > max; NaN where any is NaN."
    _register_same("clamp", ANY, _clamp, doc, ("min", "x", "max"))


_register_all()
register(
    OpDef(
        "is_finite",
        "Whether x is neither NaN nor infinite.",
        Family.ELEMENTWISE,
        _infer_predicate,
        _is_finite,
        arity=1,
        scalar=lambda _: "is_finite",
    )
)
register(
    OpDef(
        "compare",
        "Ordered comparison; with NaN every direction but NE is false. The opcode is the direction in lower case.",
        Family.ELEMENTWISE,
        _infer_compare,
        _compare,
        {"direction": AttrSpec("str", "the relation of x to y", tuple(_COMPARISONS))},
        arity=2,
        scalar=lambda attrs: attrs["direction"].lower(),
    )
)
register(
    OpDef(
        "select",
        "on_true where pred holds, else on_false; all three of one shape.",
        Family.ELEMENTWISE,
        _infer_select,
        _select,
        arity=3,
        scalar=lambda _: "select",
    )
)
register(
    OpDef(
        "convert",
        "Float to integer truncates toward zero, saturates, NaN gives 0. Integers wrap. To bool is `!= 0`. "
        "Floats round to even; f64 to bf16 goes through f32, as do integers to 16-bit floats.",
        Family.ELEMENTWISE,
        _infer_convert,
        _convert,
        {"dtype": AttrSpec("dtype", "the result's dtype")},
        arity=1,
        scalar=lambda _: "convert",
    )
)
register(
    OpDef(
        "bitcast_convert",
        "The same bits as another dtype of the same width; bool has no bits to reinterpret.",
        Family.ELEMENTWISE,
        _infer_bitcast,
        _bitcast,
        {"dtype": AttrSpec("dtype", "the result's dtype, as wide as x's")},
        arity=1,
        scalar=lambda _: "bitcast_convert",
        flops=lambda *_: 0.0,
    )
)
