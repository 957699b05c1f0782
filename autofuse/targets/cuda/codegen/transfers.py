"""Loads and stores of a stage as C: each by packs where that can be, and item by item at the edges.

Before, one access that was masked, shifted or odd made all of a kernel scalar. Here each decides for itself:

    pack      v = load_pack<4>(x + i)                          what starts at a multiple of a pack
    shifted   v = load_shifted<4>(x + i, i % 4)                out of the two packs that hold it
    narrow    v = load_pack<2>(x + i), load_pack<2>(x + i + 2)
    items     v0 = x[3 * i], v1 = x[3 * (i + 1)], ...

A condition that holds for a whole pack takes the fast way: `if (mask && in one row) pack else items`.
"""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.ir.index import Affine
from autofuse.lazydataclass import dataclass
from autofuse.lower.rewrite import operands
from autofuse.lower.statements import Load, Scalar, Statement, Store
from autofuse.targets.cuda.codegen.copies import Copies, Form, form_of
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place, unwrapped
from autofuse.targets.cuda.ctypes_text import literal, register_type


@dataclass(frozen=True, slots=True)
class _Condition:
    """What a pack can be read at once under."""

    mask: Scalar | None
    row: bool
    """Its points lie in one row."""
    limited: Load | None
    """The load that asks whether it is far enough from the end of the array."""


