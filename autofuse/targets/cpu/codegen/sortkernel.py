"""A sort as a kernel: each row is copied into records, put in order, and written.

    for every row, in parallel:   records from keys, which may be computed here; sorted; results from records

Rows along any axis. What goes along with keys is read, or computed, where the sorted records say.
"""

from __future__ import annotations

from collections.abc import Callable

from autofuse.errors import BackendError
from autofuse.ir.dtypes import I64, DType
from autofuse.ir.index import Symbol
from autofuse.lower.librarykernels import coded_in
from autofuse.lower.tile import OpaqueProgram
from autofuse.targets.cpu.codegen.body import Body
from autofuse.targets.cpu.codegen.grid import At, write_points
from autofuse.targets.cpu.codegen.layers import open_launch
from autofuse.targets.cpu.codegen.metadata import Metadata
from autofuse.targets.cpu.codegen.sortkeys import KeyCode
from autofuse.targets.cpu.codegen.sortloops import SortLoops
from autofuse.targets.cpu.codegen.sortrows import DIGITS, Arrays, RowSort
from autofuse.targets.cpu.codegen.values import Group, Index, Lanes, Value, counted_loop, iota, splat_integer
from autofuse.targets.cpu.codegen.widths import TASK_US
from autofuse.targets.cpu.llvmtext import ModuleText, Vec, vector_of
from autofuse.targets.cpu.machine import Machine
from autofuse.targets.cpu.native.nativeprogram import KernelCode, PhaseCode
from autofuse.targets.cpu.scalars import emit_load_conversion, emit_store_conversion, emit_tail_mask

_BEYOND_BYTES = 64
"""Behind each array: vectors are written and read whole."""


def generate_sort(program: OpaqueProgram, machine: Machine) -> KernelCode:
    """The code of a kernel that `coded_in` knows. Nothing overlaps."""
    name, node = program.name, coded_in(program.graph)
    if node is None:
        raise BackendError(f"kernel {name} must be a sort, got {program.graph.name}")
    legal = f'"prefer-vector-width"="{machine.vector_bits}" "min-legal-vector-width"="{machine.vector_bits}"'
    module = ModuleText(f"nounwind {legal}", machine.features)
    loops = SortLoops(program, node, machine.vector_bits)
    scratch = _Sort(module, loops, machine.vector_bits).write(name)
    tasks = loops.blocks * loops.row_ns / (1e3 * TASK_US)
    task_blocks = max(1, round(1e3 * TASK_US / max(loops.row_ns, 1.0)))
    phase = PhaseCode(name, loops.blocks, task_blocks, scratch, max(tasks, loops.blocks / task_blocks))
    lines = module.render().splitlines()
    declares = tuple(line for line in lines if line.startswith("declare "))
    kept = [line for line in lines if not line.startswith("declare ")]
    return KernelCode(name, "\n".join([*kept, Metadata().render()]) + "\n", declares, ((phase,),))


