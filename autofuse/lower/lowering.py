"""Lowering: a kernel candidate and a schedule to a TileProgram."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from autofuse.errors import LegalityError
from autofuse.fusion.candidate import KernelCandidate, is_permuted, part_of
from autofuse.fusion.dimensions import AxisFactor, Dimensions, Use
from autofuse.fusion.domain import Domain, body_domain, choose_domain, is_contraction, is_opaque, loop_grid
from autofuse.fusion.memorystate import in_memory
from autofuse.fusion.nodeaxes import is_loop
from autofuse.fusion.regionprograms import why_opaque
from autofuse.ir import index
from autofuse.ir.graph import Node, Value
from autofuse.ir.index import Symbol
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import replace
from autofuse.lower.columntiles import Columns, cut_columns, find_columns, tile_width
from autofuse.lower.contraction import ContractionBuilder, Pack
from autofuse.lower.demand import PhaseBuilder
from autofuse.lower.finish import finish_phase
from autofuse.lower.limits import Limits
from autofuse.lower.opaquekernels import opaque_program
from autofuse.lower.overlapped import TileShape, kept_values, tiled_phase
from autofuse.lower.overwriting import Overwriting, overwritings, stored_where_new, without_updates
from autofuse.lower.phasedrafts import BufferTable, Instance, PhaseDraft
from autofuse.lower.rewrite import statements
from autofuse.lower.rowchoice import longest_rows_last
from autofuse.lower.rowloops import IterationBuilder, one_after_other
from autofuse.lower.rowparts import RowLoop, row_loop
from autofuse.lower.schedule import ITERATIONS, PANEL_ROWS, PRODUCTS, SPLIT, TILE_BYTES, Schedule
from autofuse.lower.sharedinstances import shared_instances
from autofuse.lower.singleloop import Target, single_loop
from autofuse.lower.split import split_reductions
from autofuse.lower.statements import Store
from autofuse.lower.tile import Buffer, OpaqueProgram, Phase, Space, TileProgram

_BLOCK_ROWS = 256
"""Most rows of a row block whose products' results stay in scratch whole."""
_TILED_BLOCK_ROWS = 512
"""Most rows where columns are cut into tiles: the right operand is packed once per row block."""
_VECTOR_BLOCK_ROWS = 64
"""Most rows where a matrix is multiplied by a vector: nothing is packed, and a launch is cut where row blocks are."""
_LEAST_BLOCK_ROWS = 32
"""Row blocks of fewer rows would read the right operands of their products too often."""
_MANY_PARTS = 16
"""Operands from which on a concatenation becomes one loop for each."""


def plain_scalars(candidate: KernelCandidate) -> int:
    """At most how many scalar values a kernel has that computes nothing twice."""
    return 4 * sum(1 + len(node.inputs) for node in candidate.nodes)


def lower(
    candidate: KernelCandidate,
    schedule: Schedule,
    name: str,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    domain: Domain | None = None,
) -> TileProgram | OpaqueProgram:
    """Lower a kernel. Raises LegalityError, with the reason, for what cannot be one kernel.

    `domain`: what `choose_domain` says of the candidate, where that is known.
    """
    if not candidate.outputs:
        raise LegalityError(f"kernel {name} writes nothing")
    program = _changing_blocks(candidate, schedule, name, limits) if limits.overwrites else None
    if program is None:
        program = _whole(candidate, schedule, name, limits, domain)
    if isinstance(program, OpaqueProgram):
        return program
    return limits.passes(split_reductions(program, schedule[SPLIT], limits.splitting))


def _changing_blocks(candidate: KernelCandidate, schedule: Schedule, name: str, limits: Limits) -> TileProgram | None:
    """A kernel that stores what it changes of its outputs; None where it changes no block, or is no such kernel."""
    found = overwritings(candidate)
    if not found:
        return None
    inside = without_updates(candidate, found)
    reduces = any(map(_reduces, inside.nodes))
    made = {value for node in inside.nodes for value in node.outputs}
    if reduces and not made.issuperset(inside.outputs):
        return None  # loops are chosen for what the kernel computes
    try:
        domain = choose_domain(inside) if reduces else _NO_LOOPS
        if domain is None:
            return None
        program = _Lowering(inside, domain, schedule, name, limits, found, candidate).run()
    except LegalityError:
        return None
    names = dict(
        zip((*candidate.inputs, *candidate.outputs), (buffer.name for buffer in program.buffers), strict=False)
    )
    return stored_where_new(program, {names[block.output]: names[block.source] for block in found})


