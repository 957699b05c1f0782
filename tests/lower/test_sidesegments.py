"""Lines cut at their costly sides: what each segment reads is there, and nothing is stored before all was read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from autofuse.ir.dtypes import BOOL, F32
from autofuse.ir.index import Symbol, of
from autofuse.lower.raresides import RareSide, with_rare_sides
from autofuse.lower.rewrite import operands
from autofuse.lower.sidesegments import Line, cut_at_sides
from autofuse.lower.statements import Carry, Effect, Load, Map, Next, Statement, Store

LANE = Symbol("i", 64)


def load(result: int, name: str) -> Load:
    return Load(result, F32, name, of(LANE))


def costly(first: int, *read: int) -> list[Map]:
    """Three functions, the last of which is number `first + 2`."""
    return [
        Map(first, F32, "sin", read[:1]),
        Map(first + 1, F32, "exp", (first,)),
        Map(first + 2, F32, "tan", (first + 1,))
        if len(read) == 1
        else Map(first + 2, F32, "power", (first + 1, read[1])),
    ]


def cut(body: Sequence[Statement], shared: Sequence[int] = ()) -> Line:
    """Checked for what holds of every line."""
    items = with_rare_sides(body, lambda number: number not in shared)
    line = cut_at_sides(items, lambda number: number not in shared)
    made = {s.result for s in line.shared if not isinstance(s, Effect)}
    kept, told = set[int](), set[int]()
    for at, segment in enumerate(line.segments):
        here = made | set(segment.reads) | {number for number, _ in segment.conditions}
        assert set(segment.reads) <= kept
        assert all(side < at for _, side in segment.conditions)
        assert {number for number, _ in segment.conditions} <= told
        for statement in segment.statements:
            assert isinstance(statement, Carry) or set(operands(statement)) <= here
            assert at == len(line.segments) - 1 or not isinstance(statement, Effect)
            if not isinstance(statement, Effect):
                here.add(statement.result)
        assert set(segment.keeps) <= here
        kept |= set(segment.keeps)
        if segment.packed is None:
            continue
        packed, side = segment.packed, segment.packed.side
        assert side.condition in here
        there = made | set(packed.gathered) | {side.condition}
        assert set(packed.gathered) <= kept
        for statement in (*packed.again, *side.inside):
            assert set(operands(statement)) <= there
            assert not isinstance(statement, Effect | Carry)
            there.add(statement.result)
        assert set(packed.results) <= there
        kept |= set(packed.results)
        told.add(side.condition)
    flat = [s for i in items for s in (i.selects if isinstance(i, RareSide) else (i,))]
    everywhere = [*line.shared, *(s for segment in line.segments for s in segment.statements)]
    assert set(flat) == set(everywhere)
    return line


def test_the_condition_and_what_the_side_reads_come_first():
    body = [
        load(1, "x"), load(2, "y"), Map(3, BOOL, "gt", (1, 2)), *costly(4, 1), Map(7, F32, "cos", (2,)),
        Map(8, F32, "select", (3, 6, 7)), Store("out", of(LANE), 8),
    ]  # fmt: skip
    first, last = cut(body).segments
    assert [s.result for s in first.statements if not isinstance(s, Effect)] == [1, 2, 3]
    assert first.packed is not None
    assert first.packed.again == (body[0],)
    assert first.packed.gathered == first.keeps == ()
    assert last.reads == (6,)
    assert last.conditions == ((3, 0),)
    assert body[1] in last.statements  # loaded again rather than kept


def test_what_is_costly_to_compute_again_is_kept_and_gathered():
    body = [
        load(1, "x"), Map(2, F32, "sqrt", (1,)), Map(3, BOOL, "gt", (2, 1)), *costly(4, 2),
        Map(8, F32, "select", (3, 6, 2)), Store("out", of(LANE), 8),
    ]  # fmt: skip
    first, last = cut(body).segments
    assert first.packed is not None
    assert first.keeps == first.packed.gathered == (2,)
    assert last.reads == (2, 6)


def test_a_second_side_may_hang_on_the_first_one():
    body = [
        load(1, "x"), load(2, "y"), Map(3, BOOL, "gt", (1, 2)), *costly(4, 1), Map(8, F32, "select", (3, 6, 2)),
        Map(9, BOOL, "lt", (8, 1)), *costly(10, 8), Map(14, F32, "select", (9, 12, 8)),
        Map(15, BOOL, "not", (3,)), Store("out", of(LANE), 14), Store("others", of(LANE), 15),
    ]  # fmt: skip
    line = cut(body)
    assert len(line.segments) == 3
    assert line.segments[1].conditions == ((3, 0),)
    assert line.segments[2].conditions == ((3, 0), (9, 1))


def test_what_all_share_is_computed_once_and_state_is_handed_on_last():
    body = [
        Carry(1, F32, 90), Carry(2, F32, 91), Map(3, F32, "tan", (2,)), load(4, "x"), Map(5, BOOL, "gt", (1, 4)),
        *costly(6, 4, 3), Map(10, F32, "select", (5, 8, 1)), Next(1, 10), Next(2, 3),
    ]  # fmt: skip
    line = cut(body, shared=(2, 3))
    assert line.shared == (body[1], body[2], body[-1])
    assert line.segments[-1].statements[-1] == body[-2]


@pytest.mark.parametrize("seed", range(60))
def test_random_lines(seed: int):
    rng = np.random.default_rng(seed)
    body: list[Statement] = [load(1, "x"), load(2, "y"), Carry(3, F32, 900), load(4, "z")]
    floats, flags, number = [1, 2, 3, 4], list[int](), 5
    for _ in range(int(rng.integers(4, 14))):
        a, b = (int(n) for n in rng.choice(floats, 2))
        match int(rng.integers(4)):
            case 0:
                body.append(Map(number, BOOL, "gt", (a, b)))
                flags.append(number)
            case 1:
                body += costly(number, a, b)
                number += 2
                floats.append(number)
            case 2 if flags:
                body.append(Map(number, F32, "select", (int(rng.choice(flags)), a, b)))
                floats.append(number)
            case _:
                body.append(Map(number, F32, "add", (a, b)))
                floats.append(number)
        number += 1
    body += [Next(3, floats[-1]), *(Store("out", of(LANE), n) for n in floats[-3:])]
    cut(body, shared=(4,) if seed % 2 else ())
