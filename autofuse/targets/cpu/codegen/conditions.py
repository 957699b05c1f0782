"""Conditions on positions: known while code is written where a split loop decides them, else code that tests them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from autofuse.ir.dtypes import BOOL
from autofuse.ir.pieces import Condition
from autofuse.lower.rewrite import operands
from autofuse.lower.statements import (
    EFFECTS,
    ArgReduce,
    Constant,
    Effect,
    Leave,
    Load,
    Map,
    Next,
    Reduce,
    Repeat,
    Scan,
    Statement,
    Store,
    Test,
)
from autofuse.targets.cpu.codegen.offsets import (
    bounds_in,
    element_sources,
    index_bits,
    scalar_index,
    split_lanes,
    vector_index,
)
from autofuse.targets.cpu.codegen.values import Group, Ranges, Value, splat_integer
from autofuse.targets.cpu.llvmtext import FunctionText


def truth(condition: Condition, ranges: Ranges) -> bool | None:
    """Whether the condition holds everywhere (True) or nowhere (False) in the ranges; None if it depends."""
    lo, hi = bounds_in(condition.value, ranges)
    if lo >= condition.hi or hi < condition.lo:
        return False
    if lo == hi and lo % condition.multiple != condition.remainder:
        return False
    inside = lo >= condition.lo and hi < condition.hi
    aligned = condition.multiple == 1 or lo == hi or _aligned(condition)
    return True if inside and aligned else None


def _aligned(condition: Condition) -> bool:
    value, multiple = condition.value, condition.multiple
    return all(c % multiple == 0 for _, c in value.terms) and value.constant % multiple == condition.remainder


def known_truths(
    body: Sequence[Statement], ranges: Ranges, assumed: Mapping[int, bool] | None = None
) -> dict[int, bool]:
    """The bool scalars of a stage that are the same in every iteration within `ranges`, where some are `assumed`."""
    known: dict[int, bool] = {}
    for statement in body:
        found: bool | None = None
        if isinstance(statement, Effect):
            continue
        if assumed and statement.result in assumed:
            found = assumed[statement.result]
        elif isinstance(statement, Test):
            found = _all([truth(c, ranges) for c in statement.conditions])
        elif isinstance(statement, Constant) and isinstance(statement.value, bool):
            found = statement.value
        elif isinstance(statement, Map):
            found = _folded(statement, known)
        if found is not None:
            known[statement.result] = found
    return known


def _all(truths: Iterable[bool | None]) -> bool | None:
    listed = list(truths)
    if False in listed:
        return False
    return None if None in listed else True


def _folded(statement: Map, known: dict[int, bool]) -> bool | None:
    if statement.dtype != BOOL:
        return None
    operands = [known.get(number) for number in statement.operands]
    match statement.opcode:
        case "and":
            return _all(operands)
        case "or":
            return True if True in operands else (None if None in operands else False)
        case "not":
            return None if operands[0] is None else not operands[0]
        case _:
            return None


def emit_all(fn: FunctionText, number: int, groups: Sequence[Group]) -> str:
    """Whether a bool scalar holds in all lanes of all groups that exist: an i1 operand."""
    lanes = groups[0].lanes.count if any(group.values[number].varying for group in groups) else 1
    flags = "i1" if lanes == 1 else f"<{lanes} x i1>"
    masks = [group.operand(fn, number, lanes) for group in groups]
    if lanes > 1:
        absent = [group.active and fn.emit(f"xor {flags} {group.active}, splat (i1 true)") for group in groups]
        masks = [fn.emit(f"or {flags} {m}, {a}") if a else m for m, a in zip(masks, absent, strict=True)]
    every = masks[0]
    for mask in masks[1:]:
        if mask != every:
            every = fn.emit(f"and {flags} {every}, {mask}")
    if lanes == 1:
        return every
    return fn.emit(f"icmp eq i{lanes} {fn.emit(f'bitcast {flags} {every} to i{lanes}')}, -1")


def live_scalars(body: Sequence[Statement], known: dict[int, bool], wanted: Iterable[int] = ()) -> frozenset[int]:
    """The scalars of a stage that its stores and reductions, or `wanted`, need, given what is known."""
    live = set(wanted)
    for statement in reversed(body):
        match statement:
            case Store():
                if statement.mask is None or known.get(statement.mask) is not False:
                    live.update(_used(statement, known))
            case Reduce() | ArgReduce() | Scan() | Leave() | Repeat() | Next():
                live.update(_used(statement, known))
            case _:
                if statement.result in live:
                    live.update(_used(statement, known))
    return frozenset(live)


def used_scalars(body: Sequence[Statement]) -> frozenset[int]:
    """All scalars that the statements read."""
    return frozenset(number for statement in body for number in _used(statement, {}))


_NOT_COUNTED = EFFECTS | {Constant}
_NOTHING: dict[int, bool] = {}


def most_alive(body: Sequence[Statement]) -> int:
    """The most scalars, constants aside, that are needed at once when the statements run in order."""
    told = cast("Sequence[Any]", body)
    last: dict[int, int] = {}
    for place, statement in enumerate(told):
        for number in statement.operands if type(statement) is Map else _used(statement, _NOTHING):
            last[number] = place
    makes = [type(statement) not in _NOT_COUNTED for statement in told]
    ends = [0] * len(body)
    for statement, counts in zip(told, makes, strict=True):
        if counts and statement.result in last:
            ends[last[statement.result]] += 1
    alive = most = 0
    for place, counts in enumerate(makes):
        alive += counts
        if alive > most:
            most = alive
        alive -= ends[place]
    return most


def _used(statement: Statement, known: dict[int, bool]) -> list[int]:
    match statement:
        case Load():
            return _used_by_load(statement, known)
        case Map():
            return _used_by_map(statement, known)
        case Store():
            mask = [] if statement.mask is None or statement.mask in known else [statement.mask]
            return [statement.value, *mask, *element_sources(statement.offset)]
        case Test(result, conditions):
            return [] if result in known else [n for c in conditions for n in element_sources(c.value)]
        case _:
            return list(operands(statement))


def _used_by_map(statement: Map, known: dict[int, bool]) -> list[int]:
    if statement.result in known:
        return []
    chosen = known.get(statement.operands[0]) if statement.opcode == "select" else None
    if chosen is not None:
        return [statement.operands[1 if chosen else 2]]
    return list(statement.operands)


def _used_by_load(statement: Load, known: dict[int, bool]) -> list[int]:
    if statement.mask is None:
        return element_sources(statement.offset)
    truth_ = known.get(statement.mask)
    fill = [] if statement.fill is None or truth_ is True else [statement.fill]
    if truth_ is False:
        return fill
    mask = [] if truth_ is True else [statement.mask]
    return [*element_sources(statement.offset), *mask, *fill]


def test(fn: FunctionText, statement: Test, group: Group) -> Value:
    """The value of a Test statement that is not known while code is written."""
    total: Value | None = None
    for condition in statement.conditions:
        known = truth(condition, group.ranges)
        if known is False:
            return Value("false", BOOL, varying=False)
        if known is None:
            found = _tested(fn, condition, group)
            total = found if total is None else _both(fn, total, found, group)
    return total or Value("true", BOOL, varying=False)


def _both(fn: FunctionText, a: Value, b: Value, group: Group) -> Value:
    if not (a.varying or b.varying):
        return Value(fn.emit(f"and i1 {a.name}, {b.name}"), BOOL, varying=False)
    count = group.lanes.count
    names = [v.name if v.varying else splat_integer(fn, v.name, 1, count) for v in (a, b)]
    return Value(fn.emit(f"and <{count} x i1> {names[0]}, {names[1]}"), BOOL, varying=True)


def _tested(fn: FunctionText, condition: Condition, group: Group) -> Value:
    varying = not split_lanes(condition.value, group).is_uniform
    bits = index_bits(condition.value + (abs(condition.lo) + abs(condition.hi)), group) if varying else 64
    if varying:
        index = vector_index(fn, condition.value, group, bits)
    else:
        index = scalar_index(fn, condition.value, group)
    count = group.lanes.count if varying else 1
    lo, hi = bounds_in(condition.value, group.ranges)
    total = ""
    for order, limit, needed in (("sge", condition.lo, lo < condition.lo), ("slt", condition.hi, hi >= condition.hi)):
        if needed:
            total = _and(fn, total, _compared(fn, order, index, limit, bits, count), count)
    if condition.multiple > 1:
        total = _and(fn, total, _divides(fn, condition, index, bits, count), count)
    return Value(total, BOOL, varying)


def _compared(fn: FunctionText, order: str, index: str, limit: int, bits: int, count: int) -> str:
    if count == 1:
        return fn.emit(f"icmp {order} i{bits} {index}, {limit}")
    return fn.emit(f"icmp {order} <{count} x i{bits}> {index}, splat (i{bits} {limit})")


def _divides(fn: FunctionText, condition: Condition, index: str, bits: int, count: int) -> str:
    """Whether `index - remainder` is a multiple; the sign of the dividend does not matter for that."""
    type_ = f"i{bits}" if count == 1 else f"<{count} x i{bits}>"

    def constant(value: int) -> str:
        return str(value) if count == 1 else f"splat (i{bits} {value})"

    shifted = fn.emit(f"sub {type_} {index}, {constant(condition.remainder)}")
    rest = fn.emit(f"srem {type_} {shifted}, {constant(condition.multiple)}")
    return fn.emit(f"icmp eq {type_} {rest}, {constant(0)}")


def _and(fn: FunctionText, total: str, more: str, count: int) -> str:
    type_ = "i1" if count == 1 else f"<{count} x i1>"
    return fn.emit(f"and {type_} {total}, {more}") if total else more
