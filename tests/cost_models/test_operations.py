"""What statements and products cost, before any target looks at them."""

from autofuse.cost_models.operations import StatementCosts, product_of
from autofuse.ir.dtypes import BOOL, F32, F64
from autofuse.ir.index import Symbol, of
from autofuse.lower.statements import Carry, Constant, Map, Reduce
from autofuse.lower.tile import Dot, Matrix, Phase, RowBlock


def test_a_comparison_costs_what_its_operands_ask_for():
    costs = StatementCosts()
    assert costs.of(Constant(0, F64, 1.0)) == ()
    assert costs.of(Map(1, BOOL, "lt", (0, 0))) == (("compare", F64, 1),)


def test_what_a_loop_carries_is_of_its_own_type_whatever_had_the_number_before():
    """Stages number scalars anew: a condition that is carried was taken for a float, of which there is no `not`."""
    costs = StatementCosts()
    assert costs.of(Constant(0, F64, 1.0)) == ()
    assert costs.of(Carry(0, BOOL, 5)) == ()
    assert costs.of(Map(1, BOOL, "not", (0,))) == (("integer", BOOL, 1),)


def test_a_reduction_costs_an_addition_of_its_type():
    costs = StatementCosts()
    assert costs.of(Constant(0, F32, 1.0)) == ()
    assert costs.of(Reduce(1, F32, "add", 0)) == (("add", F32, 1),)


def test_a_product_is_called_once_for_each_row_block():
    row = Symbol("row", 100)
    matrix = Matrix("a", of(row), 1, 1)
    dot = Dot(matrix, matrix, matrix, 1, 16, 8, F32)
    alone = product_of(dot, Phase((row,), (dot,)), points=100)
    blocked = product_of(dot, Phase((row,), (dot,), row_block=RowBlock(row, Symbol("local", 32), 32)), points=100)
    assert (alone.calls, blocked.calls) == (100, 4)
    assert alone.flops == blocked.flops == 2 * 100 * 16 * 8