def _whole(
    candidate: KernelCandidate, schedule: Schedule, name: str, limits: Limits, domain: Domain | None = None
) -> TileProgram | OpaqueProgram:
    domain = domain or choose_domain(candidate)
    if domain is None:
        return _outside(candidate, schedule, name, limits, why_opaque(candidate))
    try:
        return _lowered(candidate, domain, schedule, name, limits)
    except LegalityError as refused:
        if [node for node in candidate.nodes if role_of(node).computes] != [*filter(is_loop, candidate.nodes)][:1]:
            raise
        return _outside(candidate, schedule, name, limits, str(refused))  # a loop alone can be run step by step


def _outside(
    candidate: KernelCandidate, schedule: Schedule, name: str, limits: Limits, reason: str
) -> TileProgram | OpaqueProgram:
    """What no stage computes. `reason`: why."""
    if schedule[ITERATIONS] != "rows":
        return opaque_program(candidate, name, reason, limits)
    loop = row_loop(candidate)
    domain = body_domain(loop.body)
    if domain is None:
        raise LegalityError("its body has a call, in which nothing can be computed")
    program = _Lowering(loop.body, domain, schedule, name, limits, kernel=candidate, loop=loop).run()
    kept = sum(buffer.type.nbytes for buffer in program.buffers if buffer.space is Space.SCRATCH)
    if kept > limits.scratch_bytes and not limits.cuts_rows:
        raise LegalityError(f"a block of its rows keeps {kept} bytes on chip: more than {limits.scratch_bytes}")
    if loop.shared is None:
        return program
    first = _whole(loop.shared.kernel, Schedule(), name, limits)
    if isinstance(first, OpaqueProgram):
        raise LegalityError(f"what all rows share is no kernel: {first.reason}")
    names = {made.name: result.name for made, result in loop.shared.results.items()}
    return one_after_other(first, program, names)


_NO_LOOPS = Domain(Dimensions((), ()), (), (), ())


def _reduces(node: Node) -> bool:
    """Whether a node asks for loops that suit it."""
    return role_of(node).is_reduction_like or is_loop(node) or is_opaque(node)


def _lowered(candidate: KernelCandidate, domain: Domain, schedule: Schedule, name: str, limits: Limits) -> TileProgram:
    """In tiles, where the schedule says so or there is too much to compute anew otherwise."""
    lowering = _Lowering(candidate, domain, schedule, name, limits)
    kept = kept_values(candidate) if limits.overlaps else ()
    if not kept:
        return lowering.run()
    if not schedule[TILE_BYTES]:
        try:
            return replace(lowering.run(), reads_around=True)
        except LegalityError:
            pass
    return lowering.in_tiles(kept)