class _Sort:
    """Writes the function of a sort."""

    def __init__(self, module: ModuleText, loops: SortLoops, vector_bits: int) -> None:
        self.module, self.loops, self.vector_bits = module, loops, vector_bits
        self.registers = 32 if vector_bits > 256 else 16
        self.scratch_bytes = 0

    def write(self, symbol: str) -> int:
        """Append the function; the bytes of scratch that it needs."""
        loops = self.loops
        self.fn, self.places = open_launch(self.module, loops.program, symbol)
        self.body = Body(self.fn, self.places, self.registers)
        if loops.blocks:
            width = loops.records.width
            self.first = Arrays(self._memory(width), self._memory(64 if loops.records.beside else 0))
            self.second = Arrays(self._memory(width), self._memory(64 if loops.records.beside else 0))
            counts = DIGITS * loops.records.digits * 8
            self.work = self._memory(width) if loops.is_ranked else self._bytes(counts)
            self.special = self.fn.alloca("i1")
            write_points(self.fn, loops.rows, self._row)
        self.fn.ret()
        return self.scratch_bytes

    def _memory(self, bits: int) -> str:
        """Scratch for so many bits of each record."""
        return self._bytes(self.loops.extent * bits // 8 + _BEYOND_BYTES if bits else 0)

    def _bytes(self, nbytes: int) -> str:
        pointer = self.fn.emit(f"getelementptr inbounds i8, ptr %scratch, i64 {self.scratch_bytes}")
        self.scratch_bytes += -(-nbytes // 64) * 64
        return pointer

    def _row(self, at: At) -> None:
        loops, fn = self.loops, self.fn
        group = Group(Lanes(), dict(at), {}, {})
        if self._mends:
            fn.line(f"store i1 false, ptr {self.special}")
        for depth in range(len(loops.rows) + 1):
            loops.layers.write(self.body, group, depth, early=False)
        self._walk(group, loops.walked, self._load)
        rows = RowSort(fn, loops.records, loops.extent)
        if loops.is_ranked:
            rows.ranked(self.first, self.second, self.work, max(1, self.vector_bits // loops.records.width))
            done = self.second
        else:
            done = rows.radix(self.first, self.second, self.work)
        self._walk(group, loops.place, lambda inner, first: self._store(inner, first, done))
        if self._mends:
            self._mended(group, done)

    def _walk(self, group: Group, symbol: Symbol, inside: Callable[[Group, str], None]) -> None:
        """Whole vectors of a row, then what is left under a mask. `inside` gets where a vector begins."""
        fn, lanes, extent = self.fn, self.loops.lanes, self.loops.extent
        whole = extent - extent % lanes
        wide = Lanes(lanes, symbol) if lanes > 1 else Lanes()
        if whole:
            with counted_loop(fn, "0", str(whole), lanes, nonempty=True) as at:
                inside(group.nested({symbol: Index(at)}, lanes=wide), at)
        if whole < extent:
            active = emit_tail_mask(fn, str(extent - whole), lanes)
            inside(group.nested({symbol: Index("", whole)}, lanes=wide, active=active), str(whole))

    # ---- in and out ----------------------------------------------------------------------------------------------

    @property
    def _mends(self) -> bool:
        """Whether keys do not say all of a value: of floats, not which NaN, nor which zero came first."""
        return self.loops.alone and self.loops.keys.is_float

    def _load(self, group: Group, at: str) -> None:
        """Records of a vector of keys."""
        fn, loops, lanes, records = self.fn, self.loops, group.lanes.count, self.loops.records
        loops.layers.write(self.body, group, len(loops.rows) + 1, early=False)
        code = KeyCode(fn, loops.keys, loops.descending, lanes)
        value = group.vector(fn, loops.loads.results[0])
        key = code.of(value, zeros_apart=loops.alone)
        if self._mends:
            self._noted(code.is_special(value), group)
        along = self._along(group, at)
        if records.shift:
            wide = vector_of("i64", lanes)
            key = fn.emit(f"zext {code.type} {key} to {wide}")
            key = fn.emit(f"shl {wide} {key}, {_splat(32, 64, lanes)}")
            key = fn.emit(f"or {wide} {key}, {along}")
        self._put(self.first.keys, at, key, records.width, lanes)
        if records.beside:
            self._put(self.first.beside, at, along, 64, lanes)

    def _along(self, group: Group, at: str) -> str:
        """What goes along with keys, as i64."""
        fn, loops, lanes = self.fn, self.loops, group.lanes.count
        wide = vector_of("i64", lanes)
        if loops.records.goes == "nothing":
            return ""
        if loops.records.goes == "number":
            if lanes == 1:
                return at
            return fn.emit(f"add {wide} {splat_integer(fn, at, 64, lanes)}, {iota(lanes, 64)}")
        memory = Vec(loops.held, lanes)
        stored = emit_store_conversion(fn, group.vector(fn, loops.loads.results[1]), loops.held, lanes)
        bits = vector_of(f"i{8 * loops.held.itemsize}", lanes)
        number = stored if memory.memory == bits else fn.emit(f"bitcast {memory.memory} {stored} to {bits}")
        return number if bits == wide else fn.emit(f"zext {bits} {number} to {wide}")

    def _put(self, base: str, at: str, value: str, bits: int, lanes: int) -> None:
        address = self.fn.emit(f"getelementptr inbounds i{bits}, ptr {base}, i64 {at}")
        self.fn.line(f"store {vector_of(f'i{bits}', lanes)} {value}, ptr {address}, align {bits // 8}")

    def _got(self, base: str, at: str, bits: int, lanes: int) -> str:
        address = self.fn.emit(f"getelementptr inbounds i{bits}, ptr {base}, i64 {at}")
        return self.fn.emit(f"load {vector_of(f'i{bits}', lanes)}, ptr {address}, align {bits // 8}")

    def _store(self, group: Group, at: str, done: Arrays) -> None:
        """Results of a vector of records, and what is made of them."""
        loops, lanes, records = self.loops, group.lanes.count, self.loops.records
        if loops.alone:
            key = self._got(done.keys, at, records.width, lanes)
            self._made(group, KeyCode(self.fn, loops.keys, loops.descending, lanes).values(key), loops.keys)
            return
        along = self._got(done.beside if records.beside else done.keys, at, 64, lanes)
        if records.goes == "bits":
            self._made(group, self._held(along, lanes), loops.held)
            return
        if records.shift:
            low = _splat((1 << 32) - 1, 64, lanes)
            along = self.fn.emit(f"and {vector_of('i64', lanes)} {along}, {low}")
        self._made(group, along, I64)

    def _made(self, group: Group, value: str, dtype: DType) -> None:
        """Write what is made of scalar 0."""
        group.values[0] = Value(value, dtype, group.lanes.count > 1)
        self.body.write([*self.loops.results.statements, *self.loops.stores], [group], [{}])

    def _held(self, along: str, lanes: int) -> str:
        """The value whose bits went along."""
        fn, dtype = self.fn, self.loops.held
        bits, memory = vector_of(f"i{8 * dtype.itemsize}", lanes), Vec(dtype, lanes).memory
        number = along if dtype.itemsize == 8 else fn.emit(f"trunc {vector_of('i64', lanes)} {along} to {bits}")
        stored = number if bits == memory else fn.emit(f"bitcast {bits} {number} to {memory}")
        return emit_load_conversion(fn, stored, dtype, lanes)

    # ---- zeros and NaN ---------------------------------------------------------------------------------------------

    def _noted(self, special: str, group: Group) -> None:
        """Note whether there is NaN or -0. in the row."""
        fn, lanes = self.fn, group.lanes.count
        flags = vector_of("i1", lanes)
        if group.active is not None:
            special = fn.emit(f"and {flags} {special}, {group.active}")
        if lanes > 1:
            special = fn.intrinsic(f"llvm.vector.reduce.or.v{lanes}i1", "i1", [(flags, special)])
        before = fn.emit(f"load i1, ptr {self.special}")
        fn.line(f"store i1 {fn.emit(f'or i1 {before}, {special}')}, ptr {self.special}")

    def _mended(self, group: Group, done: Arrays) -> None:
        """Write zeros and NaN once more, in the order in which they stand in the row."""
        fn, loops = self.fn, self.loops
        mend, mended = fn.label("mend"), fn.label("mended")
        fn.branch_if(fn.emit(f"load i1, ptr {self.special}"), mend, mended, unlikely=True)
        fn.block(mend)
        code = KeyCode(fn, loops.keys, loops.descending, 1)
        zeros, nans = (self._less(done, key) for key in ((1 << (code.bits - 1)) - 1, (1 << code.bits) - 1))
        with counted_loop(fn, "0", str(loops.extent), 1, nonempty=True) as at:
            inner = group.nested({loops.walked: Index(at)})
            loops.layers.write(self.body, inner, len(loops.rows) + 1, early=False)
            value = inner.vector(fn, loops.loads.results[0])
            is_zero = fn.emit(f"fcmp oeq {Vec(loops.keys, 1).llvm} {value}, 0.0")
            for test, place in ((is_zero, zeros), (code.is_nan(value), nans)):
                write, behind = fn.label("write"), fn.label("behind")
                fn.branch_if(test, write, behind)
                fn.block(write)
                to = fn.emit(f"load i64, ptr {place}")
                self._made(group.nested({loops.place: Index(to)}), value, loops.keys)
                fn.line(f"store i64 {fn.emit(f'add nuw nsw i64 {to}, 1')}, ptr {place}")
                fn.branch(behind)
                fn.block(behind)
        fn.branch(mended)
        fn.block(mended)

    def _less(self, done: Arrays, key: int) -> str:
        """Memory that holds how many keys are less than one."""
        fn, width = self.fn, self.loops.records.width
        total = fn.alloca("i64")
        fn.line(f"store i64 0, ptr {total}")
        with counted_loop(fn, "0", str(self.loops.extent), 1, nonempty=True) as at:
            less = fn.emit(f"icmp ult i{width} {self._got(done.keys, at, width, 1)}, {key}")
            more = fn.emit(f"zext i1 {less} to i64")
            before = fn.emit(f"load i64, ptr {total}")
            fn.line(f"store i64 {fn.emit(f'add i64 {before}, {more}')}, ptr {total}")
        return total


def _splat(value: int, bits: int, lanes: int) -> str:
    return str(value) if lanes == 1 else f"splat (i{bits} {value})"
