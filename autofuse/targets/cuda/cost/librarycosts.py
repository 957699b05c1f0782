"""What calls of the device's array library, and calls of the host, are taken to cost: guesses, none was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofuse.ir.types import TensorType
from autofuse.lower.tile import OpaqueProgram, Space
from autofuse.targets.cuda.codegen.scatterplan import ScatterPlan
from autofuse.targets.cuda.codes import generated_scatter
from autofuse.targets.cuda.cost.rates import Rates
from autofuse.targets.cuda.library.form import Form
from autofuse.targets.cuda.library.forms import device_form

_CALL_US, _LAUNCHES = 15.0, 4
"""Of CuPy's own code on the host, and kernels that a function starts."""
_PASSES = 4.0
"""Over operands and results."""
_SORT_STEPS_PER_S = 5e10
"""Of a merge sort: n log2(n) of them."""
_FACTOR_FLOPS, _COLUMN_US = 1e12, 3.0
"""Of factorising a matrix: its rate, and what each column waits for the one before it."""
_COMPARE_US = 3e-3
"""Of one key with another, by a thread that goes through all of them."""
_HOST_US, _HOST_BYTES_PER_S, _HOST_NODE_S = 30.0, 12e9, 2e-9
"""An operation of the host: waiting for the device, copies over the bus, and an element of a result."""


def opaque_us(program: OpaqueProgram, rates: Rates) -> float:
    """Of a kernel that is no generated code."""
    scatter = generated_scatter(program)
    if scatter is not None:
        return _scatter_us(scatter, rates)
    form = device_form(program)
    types = {space: [b.type for b in program.buffers if b.space is space] for space in (Space.INPUT, Space.OUTPUT)}
    if isinstance(form, str):
        return _host_us(program, [*types[Space.INPUT], *types[Space.OUTPUT]])
    return form_us(form, types[Space.INPUT], types[Space.OUTPUT], rates)


def form_us(form: Form, operands: Sequence[TensorType], results: Sequence[TensorType], rates: Rates) -> float:
    """Of a call on the device."""
    moved = sum(type_.nbytes for type_ in (*operands, *results))
    us = _CALL_US + _LAUNCHES * rates.launch_us + 1e6 * _PASSES * moved / rates.memory_bytes_per_s
    largest = max((*operands, *results), key=lambda type_: type_.size)
    if "sort" in form.label or "partition" in form.label:
        us += 1e6 * largest.size * math.log2(max(largest.size, 2)) / _SORT_STEPS_PER_S
    elif "linalg" in form.label:
        extent = largest.shape[-1] if largest.rank else 1
        us += _COLUMN_US * extent + 1e6 * largest.size * extent / _FACTOR_FLOPS
    return us


def _scatter_us(plan: ScatterPlan, rates: Rates) -> float:
    """The operand copied, keys put in order, and the longest way through equal ones taken to be short."""
    moved = 2 * plan.result.nbytes + 3 * plan.keys * plan.run * plan.result.dtype.itemsize
    moved += sum(2 * buffer.type.nbytes for buffer in plan.workspaces) * (plan.passes if plan.way == "sorted" else 1)
    launches = {"atomic": 2, "winners": 3, "ranked": 3, "sorted": 2 + 3 * plan.passes}[plan.way]
    us = launches * rates.launch_us + 1e6 * moved / rates.memory_bytes_per_s
    return us + (plan.keys * _COMPARE_US if plan.way == "ranked" else 0.0)


def _host_us(program: OpaqueProgram, types: Sequence[TensorType]) -> float:
    elements = sum(value.type.size for node in program.graph.nodes for value in node.outputs)
    moved = sum(type_.nbytes for type_ in types)
    return _HOST_US + 1e6 * (moved / _HOST_BYTES_PER_S + elements * _HOST_NODE_S)
