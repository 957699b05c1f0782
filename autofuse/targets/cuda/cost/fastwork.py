"""What statements cost where they may be approximated: operations of a price class of their own."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.cost_models.operations import StatementCosts, price_class
from autofuse.ir.dtypes import DType
from autofuse.lower.statements import Map, Statement
from autofuse.targets.cuda.fastmath import has_fast_form

FAST = "fast"
"""The price class of operations that are approximated, beside `f32` and `f64`."""
_INSTEAD = {"rsqrt": "sqrt"}
"""Opcodes of several operations that are approximated by one."""


def operations_of(costs: StatementCosts, statement: Statement) -> Iterator[tuple[tuple[str, str], DType, float]]:
    """((class, price class), dtype, operations) of one run of a statement.

    Raises BackendError for an unknown opcode.
    """
    opcode = statement.opcode if isinstance(statement, Map) and statement.fast else None
    for name, dtype, count in costs.of(statement):
        if opcode is None or name == "convert" or not has_fast_form(opcode, dtype):
            yield (name, price_class(dtype)), dtype, count
        elif name == _INSTEAD.get(opcode, name):
            yield (name, FAST), dtype, count
