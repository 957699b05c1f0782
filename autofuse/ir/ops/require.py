"""What type inference demands of operands and attributes, with messages that say who, what is required, what came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.errors import GraphError
from autofuse.ir.dtypes import ComplexDtypeError, DType
from autofuse.ir.types import TensorType

Kinds = tuple[str, ...]
FLOAT: Kinds = ("float",)
INTEGER: Kinds = ("int", "uint")
NUMBER: Kinds = ("float", "int", "uint")
BITS: Kinds = ("int", "uint", "bool")
ANY: Kinds = ("float", "int", "uint", "bool")
COMPLEX: Kinds = ("complex",)
_KIND_NAMES: Mapping[Kinds, str] = {
    FLOAT: "a float dtype",
    INTEGER: "an integer dtype",
    NUMBER: "a float or integer dtype",
    BITS: "an integer dtype or bool",
    ANY: "a real dtype, not a complex one",
    COMPLEX: "a complex dtype",
    (*FLOAT, *COMPLEX): "a float or complex dtype",
    (*NUMBER, *COMPLEX): "a float, integer or complex dtype",
    (*ANY, *COMPLEX): "any dtype",
}


def kind(op: str, operand: str, type_: TensorType, kinds: Kinds) -> None:
    """The operand's dtype is of one of `kinds`."""
    if type_.dtype.kind not in kinds:
        error = ComplexDtypeError if type_.dtype.is_complex else GraphError
        raise error(f"{op}: operand {operand} must have {_KIND_NAMES[kinds]}, got {type_}; convert it first")


def real(op: str, operand: str, type_: TensorType) -> None:
    """The operand has no complex dtype."""
    kind(op, operand, type_, ANY)


def same_type(op: str, names: Sequence[str], operands: Sequence[TensorType]) -> None:
    """All operands have one type."""
    for name, type_ in zip(names[1:], operands[1:], strict=True):
        if type_ != operands[0]:
            raise GraphError(
                f"{op}: operand {name} must be {operands[0]} like operand {names[0]}, got {type_}; "
                "broadcast and convert operands explicitly"
            )


def same_dtype(op: str, names: Sequence[str], operands: Sequence[TensorType]) -> None:
    """All operands have one dtype."""
    for name, type_ in zip(names[1:], operands[1:], strict=True):
        if type_.dtype != operands[0].dtype:
            raise GraphError(
                f"{op}: operand {name} must have dtype {operands[0].dtype} like operand {names[0]}, got {type_}"
            )


def scalar_integers(op: str, names: Sequence[str], operands: Sequence[TensorType]) -> None:
    """Each operand is an integer scalar."""
    for name, type_ in zip(names, operands, strict=True):
        if type_.shape or not type_.dtype.is_integer:
            raise GraphError(f"{op}: operand {name} must be an integer scalar such as i32[], got {type_}")


def length(op: str, attr: str, values: Sequence[object], count: int, what: str) -> None:
    """One entry per `what`."""
    if len(values) != count:
        raise GraphError(
            f"{op}: attribute {attr} must have {count} entries, one per {what}, got {len(values)}: {tuple(values)}"
        )


def axis(op: str, attr: str, value: int, rank: int, of: str = "the operand") -> None:
    """A dimension number of `of`; negative numbers are not wrapped."""
    if not 0 <= value < rank:
        raise GraphError(f"{op}: attribute {attr} must be a dimension of {of}, 0 <= d < {rank}, got {value}")


def axes(op: str, attr: str, values: Sequence[int], rank: int, of: str = "the operand") -> None:
    """Distinct dimension numbers of `of`."""
    for value in values:
        axis(op, attr, value, rank, of)
    if len(set(values)) != len(values):
        raise GraphError(f"{op}: attribute {attr} must not repeat a dimension, got {tuple(values)}")


def ascending(op: str, attr: str, values: Sequence[int], rank: int, of: str = "the operand") -> None:
    """Distinct dimension numbers in ascending order."""
    axes(op, attr, values, rank, of)
    if list(values) != sorted(values):
        raise GraphError(f"{op}: attribute {attr} must be in ascending order, got {tuple(values)}")


def at_least(op: str, attr: str, values: Sequence[int], least: int) -> None:
    """No entry is below `least`."""
    for value in values:
        if value < least:
            raise GraphError(f"{op}: attribute {attr} must have entries >= {least}, got {tuple(values)}")


def integer_dtype(op: str, dtype: DType) -> None:
    """The attribute `dtype` is an integer type."""
    if not dtype.is_integer:
        raise GraphError(f"{op}: attribute dtype must be an integer dtype such as i32 or i64, got {dtype}")


def combiner_fits(op: str, combiner: str, type_: TensorType) -> None:
    """Bool reduces with and, or, minimum, maximum; and/or need bits. Complex numbers only add up."""
    if type_.dtype.is_complex and combiner != "add":
        raise ComplexDtypeError(f"{op}: combiner {combiner} is not defined on complex numbers, got {type_}")
    if type_.dtype.kind == "bool" and combiner in ("add", "multiply"):
        raise GraphError(f"{op}: combiner {combiner} is not defined on bool; use or / and, or convert to an integer")
    if combiner in ("and", "or") and type_.dtype.is_float:
        raise GraphError(f"{op}: combiner {combiner} needs an integer dtype or bool, got {type_}")
