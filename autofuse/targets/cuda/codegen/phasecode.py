"""What all stages of one phase share while their code is written: names, places, values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autofuse.ir import index
from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.statements import Scalar
from autofuse.targets.cuda.codegen.copies import Copies
from autofuse.targets.cuda.codegen.ctext import IndexText, Names, Writer
from autofuse.targets.cuda.codegen.places import Place, unwrapped
from autofuse.targets.cuda.ctypes_text import register_type
from autofuse.targets.cuda.prelude import Prelude


@dataclass(slots=True)
class PhaseCode:
    """What all stages of one phase share while their code is written."""

    out: Writer
    prelude: Prelude
    index: IndexText
    names: Names
    places: dict[str, Place]
    symbols: dict[Symbol, str] = field(default_factory=dict[Symbol, str])
    """C names of the symbols in scope."""
    values: dict[Scalar, tuple[str, ...]] = field(default_factory=dict[Scalar, tuple[str, ...]])
    """C names of each scalar: one per copy (those of a pack may be one), one per grid point of several iterations, or a
    single one that serves all copies."""
    sides: str = "always"
    """When costly sides of choices are computed: `SIDES` of the schedule."""
    types: dict[Scalar, DType] = field(default_factory=dict[Scalar, DType])
    _loops: dict[Symbol, str] = field(default_factory=dict[Symbol, str])

    def loop_name(self, symbol: Symbol) -> str:
        """The C name of a symbol, the same in every loop over it; it comes into scope."""
        if symbol not in self._loops:
            self._loops[symbol] = self.names.fresh(symbol.name)
        self.symbols[symbol] = self._loops[symbol]
        return self._loops[symbol]

    def affine(self, value: Affine, copy: int = 0, symbols: Mapping[Symbol, str] | None = None) -> str:
        """An index expression, as read by `copy`; `symbols`: C names beside those in scope."""
        names = {**self.symbols, **symbols} if symbols else self.symbols
        return self.index.write(value, names, lambda number: self.value(number, copy))

    def at(self, value: Affine, copies: Copies, copy: int) -> str:
        """An index expression at the place of `copy`."""
        symbols, further = copies.at(copy)
        if further and copies.lane is not None:
            value = index.renamed(value, {copies.lane: index.of(copies.lane) + further})
        return self.affine(value, copy, symbols)

    def value(self, number: Scalar, copy: int = 0) -> str:
        names = self.values[number]
        return names[copy % len(names)]

    def level(self, number: Scalar, starts: range) -> int:
        """Who shares a scalar, where packs start at `starts`: all copies (0), those of a pack (1), none (2)."""
        names = self.values[number]
        if len(names) == 1:
            return 0
        packs = (set(names[start : start + starts.step]) for start in starts)
        return 1 if starts.step > 1 and all(len(pack) == 1 for pack in packs) else 2

    def bind(self, result: Scalar, dtype: DType, texts: Mapping[int, str], count: int) -> None:
        """Define a scalar by the text of some of `count` copies; those behind one share it."""
        names = {copy: f"v{result}" if len(texts) == 1 else f"v{result}_{copy}" for copy in texts}
        for copy, text in texts.items():
            self.out.line(f"const {register_type(dtype)} {names[copy]} = {unwrapped(text)};")
        self.types[result] = dtype
        self.values[result] = tuple(names.values()) if len(names) == 1 else tuple(_spread(names, count))


def _spread(names: Mapping[int, str], count: int) -> Iterable[str]:
    """For each copy, the name of the last one at or before it that has one."""
    name = ""
    for copy in range(count):
        name = names.get(copy, name)
        yield name