class _Lowering:
    def __init__(
        self,
        candidate: KernelCandidate,
        domain: Domain,
        schedule: Schedule,
        name: str,
        limits: Limits,
        blocks: Sequence[Overwriting] = (),
        kernel: KernelCandidate | None = None,
        loop: RowLoop | None = None,
    ) -> None:
        """`blocks`: outputs of the candidate that are stored as blocks of those of `kernel`, which it is a part of.

        `loop`: the loop that `kernel` is, if the candidate is its body.
        """
        self.candidate, self.domain, self.schedule, self.name, self.limits = candidate, domain, schedule, name, limits
        self.blocks, self.kernel, self.loop = blocks, kernel or candidate, loop

    def run(self) -> TileProgram:
        if self.blocks and self.domain is _NO_LOOPS:
            return self._blocks()
        if len(self.domain.groups) > 1 or not self._has_loops() or self._long_joins():
            return self._loops()
        rows = self._guessed_rows()
        buffers, phase, packs, draft = self._build({}, rows)
        domain = longest_rows_last(self.domain, phase, self.limits.least_rows)
        if domain is not self.domain:
            self.domain = domain
            buffers, phase, packs, draft = self._build({}, rows)
        if phase.row_block is not None and self._fitting_rows(phase, buffers) != rows:
            rows = self._fitting_rows(phase, buffers)
            buffers, phase, packs, draft = self._build({}, rows)
        keep = shared_instances(self.candidate.graph, phase, draft, self.schedule)
        if keep:
            kept = self._build(keep, rows)
            if _scratch_bytes(kept[0]) <= self.limits.scratch_bytes:
                buffers, phase, packs, _ = kept
        packing = tuple(self._pack_phase(pack, buffers) for pack in packs)
        phase, memory = self._tiled(phase, {buffer.name: buffer for buffer in buffers.all})
        first = (*packing, *self._begun(buffers))
        launches = (first, (phase,)) if first else ((phase,),)
        return TileProgram(self.name, tuple(memory.values()), launches, self.schedule)

    def in_tiles(self, kept: Sequence[Value]) -> TileProgram:
        """A kernel of tiles that keep some values."""
        buffers, limits = self._buffers(), self.limits
        nbytes = min(self.schedule[TILE_BYTES] or limits.scratch_bytes * 3 // 4, limits.scratch_bytes)
        shape = TileShape(nbytes, limits.workers, limits.scalars)
        phase = tiled_phase(self.candidate, kept, buffers, self.schedule, shape)
        return TileProgram(self.name, tuple(buffers.all), ((phase,),), self.schedule, reads_around=True)

    def _blocks(self) -> TileProgram:
        """A kernel whose one output is a block of computed elements."""
        if len(self.candidate.outputs) != 1:
            raise LegalityError("blocks of several outputs have no loops in common")
        buffers = self._buffers()
        (block,) = self.blocks
        phase = single_loop(self.candidate, block.update, buffers, self.schedule, self.limits.scalars, block)
        return TileProgram(self.name, tuple(buffers.all), ((phase,),), self.schedule)

    def _loops(self) -> TileProgram:
        """A kernel of loops with nothing in common: each is a phase of its own."""
        if self.blocks:
            raise LegalityError("blocks of several outputs have no loops in common")
        if self.loop is not None:
            raise LegalityError("what an iteration makes has no rows in common")
        buffers = self._buffers()
        if self._in_memory():
            raise LegalityError("state in memory is the work of one phase")
        phases = tuple(phase for group in self.domain.groups for phase in self._loop_phases(group, buffers))
        if sum(1 for phase in phases for _ in statements(phase.steps)) > self.limits.scalars:
            raise LegalityError(f"more than {self.limits.scalars} scalar values in one kernel: too much is recomputed")
        return TileProgram(self.name, tuple(buffers.all), (phases,), self.schedule)

    def _long_joins(self) -> list[Value]:
        """Outputs of a loop kernel that are concatenations of many parts: better a loop for each than masks for all."""
        if any(map(_reduces, self.candidate.nodes)):
            return []
        producers = self.candidate.graph.producers
        found = [value for value in self.candidate.outputs if role_of(producers[value]) is Role.JOIN]
        return [value for value in found if len(producers[value].inputs) >= _MANY_PARTS]

    def _has_loops(self) -> bool:
        """Whether the axis factors can be used as loops; a loop kernel can do without them."""
        return not self.domain.dimensions.has_conflict()

    def _buffers(self) -> BufferTable:
        table = BufferTable()
        for value in self.kernel.inputs:
            table.add_value(value, Space.INPUT)
        state = [result for result, _ in self._in_memory()]
        for value in self.kernel.outputs:
            table.add_value(value, Space.OUTPUT, is_state=value in state)
        for value in self._unasked_state():
            table.add_value(value, Space.WORKSPACE, is_state=True)
        if self.loop is not None and self.loop.shared is not None:
            for value in self.loop.shared.tables:
                table.add_value(value, Space.WORKSPACE, same=self.loop.shared.results.get(value))
        return table

    def _in_memory(self) -> list[tuple[Value, Value]]:
        """What loops keep in memory, and what they start from."""
        loops = filter(is_loop, self.candidate.nodes)
        return [(loop.outputs[p.part], loop.inputs[p.part]) for loop in loops for p in in_memory(loop)]

    def _unasked_state(self) -> list[Value]:
        """Results of state in memory that nobody asks for: a queue, what was visited."""
        return [result for result, _ in self._in_memory() if result not in self.kernel.outputs]

    def _begun(self, buffers: BufferTable) -> Iterator[Phase]:
        """What sets state in memory before the loops."""
        for result, first in self._in_memory():
            if not (self.limits.updates and buffers.has(result)):
                raise LegalityError(f"%{result.name} is kept in memory by a loop, and is no output")
            part = part_of(self.candidate, (first,))
            if any(map(_reduces, part.nodes)):
                raise LegalityError(
                    f"%{result.name} is kept in memory by a loop, and starts from what no loop computes"
                )
            yield single_loop(part, first, buffers, self.schedule, self.limits.scalars, Target(result))

    def _build(
        self, keep: Mapping[Instance, tuple[int, tuple[Symbol, ...]]], rows: int
    ) -> tuple[BufferTable, Phase, list[Pack], PhaseDraft]:
        buffers = self._buffers()
        local = Symbol("row", rows) if rows else None
        dims, grid = self.domain.dimensions, self.domain.grid
        if self.loop is None:
            phase = PhaseBuilder(self.candidate, dims, grid, buffers, keep, local, self.blocks)
        else:
            phase = IterationBuilder(self.loop, dims, grid, buffers, keep, local)
        phase.draft.limit = self.limits.scalars
        contraction = ContractionBuilder(phase, self.candidate, self.domain.rows, rows, widens=self.limits.widens)
        products = [node for node in self.candidate.nodes if is_contraction(node)]
        for node in sorted(products, key=lambda node: phase.levels[node.output]):
            contraction.add(node)
        for value in sorted((*self.candidate.outputs, *self._unasked_state()), key=lambda v: phase.levels[v]):
            if value not in contraction.direct:
                phase.store_output(value)
        phase.complete()
        symbols = list(phase.grid_symbols.values())
        enough = (self.schedule[PANEL_ROWS] or _BLOCK_ROWS) if self.limits.joins_rows else 0
        boundaries = phase.row_boundaries
        done = finish_phase(
            phase.draft,
            symbols,
            contraction.rows,
            local,
            self.schedule,
            boundaries,
            enough,
            by_points=self.loop is not None,
        )
        return buffers, phase.around(done), contraction.packs, phase.draft

    def _guessed_rows(self) -> int:
        """Rows of a row block if all row factors turn out to be one loop, as they mostly do; 0 without a row block."""
        if not self.domain.rows:
            return 0
        extents = {factor: self.domain.dimensions.extent(factor) for factor in self.domain.grid}
        rows = math.prod(extents[factor] for factor in self.domain.rows)
        reducing = sum(role_of(node).is_reduction_like for node in self.candidate.nodes)
        outer = math.prod(extents.values()) // max(rows, 1)
        return self._rows_in_scratch(rows, outer, reducing == 1, self._guessed_row_bytes())

    def _guessed_row_bytes(self) -> int:
        """What a row keeps on chip of products: results that are read here, left operands that are computed here."""
        graph, dims, inside = self.candidate.graph, self.domain.dimensions, set(self.candidate.nodes)
        total = 0
        for node in filter(is_contraction, self.candidate.nodes):
            kept: list[Use] = []
            if any(user in inside and not is_permuted(user) for user in graph.users[node.output]):
                kept.append(node.output)
            maker = graph.producers.get(node.inputs[0])
            while maker in inside and role_of(maker).moves:
                maker = graph.producers.get(maker.inputs[0])
            if maker in inside:
                kept.append(dims.use(node, 0))
            sizes = [math.prod(map(dims.extent, dims.factors(use) - set(self.domain.grid))) for use in kept]
            total += sum(sizes) * node.output.type.dtype.itemsize
        return total

    def _fitting_rows(self, phase: Phase, buffers: BufferTable) -> int:
        """Rows of a finished phase's row block, few enough that what they keep on chip fits."""
        assert phase.row_block is not None
        outer = math.prod(symbol.extent for symbol in phase.grid if symbol != phase.row_block.symbol)
        tiled = self._columns(phase, {buffer.name: buffer for buffer in buffers.all}) is not None
        row_bytes = _scratch_bytes(buffers) // phase.row_block.size
        return self._rows_in_scratch(phase.row_block.symbol.extent, outer, tiled, row_bytes)

    def _rows_in_scratch(self, extent: int, outer: int, tiled: bool, row_bytes: int) -> int:
        """Rows of a row block whose columns are cut too, or that fit on chip."""
        rows = self._block_rows(extent, outer, tiled)
        if tiled or row_bytes * rows <= self.limits.scratch_bytes:
            return rows
        most = max(_LEAST_BLOCK_ROWS, self.limits.scratch_bytes // row_bytes)
        return self._block_rows(extent, outer, tiled, most)

    def _block_rows(self, extent: int, outer: int, tiled: bool, most: int = 1 << 30) -> int:
        """At most the schedule's rows, equal row blocks, enough of them for all workers unless columns are cut too."""
        extent = max(extent, 1)
        wanted = 1 if tiled else -(-self.limits.workers // max(outer, 1))
        narrow = _VECTOR_BLOCK_ROWS if self._multiplies_vectors() else _TILED_BLOCK_ROWS
        usual = narrow if tiled else _BLOCK_ROWS
        row_blocks = max(-(-extent // min(self.schedule[PANEL_ROWS] or usual, most)), wanted)
        return max(-(-extent // min(row_blocks, extent)), min(self.limits.least_rows, extent))

    def _multiplies_vectors(self) -> bool:
        """Whether each product reads a matrix once."""
        products = list(filter(is_contraction, self.candidate.nodes))
        sizes = [[value.type.size for value in (node.output, *node.inputs[:2])] for node in products]
        return bool(sizes) and all(made * right == left for made, left, right in sizes)

    def _columns(self, phase: Phase, buffers: Mapping[str, Buffer]) -> Columns | None:
        """How a phase's columns can be cut; None if they should not be."""
        if not self.limits.tile_columns or self.schedule[PRODUCTS] == "library" or self.loop is not None:
            return None
        return find_columns(phase, buffers)

    def _tiled(self, phase: Phase, buffers: Mapping[str, Buffer]) -> tuple[Phase, Mapping[str, Buffer]]:
        """The phase with its columns cut, if that is possible and pays."""
        columns = self._columns(phase, buffers)
        if columns is None:
            return phase, buffers
        assert phase.row_block is not None
        outer = math.prod(symbol.extent for symbol in phase.grid if symbol != phase.row_block.symbol)
        row_blocks = outer * -(-phase.row_block.symbol.extent // phase.row_block.size)
        width = tile_width(columns, row_blocks, phase.row_block.size, self.limits.workers, self.limits.scratch_bytes)
        return (phase, buffers) if width == columns.extent else cut_columns(phase, buffers, columns, width)

    def _loop_phases(self, group: Sequence[Value], buffers: BufferTable) -> Iterator[Phase]:
        joins = self._long_joins()
        rest = tuple(value for value in group if value not in joins)
        if rest:
            yield self._loop_phase(rest, buffers)
        for value in group:
            if value in joins:
                yield from self._parts(value, buffers)

    def _parts(self, value: Value, buffers: BufferTable) -> Iterator[Phase]:
        """A loop for each operand of a concatenation."""
        node = self.candidate.graph.producers[value]
        axis, begin = node.attrs["dimension"], 0
        for operand in node.inputs:
            part = part_of(self.candidate, (operand,))
            yield single_loop(part, operand, buffers, self.schedule, self.limits.scalars, Target(value, axis, begin))
            begin += operand.type.shape[axis]

    def _loop_phase(self, group: Sequence[Value], buffers: BufferTable) -> Phase:
        part = part_of(self.candidate, group)
        dims = self.domain.dimensions
        loop = next(filter(is_loop, part.nodes), None)
        if loop is not None:
            return self._stored(part, group, loop_grid(group, loop, dims), buffers)
        if dims.has_conflict() or len(group) == 1:
            return single_loop(part, group[0], buffers, self.schedule, self.limits.scalars, Target(group[0]))
        return self._stored(part, group, [factor for axis in dims.axes(group[0]) for factor in axis], buffers)

    def _stored(
        self, part: KernelCandidate, group: Sequence[Value], grid: Sequence[AxisFactor], buffers: BufferTable
    ) -> Phase:
        """A phase that stores values which share its grid."""
        phase = PhaseBuilder(part, self.domain.dimensions, grid, buffers, {}, None)
        phase.draft.limit = self.limits.scalars
        for value in group:
            phase.store_output(value)
        return finish_phase(phase.draft, list(phase.grid_symbols.values()), (), None, self.schedule, ())

    def _pack_phase(self, pack: Pack, buffers: BufferTable) -> Phase:
        """Lay out a right operand densely."""
        operand = pack.operand
        part = part_of(self.candidate, (operand,))
        phase = PhaseBuilder(part, self.domain.dimensions, (), buffers, {}, None)
        stage = phase.draft.stage(0, ())
        scalar = phase.value(stage, operand, pack.at, None)
        offset = index.Affine()
        for symbol in pack.symbols:
            offset = offset * symbol.extent + index.of(symbol)
        stage.body.append(Store(pack.buffer, offset, scalar))
        return finish_phase(phase.draft, pack.symbols, (), None, self.schedule, ())


def _scratch_bytes(buffers: BufferTable) -> int:
    return sum(buffer.type.nbytes for buffer in buffers.all if buffer.space is Space.SCRATCH)
