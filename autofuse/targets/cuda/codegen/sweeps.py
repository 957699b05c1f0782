"""A sweep by one block: scores, maxima, sums and the second product stay in registers while the axis passes by.

    the left operand and the first tile of the right one come in
    for each tile of the axis:    wait; meet
                                  the tile's values come in, while
                                      scores = left x right; the maximum; weights; sums
                                  wait; meet
                                  the next tile of the right operand comes in, while
                                      out = out * rescaling + weights x values

    what a row has one of; out of the registers

Of tiles that are hidden from all rows of the block (`hiddentiles`) only the values come in.

How sums follow a maximum, `rescaling` says. Where a result is infinite, a value may be so whose weight is zero beside
the maximum of the whole row, which makes NaN. Then the block walks once more, and maxima are known from the beginning.
A block with a part of the axis first walks all of it for them, without values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property

from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import replace
from autofuse.lower.statements import Load, Store
from autofuse.lower.tile import Buffer, Dot, Matrix, Phase, Stage
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.blockreductions import ThreadReductions
from autofuse.targets.cuda.codegen.fragments import FragmentWriter, touches_memory
from autofuse.targets.cuda.codegen.fusedproducts import FusedProduct
from autofuse.targets.cuda.codegen.hiddentiles import hidden_tiles, special_words, text_of
from autofuse.targets.cuda.codegen.operandtiles import OperandTile
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place, SharedArena, unwrapped
from autofuse.targets.cuda.codegen.products import Fragment, Product
from autofuse.targets.cuda.codegen.producttiles import CHUNK_BYTES, compute_dtype
from autofuse.targets.cuda.codegen.sweepparts import PartWalk, without_results
from autofuse.targets.cuda.codegen.sweepresults import scaled_weights, scaling_of, written_matrix
from autofuse.targets.cuda.codegen.sweeprows import SweptRows
from autofuse.targets.cuda.codegen.sweepshapes import SweepShape, swept_steps
from autofuse.targets.cuda.codegen.sweeptiles import SweepTiles
from autofuse.targets.cuda.codegen.sweepweights import pack, publish
from autofuse.targets.cuda.codegen.tensorproducts import TensorProduct
from autofuse.targets.cuda.ctypes_text import literal, register_type


class SweepWriter:
    """Writes the steps of one sweep."""

    def __init__(
        self,
        code: PhaseCode,
        phase: Phase,
        shape: SweepShape,
        buffers: Mapping[str, Buffer],
        arena: SharedArena,
        threads: int,
        rows: str,
        steps: dict[Symbol, int],
    ) -> None:
        """`threads`: of the block. `rows`: C, those that the block has. `steps`: of what symbols are multiples."""
        sweep, block = phase.sweep, phase.row_block
        assert sweep is not None
        assert block is not None
        self.code, self.shape, self.threads, self.tile = code, shape, threads, sweep.tile
        self._part = PartWalk.of(code, phase)
        (self._result,) = swept_steps(phase)[-1].stages
        scores, group, product, result = swept_steps(phase) if self._part is None else self._part.steps
        self.extent = scores.columns
        self._stages, (self._whole_result,) = group.stages, result.stages
        self._buffers = buffers
        self._block = block
        self._out = written_matrix(self._result, block)
        self._fragments = FragmentWriter(code, block.symbol, block.local, rows, shape.scores.rows)
        names = code.names
        self._names = {
            what: names.fresh(what)
            for what in ("scores", "weights", "out", "part", "packed", "tile_start", "all", "counts", "known")
        }
        self._set_operands(arena.arch, scores, product, rows, steps)
        weights = product.lhs.buffer
        self._scaling = scaled_weights(self._whole_result, self._stages, sweep, weights, buffers[weights].type.dtype)
        self._hidden = hidden_tiles(phase, group)
        lanes = ThreadReductions(code, arena)
        self._rows = SweptRows(code, sweep, self._stages, buffers, lanes, self._first.fragment())
        self._tiles = SweepTiles(code, shape, self._left, self._right, self._values)

    def _set_operands(self, arch: str, scores: Dot, product: Dot, rows: str, steps: dict[Symbol, int]) -> None:
        code, shape = self.code, self.shape

        def operand(dot: Dot, is_left: bool, name: str = "") -> OperandTile:
            kind = shape.scores if dot is scores else shape.product
            return OperandTile(code, arch, dot, kind, is_left, self.threads, rows, steps, name=name)

        self._left, self._right = operand(scores, True), operand(scores, False)
        self._values = operand(product, False, "values")
        matrix = Matrix(product.lhs.buffer, Affine(), self.tile, 1)
        if not self._left.layout.along_depth:
            matrix = Matrix(product.lhs.buffer, Affine(), 1, shape.product.rows)
        tiled = replace(product, lhs=matrix, depth=self.tile)
        of_tile = operand(tiled, True), operand(tiled, False, "values")
        self._first: Product
        self._second: Product
        if shape.units == "matrix":
            self._first = TensorProduct(self._left, self._right, self._names["scores"], shape.interleaved)
            self._second = TensorProduct(*of_tile, self._names["out"], packed=self._names["packed"])
            self._final = replace(self._second, left=replace(of_tile[0], dot=self._stored(tiled)))
        else:
            self._first = FusedProduct(self._left, self._right, self._names["scores"], reordered=True)
            self._right = replace(self._right, order=self._first.sides[1].order)
            self._second = FusedProduct(*of_tile, self._names["part"])
            self._final = FusedProduct(replace(of_tile[0], dot=self._stored(tiled)), of_tile[1], self._names["out"])

    def _stored(self, product: Dot) -> Dot:
        """The second product as it leaves the registers."""
        return replace(product, out=self._out, dtype=self._buffers[self._out.buffer].type.dtype)

    # ---- the whole -----------------------------------------------------------------------------------------------

    def write(self, offset: int) -> None:
        """The code. `offset`: of the tiles in shared memory."""
        out, shape = self.code.out, self.shape
        out.line(f"unsigned char* const tiles = shared_memory + {offset};")
        self._tiles.declare()
        self._first.stand()
        if isinstance(self._second, TensorProduct):
            self._second.declare_places()
        fragment = self._first.fragment()
        out.line(f"const int rank = {'lane % 4' if shape.units == 'matrix' else 'across'};")
        self._rows.declare()
        self._final.declare_sums()
        out.line("fill_left();")
        self._walk_until_known(fragment)
        self._finish()

    def _walk_until_known(self, fragment: Fragment) -> None:
        """Once, and again if hidden tiles count, or where maxima have to be known."""
        out, part, known = self.code.out, self._part, self._names["known"]
        if self._hidden is not None and self._hidden.counts:
            out.line(f"bool {self._names['all']} = false;")
        out.line(f"bool {known} = false;")
        if part is not None:
            part.declare()
        with out.braces("for (;;)"):
            self._walk_axis(fragment)
            self._ask_for_all()
            if part is not None:
                self._end_look(part)
            out.line("bool special = false;")
            self._end_rows()
            out.line(f"if ({known} || !__syncthreads_or(special)) break;")
            if part is None:
                out.line(f"{known} = true;")
            else:
                part.take_all(self.extent)
        if part is not None:
            stage, places = part.stored(known)
            with self._workers():
                self._write_rows(stage, places)

    def _end_look(self, part: PartWalk) -> None:
        """The whole axis was looked at: what rows have one of is known, and the part is walked."""
        out = self.code.out
        with out.braces(f"if ({part.looks})"):
            with self._workers():
                self._rows.end(is_part=False)
                for stage in self._stages[2:]:
                    self._write_rows(without_results(stage, self._buffers))
            out.line(f"{part.looks} = false; {self._names['known']} = true;")
            part.take_part()
            out.line("continue;")

    def _walk_axis(self, fragment: Fragment) -> None:
        """All tiles, or those that are not hidden."""
        out, part = self.code.out, self._part
        start = self._names["tile_start"]
        begin, end = ("0", str(self.extent)) if part is None else (part.begin, part.end)
        multiplies = "" if part is None else f"if (!{part.looks}) "
        self._rows.clear(self._names["known"])
        self._final.clear()
        out.line(f"{self._if_seen(begin)}fill_right({begin});")
        self._tiles.commit()
        with out.braces(f"for (int {start} = {begin}; {start} < {end}; {start} += {self.tile})"):
            self._tiles.meet()
            out.line(f"{multiplies}fill_values({start});")
            self._tiles.commit()
            self._declare_tile(fragment)
            with out.braces(self._if_seen(start).rstrip()), self._workers():
                self._weigh(start)
            self._tiles.meet()
            after = f"{start} + {self.tile}"
            out.line(f"if ({after} < {end}) {{ {self._if_seen(f'({after})')}fill_right({after}); }}")
            self._tiles.commit()
            if part is not None:
                out.line(f"if ({part.looks}) continue;")
            if self._hidden is not None:
                self._pass_over(start, fragment)
            with self._workers():
                self._multiply()

    # ---- hidden tiles --------------------------------------------------------------------------------------------

    def _seen(self, start: str) -> str:
        """C: whether some row of the block sees something of the tile at `start`."""
        assert self._hidden is not None
        (walk,) = self._stages[0].symbols
        symbols = {walk: start, self._block.symbol: "first"}
        text = text_of(self._hidden.where, lambda value: unwrapped(self.code.affine(value, symbols=symbols)))
        return f"{self._names['all']} || !({text})" if self._hidden.counts else f"!({text})"

    def _ask_for_all(self) -> None:
        """Walk again with hidden tiles, if a row's maximum is not far above what stands for hidden scores."""
        if self._hidden is None or not self._hidden.counts:
            return
        out, whole, counts = self.code.out, self._names["all"], self._names["counts"]
        out.line(f"bool {counts} = false;")
        with self._workers(), self._fragments.each_row(self._rows.fragment, guarded=True):
            out.line(f"{counts} |= !({self._rows.is_far_above(self._hidden.fill)});")
        with out.braces(f"if (!{whole} && __syncthreads_or({counts}))"):
            out.line(f"{whole} = true;")
            out.line("continue;")

    def _if_seen(self, start: str) -> str:
        return "" if self._hidden is None else f"if ({self._seen(start)}) "

    def _pass_over(self, start: str, fragment: Fragment) -> None:
        """Of a hidden tile nothing is multiplied, unless zero times a value is not zero."""
        out, prelude, shape = self.code.out, self.code.prelude, self.shape
        with out.braces(f"if (!({self._seen(start)}))"):
            out.line("bool special = false;")
            chunks = shape.values_bytes // CHUNK_BYTES
            with out.braces(f"for (int each = threadIdx.x; each < {chunks}; each += {self.threads})"):
                place = f"tiles + {self._tiles.values_offset} + each * {CHUNK_BYTES}"
                load = f"{prelude.use('load_pack')}<4>(reinterpret_cast<const unsigned int*>({place}))"
                out.line(f"const {prelude.use('Pack')}<unsigned int, 4> several = {load};")
                tests = special_words("several.at[{}]", shape.product.element)
                out.line(f"special |= {' || '.join(tests)};")
            out.line("if (!__syncthreads_or(special)) continue;")
            with self._workers():
                self._rows.stay()
                self._each_element(fragment, f"{fragment.element.format(self._names['weights'])} = 0;")
                self._hand_on(fragment)
            out.line("__syncthreads();")

    def _workers(self) -> AbstractContextManager[None]:
        """Braces for the threads that multiply; a block may have more."""
        more = self.threads > self.shape.workers
        return self.code.out.braces(f"if (threadIdx.x < {self.shape.workers})" if more else "")

    # ---- what is kept in registers -------------------------------------------------------------------------------

    def _declare_tile(self, fragment: Fragment) -> None:
        """Arrays of what a thread has of a tile."""
        code, out = self.code, self.code.out
        self._first.declare_sums()
        self._walked = {self._left.dot.out.buffer: self._single(fragment, self._left.dot.out.buffer, "scores")}
        for name, stage in zip(("argument", "weights"), self._stages, strict=False):
            for store in stage.body:
                if isinstance(store, Store) and store.buffer not in self._walked:
                    self._names.setdefault(name, code.names.fresh(name))
                    dtype = self._buffers[store.buffer].type.dtype
                    out.line(f"{register_type(dtype)} {self._names[name]}{fragment.shape};")
                    self._walked[store.buffer] = self._single(fragment, store.buffer, name)
        if self.shape.units == "matrix":
            steps = self.tile // self.shape.product.instruction_depth
            out.line(f"unsigned int {self._names['packed']}[{self.shape.row_fragments}][{steps}][4];")
        else:
            self._second.declare_sums()

    def _single(self, fragment: Fragment, buffer: str, name: str) -> Place:
        return Place(fragment.element.format(self._names[name]), self._buffers[buffer].type.dtype, "single")

    # ---- a tile --------------------------------------------------------------------------------------------------

    def _weigh(self, start: str) -> None:
        """Scores, the maximum, weights and their sums."""
        code, out, shape = self.code, self.code.out, self.shape
        fragment = self._first.fragment()
        out.line("const unsigned char* const left = tiles;")
        out.line(f"const unsigned char* const right = tiles + {shape.left_bytes};")
        self._first.clear()
        self._first.multiply()
        self._rows.keep()
        scores, dot = fragment.element.format(self._names["scores"]), self._left.dot
        rounded = scalars.convert(code.prelude, scores, compute_dtype(dot), dot.dtype)
        rounding = [] if rounded == scores else [f"{scores} = {rounded};"]
        self._walk(self._stages[0], fragment, start, rounding)
        self._rows.rescale()
        self._walk(self._stages[1], fragment, start, [f"{fragment.element.format(self._names['weights'])} = 0;"])
        if self._factors:
            with out.braces(f"if ({self._names['known']})"):
                self._walk(self._scaling, fragment, start, [])
        self._hand_on(fragment)

    def _walk(self, stage: Stage, fragment: Fragment, start: str, clear: list[str]) -> None:
        (walk,) = stage.symbols
        has_less = self.extent % self.tile > 0
        with self._fragments.each(fragment, walk, start, least=has_less, clear=clear):
            self._fragments.statements(stage, self._rows.totals, self._rows.places | self._walked)

    def _hand_on(self, fragment: Fragment) -> None:
        """Weights to where the second product takes them from."""
        weights, second = self._names["weights"], self._second
        if isinstance(second, FusedProduct):
            self.code.out.line(f"unsigned char* const left_tile = tiles + {self._tiles.weights_offset};")
            publish(self.code, self.shape, fragment, weights, second)
        else:
            pack(self.code, self.shape, weights, self._names["packed"])

    def _multiply(self) -> None:
        """Add the weights' products with the tile's values to what there is, rescaled."""
        out, shape, prelude = self.code.out, self.shape, self.code.prelude
        fragment = self._second.fragment()
        dtype = compute_dtype(self._second.left.dot)
        total, scale = fragment.element.format(self._names["out"]), self._rows.scale
        right = f"const unsigned char* const right = tiles + {self._tiles.values_offset};"
        if shape.units == "matrix":
            self._each_element(fragment, f"{total} *= {scale};")
            out.line(right)
            self._second.multiply()
            return
        out.line(f"const unsigned char* const left = tiles + {self._tiles.weights_offset};")
        out.line(right)
        self._second.clear()
        self._second.multiply()
        part = fragment.element.format(self._names["part"])
        fused = scalars.map_expression(prelude, "fma", (total, scale, part), (dtype,) * 3, dtype)
        self._each_element(fragment, f"{total} = {fused};")

    def _each_element(self, fragment: Fragment, line: str) -> None:
        out = self.code.out
        out.line("#pragma unroll")
        with out.braces(f"for (int m = 0; m < {fragment.rows}; ++m)"):
            out.line("#pragma unroll")
            out.line(f"for (int n = 0; n < {fragment.columns}; ++n) {line}")

    # ---- the end -------------------------------------------------------------------------------------------------

    @cached_property
    def _factors(self) -> list[str]:
        """C: what weights are scaled by where maxima are known, and not the product.

        So they are as small as the program's, and as large.
        """
        _, scaling, _ = scaling_of(self._whole_result)
        places = [self._rows.places[s.buffer] for s in scaling if isinstance(s, Load)]
        return [place.name for place in places if place.dtype.kind != "bool"]

    def _end_rows(self) -> None:
        """The sums of rows, and what is made of them; whether some result is `special`: infinite."""
        prelude, result = self.code.prelude, self._second.fragment()
        dtype, is_part = compute_dtype(self._second.left.dot), self._part is not None
        total = result.element.format(self._names["out"])
        with self._workers():
            self._rows.end(is_part=is_part)
            if not is_part:
                self._each_element(result, f"if ({self._rows.is_lost()}) {total} = {literal(math.nan, dtype)};")
                for stage in self._stages[2:]:
                    self._write_rows(stage)
            size = scalars.map_expression(prelude, "abs", (total,), (dtype,), dtype)
            self._each_element(result, f"special |= {size} == {literal(math.inf, dtype)};")

    def _write_rows(self, stage: Stage, places: Mapping[str, Place] | None = None) -> None:
        """A stage of what rows have one of. `places`: beside those of rows."""
        known = {**self._rows.places, **(places or {})}
        with self._fragments.each_row(self._rows.fragment, guarded=touches_memory(stage, known)):
            self._fragments.statements(stage, {}, known)

    def _finish(self) -> None:
        """What is made of the second product, where it belongs."""
        code, out = self.code, self.code.out
        result = self._second.fragment()
        dtype = compute_dtype(self._second.left.dot)
        total = result.element.format(self._names["out"])
        with self._workers():
            if self._factors and self._part is None:
                with out.braces(f"if ({self._names['known']})"), self._fragments.each_row(result, guarded=False):
                    out.line(" ".join(f"{factor} = 1;" for factor in self._factors))
            (load,) = (s for s in self._result.body if isinstance(s, Load) and s.buffer not in self._rows.places)
            places = {load.buffer: Place(total, dtype, "single")}
            places[self._out.buffer] = Place(total, self._buffers[self._out.buffer].type.dtype, "single")
            with self._fragments.each(result, self._result.symbols[0], "0", least=False):
                self._fragments.statements(self._result, {}, self._rows.places | places)
        code.symbols[self._block.symbol], code.symbols[self._block.local] = "first", "0"
        out.line("__syncthreads();")
        with out.braces(""):
            out.line("const int top = 0, edge = 0;")
            self._final.store()
