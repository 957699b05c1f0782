"""TileProgram as text: the softmax of the module's docstring, index expressions, every kind of statement."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse as af
from autofuse.ir import dtypes
from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol, of
from autofuse.ir.pieces import Condition
from autofuse.ir.types import parse_type
from autofuse.lower import statements
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import ArgReduce, Constant, Load, Map, Position, Reduce, Scan, Store
from autofuse.lower.tile import Buffer, Dot, Matrix, Phase, RowBlock, RowGroup, Space, Stage, TileProgram
from autofuse.report.tileprint import loop_lines, print_affine, print_program
from autofuse.targets.cpu.decisions import cpu_schedule

ROW, COLUMN = Symbol("i", 8), Symbol("k", 16)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Affine(), "0"),
        (Affine(-3), "-3"),
        (of(ROW) * 16 + of(COLUMN) + 5, "16*i + k + 5"),
        (of(COLUMN) * -1 + 15, "-k + 15"),
        (of(ROW) - of(COLUMN), "i - k"),
        (of(Quotient(of(COLUMN) + 1, 4)), "((k + 1) div 4)"),
        (of(Remainder(of(COLUMN), 3)) * 2, "2*((k) mod 3)"),
        (of(Element(7, (), 0, 9)), "clamp(%7, 0, 9)"),
    ],
)
def test_index_expressions(value: Affine, text: str) -> None:
    assert print_affine(value) == text


def test_every_statement_has_a_line() -> None:
    body = (
        Constant(0, dtypes.F32, 1.5),
        Position(1, dtypes.I64, of(COLUMN)),
        statements.Test(2, (Condition(of(COLUMN), 2, 9, 2, 1),)),
        Load(3, dtypes.F32, "x", of(ROW) * 16 + of(COLUMN), mask=2, fill=0),
        Map(4, dtypes.F32, "add", (3, 0)),
        Reduce(5, dtypes.F32, "maximum", 4),
        ArgReduce(6, dtypes.I64, "argmax", 4, of(COLUMN)),
        Scan(7, dtypes.F32, "add", 4, True),
        Store("y", of(ROW), 7, mask=2),
    )
    program = TileProgram(
        "demo",
        (Buffer("x", parse_type("f32[8,16]"), Space.INPUT), Buffer("y", parse_type("f32[8]"), Space.OUTPUT)),
        ((Phase((ROW,), (RowGroup((Stage((COLUMN,), body, COLUMN),)),)),),),
        cpu_schedule(unroll=2),
    )
    assert (
        print_program(program)
        == """\
kernel demo
  input x: f32[8,16]
  output y: f32[8]
  schedule unroll=2
  phase grid(i<8) vectorised=stage
    stage (k<16) vectorised=k {
      %0 = constant 1.5 f32
      %1 = position k i64
      %2 = test 2 <= k < 9 and (k) mod 2 == 1
      %3 = load x[16*i + k] f32 where %2 else %0
      %4 = add %3 %0 f32
      %5 = reduce maximum %4 f32
      %6 = argmax %4 at k i64
      %7 = scan add %4 f32 reverse
      store y[i] %7 where %2
    }
"""
    )


def test_row_blocks_dots_and_launches() -> None:
    local = Symbol("l", 4)
    matrix = Matrix("s", of(local) * 8, 8, 1)
    dot = Dot(matrix, Matrix("x", of(ROW) * 16, 16, 1), Matrix("w", Affine(), 8, 1), 4, 8, 16, dtypes.F32)
    phase = Phase((ROW,), (dot, RowGroup((Stage((), (), None),))), row_block=RowBlock(ROW, local, 4))
    program = TileProgram("two", (), ((phase,), (phase,)), Schedule())
    text = print_program(program)
    assert "schedule default" in text
    assert text.count("phase grid(i<8) vectorised=stage row_block(i by 4)") == 2
    assert "dot s[8*l + i*8 + j*1] = x[16*i + i*16 + j*1] x w[0 + i*8 + j*1] f32 rows=4 columns=8 depth=16" in text
    assert (
        loop_lines(program)[1]
        == "launch 1: phase grid(i<8) vectorised=stage row_block(i by 4): dot [4x16]x[16x8] f32; stage()"
    )


def test_calls_into_the_library() -> None:
    plan = af.compile(np.sort, af.spec("f32[20000]"))
    text = print_program(plan.lowered[0].program)
    assert "call sort" in text
    assert loop_lines(plan.lowered[0].program) == ["one call into the interpreter's library"]


def test_code_of_a_sort_and_what_it_computes() -> None:
    plan = af.compile(lambda x: np.sort(np.negative(x)), af.spec("f32[5]"))
    assert "code negate, sort" in print_program(plan.lowered[0].program)
    assert loop_lines(plan.lowered[0].program) == ["sort by loops of its own, which compute negate"]
