"""Where the grid points of a thread stand: packs of neighbours, which may go on in the next row.

Points are numbered, the last symbol fastest, and a pack starts at a multiple of its width. So what is laid out as the
grid is, results above all, is read and written by whole packs, whatever the length of a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Protocol

from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.targets.cuda.codegen.copies import Neighbours
from autofuse.targets.cuda.codegen.phasecode import PhaseCode


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    """How grid points are given to threads."""

    threads: int
    vector: int
    """Neighbouring points of a pack."""
    packs: int
    """Of one thread, a block's width apart."""
    points: int

    @property
    def blocks(self) -> int:
        return max(1, -(-self.points // (self.threads * self.packs * self.vector)))

    @property
    def exceeds(self) -> bool:
        """Whether the last block has threads that find no pack."""
        return self.points < self.blocks * self.threads * self.packs * self.vector


class Packs(Protocol):
    """Grid points in packs."""

    @property
    def vector(self) -> int:
        """Neighbouring points of a pack."""
        ...

    @property
    def points(self) -> int: ...


def walked(grid: tuple[Symbol, ...]) -> tuple[Symbol, ...]:
    """The symbols that have more than one value."""
    return tuple(symbol for symbol in grid if symbol.extent > 1)


def write_packs(
    code: PhaseCode, grid: tuple[Symbol, ...], plan: ThreadPlan, block: str, stack: ExitStack
) -> tuple[Neighbours, ...]:
    """Define where the packs of a thread stand. A thread without any does nothing until `stack` closes."""
    if plan.packs > 1:
        numbers = [_number(plan, f"({block} * {plan.packs} + {n})") for n in range(plan.packs)]
        return tuple(
            pack_at(code, grid, plan, number, f"_{n}", exceeds=plan.exceeds) for n, number in enumerate(numbers)
        )
    start = _defined(code, _start_name(grid), _start(plan, _number(plan, block)))
    if plan.exceeds:
        stack.enter_context(code.out.braces(f"if ({start} < {plan.points})"))
    return (_neighbours(code, grid, plan, start, "", ""),)


def _number(plan: ThreadPlan, block: str) -> str:
    return f"{block} * {plan.threads} + (int)threadIdx.x"


def _start(plan: Packs, number: str) -> str:
    return number if plan.vector == 1 else f"({number}) * {plan.vector}"


def _start_name(grid: tuple[Symbol, ...]) -> str:
    symbols = walked(grid)
    return symbols[0].name if len(symbols) == 1 else "point"


def _defined(code: PhaseCode, name: str, text: str) -> str:
    own = name if name == "point" else code.names.fresh(name)
    code.out.line(f"const {code.index.type} {own} = {text};")
    return own


def pack_at(
    code: PhaseCode, grid: tuple[Symbol, ...], plan: Packs, number: str, suffix: str = "", *, exceeds: bool
) -> Neighbours:
    """Define where the pack stands that the C expression `number` numbers.

    `exceeds`: whether there may be none of that number. It stands at the last one then, and nothing is stored there.
    """
    name, inside = _start_name(grid) + suffix, ""
    if not exceeds:
        return _neighbours(code, grid, plan, _defined(code, name, _start(plan, number)), suffix, inside)
    last = (plan.points - 1) // plan.vector * plan.vector
    first = _defined(code, f"start{suffix}", _start(plan, number))
    inside = code.names.fresh(f"inside{suffix}")
    code.out.line(f"const bool {inside} = {first} < {plan.points};")
    start = _defined(code, name, f"{inside} ? {first} : {last}")
    return _neighbours(code, grid, plan, start, suffix, inside)


def _neighbours(
    code: PhaseCode, grid: tuple[Symbol, ...], plan: Packs, start: str, suffix: str, inside: str
) -> Neighbours:
    """The pack that begins at the point `start`."""
    symbols, width = walked(grid), plan.vector
    if len(symbols) == 1:
        places = {symbols[0]: start} | {symbol: "0" for symbol in grid if symbol.extent <= 1}
    else:
        places = _coordinates(code, grid, start, suffix)
    full, each = "", ()
    if plan.points % width:
        full = f"{start} + {width} <= {plan.points}"
        each = tuple(f"{start} + {n} < {plan.points}" for n in range(width))
    if width == 1 or symbols[-1].extent % width == 0:
        return Neighbours(places, full=full, each=each, inside=inside)
    others = [places]
    for number in range(1, width):
        step = f"({each[number]})" if each else "1"
        others.append(_next(code, symbols, others[-1], step, f"{suffix}_{number}"))
    row = f"{places[symbols[-1]]} + {width} <= {symbols[-1].extent}"
    return Neighbours(places, tuple(others[1:]), row, full, each, inside)


def _next(
    code: PhaseCode, symbols: tuple[Symbol, ...], before: Mapping[Symbol, str], step: str, suffix: str
) -> dict[Symbol, str]:
    """The place behind another; the same one if `step` is 0."""
    out, found = code.out, dict(before)
    for symbol in reversed(symbols):
        text = f"{before[symbol]} + {step}"
        if symbol != symbols[0]:
            wrap = code.names.fresh(f"wrap{suffix}")
            out.line(f"const bool {wrap} = {text} == {symbol.extent};")
            text, step = f"{wrap} ? 0 : {text}", wrap
        found[symbol] = _defined(code, f"{symbol.name}{suffix}", text)
    return found


def define_symbols(code: PhaseCode, grid: tuple[Symbol, ...], point: str) -> None:
    """Names for the grid symbols at flat grid point `point`, last symbol fastest; they come into scope."""
    code.symbols.update(_coordinates(code, grid, point, None))


def _coordinates(code: PhaseCode, grid: tuple[Symbol, ...], point: str, suffix: str | None) -> dict[Symbol, str]:
    """Define the symbols at a grid point; `suffix` of their names, None = those that they have in every loop."""
    found: dict[Symbol, str] = {}
    step = math.prod(symbol.extent for symbol in grid)
    first = True
    for symbol in grid:
        if symbol.extent <= 1:
            found[symbol] = "0"
            continue
        step //= symbol.extent
        text = point if step == 1 else f"{point} / {step}"
        whole = text if first else (f"{text} % {symbol.extent}" if step == 1 else f"({text}) % {symbol.extent}")
        name = code.loop_name(symbol) if not suffix else code.names.fresh(f"{symbol.name}{suffix}")
        code.out.line(f"const {code.index.type} {name} = {whole};")
        found[symbol] = name
        first = False
    return found
