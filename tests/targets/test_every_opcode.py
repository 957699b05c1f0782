"""Every target emits every scalar opcode and every combiner, on every dtype that the op table lets it have.

What they compute is tested target by target; here an emitter that was forgotten shows. A further target is one entry of
`EMITTERS`: how it emits one opcode.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from autofuse.errors import BackendError, GraphError
from autofuse.ir import dtypes
from autofuse.ir.combiners import COMBINERS
from autofuse.ir.dtypes import BOOL, DType
from autofuse.ir.oprecord import ElementwiseOp
from autofuse.ir.ops.numerics import accumulator
from autofuse.ir.optable import all_ops, lookup
from autofuse.ir.types import TensorType
from autofuse.lower.evaluate import apply_opcode
from autofuse.targets.cpu import scalars as cpu
from autofuse.targets.cpu.llvmtext import ModuleText, Vec
from autofuse.targets.cuda import scalars as cuda
from autofuse.targets.cuda.prelude import Prelude
from autofuse.targets.registry import names

Emitter = Callable[[str, Sequence[DType], DType], object]
"""(opcode, operand dtypes, result dtype): raises BackendError where the target lacks it."""
OPS = [op for op in all_ops() if isinstance(op, ElementwiseOp)]


def emit_cpu(opcode, operands, result):
    parameters = [(Vec(dtype, 8).llvm, f"x{number}") for number, dtype in enumerate(operands)]
    fn = ModuleText().function("f", "void", parameters)
    return cpu.emit_map(fn, opcode, [f"%{name}" for _, name in parameters], operands, result, 8)


def emit_cuda(opcode, operands, result):
    return cuda.map_expression(Prelude(), opcode, [f"x{number}" for number in range(len(operands))], operands, result)


def evaluate(opcode, operands, result):
    return apply_opcode(opcode, result, *(np.ones(3, dtype.numpy) for dtype in operands))


EMITTERS: Mapping[str, Emitter] = {
    "cpu": emit_cpu,
    "cuda": emit_cuda,
    "simulated": emit_cuda,
    "counted": evaluate,
}
"""By target. The counted one runs kernels by the evaluator."""


def uses(op):
    """(operand dtypes, result dtype) of all that the op table lets an op have."""
    for dtype in dtypes.ALL:
        operands = (BOOL, dtype, dtype) if op.name == "select" else (dtype,) * op.arity
        for target in dtypes.ALL if "dtype" in op.attrs else [dtype]:
            attrs = {"dtype": target} if "dtype" in op.attrs else {}
            try:
                (result,) = op.infer([TensorType((3,), operand) for operand in operands], attrs, ())
            except GraphError:
                continue
            yield operands, result.dtype


def test_no_target_is_left_out():
    assert {*EMITTERS} == {*names()}


@pytest.mark.parametrize("target", EMITTERS)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_opcode_has_an_emitter(op, target):
    tried = [EMITTERS[target](opcode, *use) for use in uses(op) for opcode in op.opcodes]
    assert tried


@pytest.mark.parametrize("target", EMITTERS)
def test_every_combiner_has_an_emitter(target):
    for combiner in COMBINERS:
        for dtype in dtypes.ALL:
            try:
                lookup("reduce").infer([TensorType((3,), dtype)], {"dimensions": (0,), "combiner": combiner}, ())
            except GraphError:
                continue
            wide = dtypes.from_numpy(accumulator(dtype.numpy))
            EMITTERS[target](combiner, (wide, wide), wide)


@pytest.mark.parametrize("target", EMITTERS)
def test_a_missing_emitter_shows(target):
    with pytest.raises(BackendError, match="frobnicate"):
        EMITTERS[target]("frobnicate", (dtypes.F32,), dtypes.F32)


def test_no_emitter_is_left_of_an_op_that_is_gone():
    assert {opcode for op in OPS for opcode in op.opcodes} == cpu.OPCODES
