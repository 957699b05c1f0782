"""What every record holds: nothing is left to a silent default, and no fact contradicts another."""

import inspect
from collections import Counter
from dataclasses import fields
from typing import get_args

import numpy as np
import pytest

from autofuse.errors import GraphError
from autofuse.ir import dtypes, optable
from autofuse.ir.oprecord import ElementwiseOp, IndexOp, OpClass, OpDef, Role, Work
from autofuse.ir.optable import all_ops, lookup, scalar_op
from autofuse.ir.types import TensorType
from autofuse.targets.cpu.device.describe import OP_CLASSES

OPS = list(all_ops())
ELEMENTWISE = [op for op in OPS if isinstance(op, ElementwiseOp)]
ATTRIBUTES = {
    Role.CONSTANT: {"value"},
    Role.IOTA: {"iota_dimension"},
    Role.RESHAPE: {"shape"},
    Role.SLICE: {"start_indices", "limit_indices", "strides"},
    Role.JOIN: {"dimension"},
    Role.REDUCE: {"dimensions", "combiner"},
    Role.ARG_REDUCE: {"dimension", "dtype"},
    Role.SCAN: {"dimension", "combiner", "reverse"},
    Role.WINDOW: {"window_dimensions", "window_strides", "base_dilations", "window_dilations", "padding", "combiner"},
    Role.DOT: set(lookup("dot_general").attrs),
    Role.CONVOLUTION: set(lookup("convolution").attrs),
    Role.SORT: {"dimension"},
    Role.SCATTER: set(lookup("scatter").attrs),
    Role.CALL: {"call_target_name"},
}
"""What code that dispatches on a role reads of its ops."""
OPTIONAL = {"attrs", "arity", "flops", "evaluate_into", "evaluate_over", "scratch", "variant"}
"""What most ops do without."""


def named(op):
    return op.name


@pytest.mark.parametrize("kind", [OpDef, ElementwiseOp, IndexOp, Work])
def test_a_constructor_demands_its_facts(kind):
    facts = {f.name for f in fields(kind) if f.init} - (set() if kind is Work else OPTIONAL)
    given = inspect.signature(kind).parameters
    assert {name for name, parameter in given.items() if parameter.default is inspect.Parameter.empty} == facts
    for missing in facts:
        with pytest.raises(TypeError, match=missing):
            kind(**dict.fromkeys(facts - {missing}))


def test_names_and_opcodes_are_unique():
    names = Counter(op.name for family in optable.FAMILIES for op in family.OPS)
    opcodes = Counter(opcode for op in ELEMENTWISE for opcode in op.opcodes)
    assert set(names.values()) == set(opcodes.values()) == {1}
    assert all(scalar_op(opcode) is op for op in ELEMENTWISE for opcode in op.opcodes)


@pytest.mark.parametrize("op", OPS, ids=named)
def test_the_record_is_of_the_kind_that_its_role_asks_for(op):
    assert (op.role is Role.ELEMENTWISE) == isinstance(op, ElementwiseOp)
    assert op.role.moves == isinstance(op, IndexOp)
    assert set(op.attrs) >= ATTRIBUTES.get(op.role, set())
    assert not op.role.is_leaf or op.arity == 0


@pytest.mark.parametrize("op", OPS, ids=named)
def test_only_what_writes_nothing_is_no_code(op):
    assert (op.code == 0) == (op.role.is_view or op.role is Role.CONSTANT)


def taken(op, dtype):
    """Whether an elementwise op takes operands of a dtype."""
    operands = [TensorType((2,), dtypes.BOOL if op.name == "select" and n == 0 else dtype) for n in range(op.arity)]
    attrs = {"dtype": dtype} if "dtype" in op.attrs else {}
    try:
        op.infer(operands, attrs, ())
    except GraphError:
        return False
    return True


@pytest.mark.parametrize("op", ELEMENTWISE, ids=named)
def test_work_is_known_of_the_dtypes_that_an_op_takes_and_of_no_others(op):
    floats = any(taken(op, dtype) for dtype in dtypes.ALL if dtype.is_float)
    others = any(taken(op, dtype) for dtype in dtypes.ALL if not dtype.is_float)
    assert (op.work.floats is not None, op.work.integers is not None) == (floats, others)
    for mix in (op.work.floats or {}, op.work.integers or {}):
        assert set(mix) <= set(get_args(OpClass))
        assert all(count > 0 for count in mix.values())


def test_classes_of_work_are_those_that_are_calibrated():
    assert {*get_args(OpClass), "gather", "scatter"} == set(OP_CLASSES)


@pytest.mark.parametrize("op", [op for op in ELEMENTWISE if op.commutative], ids=named)
def test_operands_of_what_commutes_may_be_swapped(op):
    dtype = next(dtype for dtype in (dtypes.F32, dtypes.I32) if taken(op, dtype))
    x, y = np.meshgrid(np.arange(-3, 4).astype(dtype.numpy), np.arange(-3, 4).astype(dtype.numpy))
    np.testing.assert_array_equal(op.evaluate((x, y), {}, ())[0], op.evaluate((y, x), {}, ())[0])


@pytest.mark.parametrize("op", [op for op in ELEMENTWISE if op.arity == 2 and not op.commutative], ids=named)
def test_operands_of_what_does_not_commute_may_not(op):
    dtype = next(dtype for dtype in (dtypes.F32, dtypes.I32) if taken(op, dtype))
    x, y = np.meshgrid(np.arange(1, 8).astype(dtype.numpy), np.arange(1, 8).astype(dtype.numpy))
    attrs = {"direction": "LT"} if op.attrs else {}
    assert not np.array_equal(op.evaluate((x, y), attrs, ())[0], op.evaluate((y, x), attrs, ())[0])
