"""Elementwise ops: scalar functions of the operands' elements at one index.

Operands have equal shapes (broadcasting is explicit). 16-bit floats compute in f32 and round after each op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.oprecord import NUMERICS, AttrSpec, ElementwiseOp, EvaluateRule, InferRule, Mix, Region, Work
from autofuse.ir.ops import numerics, require
from autofuse.ir.ops.error_function_inverse import erf_inv
from autofuse.ir.ops.require import ANY, BITS, COMPLEX, FLOAT, INTEGER, NUMBER, Kinds
from autofuse.ir.types import TensorType

Array = NDArray[Any]
Function = Callable[..., Any]


def _rsqrt(x: Array) -> Array:
    return x.dtype.type(1) / np.sqrt(x)


def _abs(x: Array) -> Array:
    return x if x.dtype.kind in "bu" else np.abs(x)


def _logistic(x: Array) -> Array:
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    from scipy import special  # takes longer to load than most plans take to load and run

    return special.expit(x)


def _erf(x: Array) -> Array:
    from scipy import special  # see `_logistic`

    return special.erf(x)


def _clamp(low: Array, x: Array, high: Array) -> Array:
    return np.minimum(np.maximum(x, low), high)


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


def _infer_abs(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    return (TensorType(operands[0].shape, operands[0].dtype.part),)


def _evaluate_with(function: Function) -> EvaluateRule:
    compute = numerics.rounded(function)

    @np.errstate(all="ignore")
    def evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
        return (compute(*operands),)

    return evaluate


def _infer_predicate(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    require.kind("is_finite", "x", operands[0], FLOAT)
    return (TensorType(operands[0].shape, dtypes.BOOL),)


def _is_finite(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    return (np.asarray(np.isfinite(numerics.widen(operands[0]))),)


def _infer_compare(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    require.same_type("compare", ("x", "y"), operands)
    if operands[0].dtype.is_complex and attrs["direction"] not in ("EQ", "NE"):
        require.real(f"compare {attrs['direction']}", "x", operands[0])
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
    for type_ in (operands[0], TensorType((), target)):
        require.real("bitcast_convert", "x", type_)
    if source.bits != target.bits or (source != target and "bool" in (source.kind, target.kind)):
        raise GraphError(
            f"bitcast_convert: attribute dtype must be {source.bits} bits wide like operand x ({operands[0]}) and "
            f"not mix bool with numbers, got {target} ({target.bits} bits)"
        )
    return _infer_convert(operands, attrs, regions)


def _bitcast(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    return (operands[0].view(attrs["dtype"].numpy),)


def _fma(x: Array, y: Array, z: Array) -> Array:
    """Computed wider, of 64 bits in NumPy's longest type: seldom off by the last bit, where that rounds twice."""
    wide = np.float64 if x.dtype.itemsize < 8 else np.longdouble
    return (x.astype(wide) * y.astype(wide) + z.astype(wide)).astype(x.dtype)


_ONE: Mix = {"integer": 1}


def _plain(floats: Mix | None, integers: Mix | None) -> Work:
    """One or a few instructions that round nothing off."""
    return Work(floats, integers, vectors=1, flops=0, ulps=0, widens=True, uneven=False)


def _rounding(floats: Mix, integers: Mix | None, vectors: float) -> Work:
    """Arithmetic that IEEE rounds correctly."""
    return Work(floats, integers, vectors, flops=1, ulps=0.5, widens=True, uneven=False)


def _function(floats: Mix, integers: Mix | None, vectors: float, *, uneven: bool = False, ulps: float = 4) -> Work:
    """What targets compute within 4 units in the last place, unless it says how near."""
    return Work(floats, integers, vectors, flops=1, ulps=ulps, widens=True, uneven=uneven)


def _bits(mix: Mix, ulps: float) -> Work:
    """What treats all dtypes alike, bit for bit."""
    return Work(mix, mix, vectors=1, flops=0, ulps=ulps, widens=False, uneven=False)


def _same(
    names: Sequence[str],
    name: str,
    kinds: Kinds,
    function: Function,
    code: int,
    work: Work,
    doc: str,
    *,
    commutes: bool,
    approximates: bool = False,
) -> ElementwiseOp:
    """An op whose operands and result have one type. `code` and `work` as in the record.

    `approximates`: whether `numerics="fast"` has a cheaper form of it.
    """
    return ElementwiseOp(
        name=name,
        doc=doc,
        infer=_infer_same(name, kinds, names),
        evaluate=_evaluate_with(function),
        code=code,
        attrs=NUMERICS if approximates else {},
        arity=len(names),
        work=work,
        commutative=commutes,
    )


