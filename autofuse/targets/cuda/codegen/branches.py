"""A costly side of choices as a branch: what only that side needs is done by threads that take it.

    float s9 = v4;                             the other side
    if (v7) { ...; s9 = v9; }                  v9 = v7 ? v8 : v4, and all that only v8 needs

Threads of a warp that do not take it wait for those that do.
"""

from __future__ import annotations

from autofuse.lower.raresides import RareSide
from autofuse.targets.cuda.codegen.copies import Copies
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import unwrapped
from autofuse.targets.cuda.ctypes_text import register_type


class Branch:
    """Writes what stands around the statements of one side."""

    def __init__(self, code: PhaseCode, side: RareSide, copies: Copies) -> None:
        self._code, self._side, self._count = code, side, copies.count
        self._chosen: list[tuple[str, ...]] = []

    def head(self) -> str:
        """What the choices are where no copy of the thread takes the side, and the branch."""
        code, side = self._code, self._side
        for select, other in zip(side.selects, side.others(), strict=True):
            names = tuple(code.names.fresh(f"s{select.result}_{copy}") for copy in range(self._count))
            for copy, name in enumerate(names):
                code.out.line(f"{register_type(select.dtype)} {name} = {unwrapped(code.value(other, copy))};")
            self._chosen.append(names)
        asked = dict.fromkeys(code.value(side.condition, copy) for copy in range(self._count))
        taken = " || ".join(asked) if side.where else f"!({' && '.join(asked)})"
        return f"if ({unwrapped(taken)})"

    def hand_out(self) -> None:
        """Inside the branch, behind its statements: the choices for those behind it."""
        for select, names in zip(self._side.selects, self._chosen, strict=True):
            for copy, name in enumerate(names):
                self._code.out.line(f"{name} = {unwrapped(self._code.value(select.result, copy))};")

    def behind(self) -> None:
        """Behind the branch: the choices have other names."""
        for select, names in zip(self._side.selects, self._chosen, strict=True):
            self._code.types[select.result] = select.dtype
            self._code.values[select.result] = names