class Transfers:
    """Writes the loads and stores of one iteration (of several neighbouring ones)."""

    def __init__(self, code: PhaseCode, copies: Copies) -> None:
        self.code, self.copies = code, copies

    # ---- loads ---------------------------------------------------------------------------------------------------

    def load(self, loads: Sequence[Load]) -> None:
        """Loads that need nothing of one another; those under one condition together."""
        alike: dict[_Condition, list[tuple[Load, Form]]] = {}
        for load in loads:
            place = self.code.places[load.buffer]
            self.code.types[load.result] = load.dtype
            form = form_of(load.offset, place, self.copies, stores=False)
            if form.kind == "items":
                self._load_items(load, place)
                continue
            # the two packs of a shifted one lie in the array if packs fill that; else it has to be asked
            limited = form.kind == "shifted" and place.size % self.copies.width > 0
            alike.setdefault(_Condition(load.mask, form.row, load if limited else None), []).append((load, form))
        for condition, chosen in alike.items():
            for load, _ in chosen:
                self.code.values[load.result] = tuple(f"v{load.result}_{n}" for n in range(self.copies.count))
            for start in self.copies.starts:
                self._load_pack(chosen, start, condition)

    def _masks(self, mask: Scalar | None, start: int) -> list[str]:
        """C values of a mask in a pack, each once."""
        if mask is None:
            return []
        return list(dict.fromkeys(self.code.value(mask, start + n) for n in range(self.copies.width)))

    def _places(self, row: bool, start: int) -> list[str]:
        """C conditions that a pack is one in memory."""
        pack = self.copies.pack(start)
        return [text for text in (pack.row if row else pack.full,) if text]

    def _load_pack(self, chosen: Sequence[tuple[Load, Form]], start: int, condition: _Condition) -> None:
        code, out, masks = self.code, self.code.out, self._masks(condition.mask, start)
        conditions = self._places(condition.row, start)
        if condition.limited is not None:
            most = code.places[condition.limited.buffer].size - 2 * self.copies.width
            conditions.append(f"{self._affine(condition.limited.offset, start)} <= {most}")
        filled = not conditions and len(masks) == 1
        conditions += masks
        if not conditions:
            for load, form in chosen:
                self._read_pack(load, form, start, f"const {register_type(load.dtype)} ")
            return
        for load, _ in chosen:
            out.line(f"{register_type(load.dtype)} {', '.join(self._names(load, start))};")
        with out.braces(f"if ({' && '.join(conditions)})"):
            for load, form in chosen:
                self._read_pack(load, form, start, "")
        with out.braces("else"):
            for load, _ in chosen:
                for copy, name in enumerate(self._names(load, start), start):
                    text = self._fill(load, copy) if filled else self._item(load, code.places[load.buffer], copy)
                    out.line(f"{name} = {unwrapped(text)};")

    def _names(self, load: Load, start: int) -> tuple[str, ...]:
        return self.code.values[load.result][start : start + self.copies.width]

    def _read_pack(self, load: Load, form: Form, start: int, kind: str) -> None:
        """Define or set the values of a pack, read at once."""
        code, place, width = self.code, self.code.places[load.buffer], self.copies.width
        for first in range(0, width, form.step):
            copy = start + first
            pack = f"p{load.result}" if self.copies.count == form.step else f"p{load.result}_{copy}"
            offset = unwrapped(self._affine(load.offset, copy))
            head = f"const {code.prelude.use('Pack')}<{place.element}, {form.step}> {pack}"
            if form.kind == "shifted":
                call = f"{code.prelude.use('load_shifted')}<{width}>({place.name}, {offset})"
            else:
                call = f"{code.prelude.use('load_pack')}<{form.step}>({place.name} + {offset})"
            code.out.line(f"{head} = {call};")
            for number, name in enumerate(self._names(load, start)[first : first + form.step]):
                code.out.line(f"{kind}{name} = {unwrapped(place.read(code.prelude, f'{pack}.at[{number}]'))};")

    def _load_items(self, load: Load, place: Place) -> None:
        """One by one: for all copies, for each pack, or for each of them."""
        count = self.copies.count
        level = 2 if place.kind == "owned" and count > 1 else self.level(load, (load.offset,))
        texts = {copy: self._item(load, place, copy) for copy in self.leaders(level)}
        self.code.bind(load.result, load.dtype, texts, count)

    def _item(self, load: Load, place: Place, copy: int) -> str:
        text = place.read(self.code.prelude, self._element(load.offset, place, copy))
        if load.mask is None:
            return text
        return f"({self.code.value(load.mask, copy)} ? {text} : {self._fill(load, copy)})"

    def _fill(self, load: Load, copy: int) -> str:
        return literal(0, load.dtype) if load.fill is None else self.code.value(load.fill, copy)

    # ---- stores --------------------------------------------------------------------------------------------------

    def store(self, store: Store) -> None:
        """One store."""
        place = self.code.places[store.buffer]
        form = form_of(store.offset, place, self.copies, stores=True)
        if form.kind == "items":
            level = 2 if place.kind == "owned" else self.level(store, (store.offset,))
            for copy in self.leaders(level):
                self._store_item(store, place, copy)
            return
        for start in self.copies.starts:
            self._store_pack(store, form, place, start)

    def _store_pack(self, store: Store, form: Form, place: Place, start: int) -> None:
        out, pack, masks = self.code.out, self.copies.pack(start), self._masks(store.mask, start)
        places = self._places(form.row, start)
        conditions = [text for text in (self.copies.leader, pack.inside) if text] + places + masks
        if not conditions:
            self._write_pack(store, form, place, start)
            return
        with out.braces(f"if ({' && '.join(conditions)})"):
            self._write_pack(store, form, place, start)
        if places or len(masks) > 1:
            with out.braces("else"):
                for copy in range(start, start + self.copies.width):
                    self._store_item(store, place, copy)

    def _write_pack(self, store: Store, form: Form, place: Place, start: int) -> None:
        code = self.code
        for first in range(start, start + self.copies.width, form.step):
            pack = code.names.fresh("pack")
            code.out.line(f"{code.prelude.use('Pack')}<{place.element}, {form.step}> {pack};")
            for number in range(form.step):
                text = place.written(code.prelude, code.value(store.value, first + number))
                code.out.line(f"{pack}.at[{number}] = {text};")
            address = f"{place.name} + {unwrapped(self._affine(store.offset, first))}"
            code.out.line(f"{code.prelude.use('store_pack')}({address}, {pack});")

    def _store_item(self, store: Store, place: Place, copy: int) -> None:
        code, copies, pack = self.code, self.copies, self.copies.pack(copy)
        value = place.written(code.prelude, code.value(store.value, copy))
        text = f"{self._element(store.offset, place, copy)} = {value};"
        conditions: list[str] = []
        if not place.in_registers:
            each = pack.each[copy % copies.width] if pack.each else ""
            conditions = [text for text in (copies.leader, pack.inside, each) if text]
        if store.mask is not None:
            conditions.append(code.value(store.mask, copy))
        code.out.line(f"if ({' && '.join(conditions)}) {text}" if conditions else text)

    # ---- both ----------------------------------------------------------------------------------------------------

    def level(self, statement: Statement, affines: Sequence[Affine]) -> int:
        """Who shares the value of a statement: all copies (0), those of a pack (1), none (2)."""
        copies = self.copies
        return max(
            (*map(copies.level, affines), *(self.code.level(number, copies.starts) for number in operands(statement))),
            default=0,
        )

    def leaders(self, level: int) -> Sequence[int]:
        """The copies that a statement is written for."""
        return (0,) if level == 0 else self.copies.starts if level == 1 else range(self.copies.count)

    def _affine(self, value: Affine, copy: int) -> str:
        return self.code.at(value, self.copies, copy)

    def _element(self, offset: Affine, place: Place, copy: int) -> str:
        copies = self.copies
        chunk = copies.chunk if copies.count == 1 else f"{copies.chunk} * {copies.count} + {copy}"
        return place.at(self._affine(offset, copy), chunk)