_unary = partial(_same, ("x",), commutes=False)
_approximated = partial(_same, ("x",), commutes=False, approximates=True)
_commuting = partial(_same, ("x", "y"), commutes=True)
_ordered = partial(_same, ("x", "y"), commutes=False)
_BITWISE = _plain(None, _ONE)
_FLOAT, _NUMBER, _ANY = (*FLOAT, *COMPLEX), (*NUMBER, *COMPLEX), (*ANY, *COMPLEX)


OPS = (
    ElementwiseOp(
        name="abs",
        doc="Absolute value; of INT_MIN it is INT_MIN. Of complex numbers the distance from 0, a real number.",
        infer=_infer_abs,
        evaluate=_evaluate_with(_abs),
        code=1,
        arity=1,
        work=_plain({"compare": 1}, _ONE),
        commutative=False,
    ),
    _unary("negate", _NUMBER, np.negative, 1, _plain({"add": 1}, _ONE), "-x; integers wrap."),
    _unary(
        "sign",
        _ANY,
        numerics.sign,
        1,
        _plain({"compare": 4}, _ONE),
        "-1, 0 or 1, of complex x x / abs(x); of NaN NaN, of -0. -0.",
    ),
    _approximated("exp", _FLOAT, np.exp, 30, _function({"exp": 1}, None, 12), "e**x."),
    _approximated("exp2", FLOAT, np.exp2, 30, _function({"exp": 1}, None, 12), "2**x."),
    _unary("expm1", _FLOAT, np.expm1, 30, _function({"exp": 1.5}, None, 16), "e**x - 1, exact near 0."),
    _approximated(
        "log", _FLOAT, np.log, 30, _function({"log": 1}, None, 14), "Natural logarithm; -inf at 0, NaN below."
    ),
    _approximated(
        "log2", FLOAT, np.log2, 30, _function({"log": 1}, None, 14), "Logarithm to base 2; -inf at 0, NaN below."
    ),
    _unary("log1p", _FLOAT, np.log1p, 30, _function({"log": 1.3}, None, 16), "log(1 + x), exact near 0."),
    _approximated(
        "sqrt",
        _FLOAT,
        np.sqrt,
        1,
        _rounding({"sqrt": 1}, None, 8),
        "Square root, correctly rounded; NaN below 0, -0. at -0.",
    ),
    _approximated(
        "rsqrt", _FLOAT, _rsqrt, 1, _function({"sqrt": 1, "divide": 1}, None, 12), "1 / sqrt(x); inf at 0, NaN below."
    ),
    _unary("cbrt", FLOAT, np.cbrt, 30, _function({"power": 0.7}, None, 20), "Cube root, of negative numbers too."),
    _approximated("tanh", _FLOAT, np.tanh, 30, _function({"tanh": 1}, None, 18), "Hyperbolic tangent."),
    _approximated("sin", _FLOAT, np.sin, 100, _function({"sin": 1}, None, 18), "Sine; NaN at infinity."),
    _approximated("cos", _FLOAT, np.cos, 100, _function({"sin": 1}, None, 18), "Cosine; NaN at infinity."),
    _unary("tan", _FLOAT, np.tan, 100, _function({"sin": 1.2, "divide": 1}, None, 24), "Tangent; NaN at infinity."),
    _approximated(
        "logistic", _FLOAT, _logistic, 30, _function({"exp": 1, "divide": 1}, None, 18), "1 / (1 + exp(-x))."
    ),
    _unary("erf", FLOAT, _erf, 30, _function({"erf": 1}, None, 18), "Error function."),
    _unary(
        "erf_inv",
        FLOAT,
        erf_inv,
        60,
        _function({"log": 1.3, "sqrt": 1, "multiply": 12, "add": 10, "compare": 12}, None, 50),
        "The inverse of the error function by Giles' polynomials; infinite at -1 and 1, NaN beyond.",
    ),
    _unary("floor", FLOAT, np.floor, 1, _plain({"convert": 1}, None), "Greatest integer not above x."),
    _unary("ceil", FLOAT, np.ceil, 1, _plain({"convert": 1}, None), "Least integer not below x."),
    _unary("round_nearest_even", FLOAT, np.round, 1, _plain({"convert": 1}, None), "Nearest integer, halves to even."),
    _unary(
        "round_nearest_afz",
        FLOAT,
        numerics.round_nearest_afz,
        1,
        _plain({"convert": 2}, None),
        "Nearest integer, halves away from zero.",
    ),
    _unary("not", BITS, np.invert, 1, _BITWISE, "Bitwise complement; logical of bool."),
    _unary("popcnt", INTEGER, numerics.popcnt, 1, _plain(None, {"integer": 8}), "One bits of the unsigned view."),
    _unary(
        "count_leading_zeros",
        INTEGER,
        numerics.count_leading_zeros,
        1,
        _plain(None, {"integer": 4}),
        "Zero bits above the first one; the width for 0.",
    ),
    _commuting("add", _ANY, np.add, 1, _rounding({"add": 1}, _ONE, 1), "x + y; integers wrap, bool is or."),
    _ordered("subtract", _NUMBER, np.subtract, 1, _rounding({"add": 1}, _ONE, 1), "x - y; integers wrap."),
    _commuting(
        "multiply",
        _ANY,
        np.multiply,
        1,
        _rounding({"multiply": 1}, {"integer": 3}, 1),
        "x * y; integers wrap, bool is and.",
    ),
    _ordered(
        "divide",
        _NUMBER,
        numerics.divide,
        1,
        _rounding({"divide": 1}, {"divide": 2, "integer": 6}, 8),
        "x / y. Integers truncate toward zero; x/0 is -1 (all ones when unsigned), INT_MIN/-1 is INT_MIN.",
        approximates=True,
    ),
    _ordered(
        "remainder",
        NUMBER,
        numerics.remainder,
        1,
        _function({"divide": 2, "multiply": 4, "compare": 4}, {"divide": 2, "integer": 8}, 20, uneven=True, ulps=0),
        "The remainder of x / y, with the sign of x (fmod). Integers: x%0 is x, INT_MIN%-1 is 0.",
    ),
    _commuting("maximum", ANY, np.maximum, 1, _plain({"compare": 4}, _ONE), "The greater; NaN where either is NaN."),
    _commuting("minimum", ANY, np.minimum, 1, _plain({"compare": 4}, _ONE), "The lesser; NaN where either is NaN."),
    _ordered(
        "power",
        _NUMBER,
        numerics.power,
        100,
        _function({"power": 1}, {"integer": 60}, 36, uneven=True),
        "x ** y. Integers wrap; a negative exponent gives 0 unless x is 1 or -1 (the truncated reciprocal).",
    ),
    _ordered(
        "atan2",
        FLOAT,
        np.arctan2,
        100,
        _function({"sin": 1, "divide": 1}, None, 24),
        "The angle of the point (y, x), in -pi..pi.",
    ),
    _commuting("and", BITS, np.bitwise_and, 1, _BITWISE, "Bitwise and; logical of bool."),
    _commuting("or", BITS, np.bitwise_or, 1, _BITWISE, "Bitwise or; logical of bool."),
    _commuting("xor", BITS, np.bitwise_xor, 1, _BITWISE, "Bitwise exclusive or; logical of bool."),
    _ordered(
        "shift_left", INTEGER, numerics.shift_left, 1, _BITWISE, "x << y; 0 if y is negative or at least the width."
    ),
    _ordered(
        "shift_right_arithmetic",
        INTEGER,
        numerics.shift_right_arithmetic,
        1,
        _BITWISE,
        "x >> y filled with the sign bit; all sign if y is negative or at least the width.",
    ),
    _ordered(
        "shift_right_logical",
        INTEGER,
        numerics.shift_right_logical,
        1,
        _BITWISE,
        "x >> y filled with zeros; 0 if y is negative or at least the width.",
    ),
    _same(
        ("min", "x", "max"),
        "clamp",
        ANY,
        _clamp,
        1,
        _plain({"compare": 8}, {"integer": 2}),
        "minimum(maximum(x, min), max): max wins where min > max; NaN where any is NaN.",
        commutes=False,
    ),
    _same(
        ("x", "y", "z"),
        "fma",
        FLOAT,
        _fma,
        1,
        Work({"multiply": 1}, None, vectors=1, flops=2, ulps=1, widens=True, uneven=False),
        "x * y + z, rounded once; not StableHLO's.",
        commutes=False,
    ),
    ElementwiseOp(
        name="is_finite",
        doc="Whether x is neither NaN nor infinite.",
        infer=_infer_predicate,
        evaluate=_is_finite,
        code=1,
        arity=1,
        work=_plain({"compare": 2}, None),
        commutative=False,
    ),
    ElementwiseOp(
        name="compare",
        doc="Ordered comparison; with NaN every direction but NE is false. Complex numbers are equal or not. The "
        "opcode is the direction in lower case.",
        infer=_infer_compare,
        evaluate=_compare,
        code=1,
        attrs={"direction": AttrSpec("str", "the relation of x to y", tuple(_COMPARISONS))},
        arity=2,
        work=_bits({"compare": 1}, ulps=0),
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
        work=_bits({"compare": 1}, ulps=0),
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
        work=_bits({"convert": 1}, ulps=0.5),
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
        work=_bits({}, ulps=0),
        commutative=False,
    ),
)
