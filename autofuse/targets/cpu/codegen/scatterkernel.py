"""A scatter as a kernel: the operand copied by all workers, then the updates combined in by one, in order.

    launch 0  result[...] = x                                  in blocks; nothing to do where they are the same memory
    launch 1  for every update, row-major: position from the indices; where it lies inside: result[position] combined

NumPy does the same in more passes: it brings the indices into bounds first, and looks for those that repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from autofuse.errors import BackendError
from autofuse.ir import index
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.ops.scatter import roles_of
from autofuse.ir.ops.windowroles import Roles
from autofuse.lazydataclass import dataclass
from autofuse.lower.librarykernels import Fixed, Source, Stored, follows, has_lanes, scatter_in, source_of
from autofuse.lower.tile import OpaqueProgram
from autofuse.targets.cpu.codegen.metadata import Metadata
from autofuse.targets.cpu.codegen.offsets import scalar_index
from autofuse.targets.cpu.codegen.values import Group, Index, Lanes, counted_loop
from autofuse.targets.cpu.codegen.viewed import Reader
from autofuse.targets.cpu.llvmtext import FunctionText, ModuleText, Vec
from autofuse.targets.cpu.machine import Machine
from autofuse.targets.cpu.native.nativeprogram import KernelCode, PhaseCode
from autofuse.targets.cpu.scalars import emit_combine, emit_store_conversion

_BLOCK_BYTES = 64 << 10
"""Copied at a time: 2 to 3 us."""
_BLOCKS_PER_WORKER = 2
_BEYOND = 1 << 62
"""Unsigned indices from here on are out of bounds, as this is; as signed ones they could come back in."""


def generate_scatter(program: OpaqueProgram, machine: Machine) -> KernelCode:
    """The code of a kernel that `scatter_in` knows. The result may be the operand's memory; else nothing overlaps."""
    name, node = program.name, scatter_in(program.graph)
    if node is None:
        raise BackendError(f"kernel {name} must be a scatter of values that are there, got {program.graph.name}")
    legal = f'"prefer-vector-width"="{machine.vector_bits}" "min-legal-vector-width"="{machine.vector_bits}"'
    module = ModuleText(f"nounwind {legal}", machine.features)
    blocks = _Copy(module, program.graph, node).write(name)
    _Updates(module, program.graph, node, machine.vector_bits).write(f"{name}.p1")
    lines = module.render().splitlines()
    declares = tuple(line for line in lines if line.startswith("declare "))
    kept = [line for line in lines if not line.startswith("declare ")]
    launches = (PhaseCode(name, blocks, _BLOCKS_PER_WORKER),), (PhaseCode(f"{name}.p1", 1),)
    return KernelCode(name, "\n".join([*kept, Metadata().render()]) + "\n", declares, launches)


def _open(module: ModuleText, graph: Graph, symbol: str) -> tuple[FunctionText, dict[Value, str]]:
    """A function over blocks, and pointers to the kernel's buffers."""
    parameters = [("ptr noalias readonly captures(none)", "buffers"), ("i64", "begin"), ("i64", "end")]
    fn = module.function(symbol, "void", [*parameters, ("ptr", "scratch")])
    bases: dict[Value, str] = {}
    for number, value in enumerate((*graph.inputs, *graph.outputs)):
        slot = fn.emit(f"getelementptr inbounds ptr, ptr %buffers, i64 {number}")
        bases[value] = fn.emit(f"load ptr, ptr {slot}, align 8")
    return fn, bases


def _symbols(letter: str, shape: Sequence[int]) -> tuple[Symbol, ...]:
    return tuple(Symbol(f"{letter}{d}", extent) for d, extent in enumerate(shape))


def _store(fn: FunctionText, address: str, value: str, dtype: DType, lanes: int) -> None:
    stored = emit_store_conversion(fn, value, dtype, lanes)
    fn.line(f"store {Vec(dtype, lanes).memory} {stored}, ptr {address}, align {dtype.itemsize}")


@dataclass(frozen=True, slots=True)
class _Copy:
    """Writes the launch that copies the operand."""

    module: ModuleText
    graph: Graph
    node: Node

    def write(self, symbol: str) -> int:
        """Append the function; the number of its blocks."""
        fn, bases = _open(self.module, self.graph, symbol)
        (result,) = self.node.outputs
        symbols = _symbols("x", result.type.shape)
        source = source_of(self.graph, self.node.inputs[0], tuple(map(index.of, symbols)))
        nbytes = result.type.nbytes
        if isinstance(source, Stored) and source.offset == index.linearize(
            tuple(map(index.of, symbols)), result.type.shape
        ):
            self._moved(fn, bases[source.buffer], bases[result], nbytes)
        elif isinstance(source, Fixed) and len({*source.value.tobytes()}) == 1:
            start, length = self._share(fn, nbytes)
            address = fn.emit(f"getelementptr i8, ptr {bases[result]}, i64 {start}")
            byte = ("i8", str(source.value.tobytes()[0]))
            fn.intrinsic("llvm.memset.p0.i64", "void", [("ptr", address), byte, ("i64", length), ("i1", "false")])
        else:
            self._one_by_one(fn, Reader(fn, bases), source, symbols)
            fn.ret()
            return min(result.type.size, 1)
        fn.ret()
        return -(-nbytes // _BLOCK_BYTES)

    def _share(self, fn: FunctionText, nbytes: int) -> tuple[str, str]:
        """First byte, and number of bytes, of the blocks of this call."""
        start = fn.emit(f"mul nuw nsw i64 %begin, {_BLOCK_BYTES}")
        stop = fn.emit(f"mul nuw nsw i64 %end, {_BLOCK_BYTES}")
        stop = fn.intrinsic("llvm.smin.i64", "i64", [("i64", stop), ("i64", str(nbytes))])
        return start, fn.emit(f"sub nuw nsw i64 {stop}, {start}")

    def _moved(self, fn: FunctionText, source: str, target: str, nbytes: int) -> None:
        copy, done = fn.label("copy"), fn.label("done")
        fn.branch_if(fn.emit(f"icmp eq ptr {source}, {target}"), done, copy)
        fn.block(copy)
        start, length = self._share(fn, nbytes)
        ends = [fn.emit(f"getelementptr i8, ptr {base}, i64 {start}") for base in (target, source)]
        arguments = [*(("ptr", end) for end in ends), ("i64", length), ("i1", "false")]
        fn.intrinsic("llvm.memcpy.p0.p0.i64", "void", arguments)
        fn.branch(done)
        fn.block(done)

    def _one_by_one(self, fn: FunctionText, reader: Reader, source: Source, symbols: Sequence[Symbol]) -> None:
        (result,) = self.node.outputs
        group = Group(Lanes(), {}, {}, {})
        with ExitStack() as loops:
            for symbol in symbols:
                at = loops.enter_context(counted_loop(fn, "0", str(symbol.extent), 1, nonempty=False))
                group = group.nested({symbol: Index(at)})
            place = Stored(source.dtype, result, index.linearize(tuple(map(index.of, symbols)), result.type.shape))
            _store(fn, reader.address(place, group), reader.read(source, group), source.dtype, 1)


class _Updates:
    """Writes the launch that combines the updates in."""

    def __init__(self, module: ModuleText, graph: Graph, node: Node, vector_bits: int) -> None:
        x, indices, updates = node.inputs
        self.module, self.graph, self.node = module, graph, node
        self.dtype, self.shape = x.type.dtype, x.type.shape
        self.combiner: str = node.attrs["combiner"]
        self.roles: Roles = roles_of(node.attrs, x.type.rank, indices.type.rank)
        self.symbols = _symbols("u", updates.type.shape)
        self.lanes = max(1, vector_bits // (8 * self.dtype.itemsize))
        self.source = source_of(graph, updates, tuple(map(index.of, self.symbols)))
        self.indices = [source_of(graph, indices, self._vector(n)) for n in range(len(self.roles.index_map))]
        self.ready = max(self.roles.batch, default=-1) + 1
        """Loops inside which an index vector is known."""
        self.windows = dict(zip(self.roles.window_operand, self.roles.window, strict=True))

    def _vector(self, component: int) -> tuple[Affine, ...]:
        """Where in the indices a component of the index vector stands."""
        at = [index.of(self.symbols[d]) for d in self.roles.batch]
        if self.roles.index_vector_dim < self.roles.indices_rank:
            at.insert(self.roles.index_vector_dim, index.of(component))
        return tuple(at)

    def write(self, symbol: str) -> None:
        """Append the function."""
        self.fn, bases = _open(self.module, self.graph, symbol)
        self.reader = Reader(self.fn, bases)
        self.target = bases[self.node.outputs[0]]
        if all(s.extent for s in self.symbols) and all(self.shape):
            self._loops(0, Group(Lanes(), {}, {}, {}), None)
        self.fn.ret()

    def _loops(self, depth: int, group: Group, starts: dict[int, str] | None) -> None:
        """The loops from the dimension `depth` of the updates on; `starts`: the index vector, once it is known."""
        fn = self.fn
        if starts is None and depth == self.ready:
            starts = {d: self._start(s, group) for d, s in zip(self.roles.index_map, self.indices, strict=True)}
            outside = fn.label("outside")
            for d in (d for d in starts if d not in self.windows):
                self._require_inside(starts[d], d, outside)
            self._loops(depth, group, starts)
            fn.branch(outside)
            fn.block(outside)
        elif depth == len(self.symbols):
            self._element(group, starts or {})
        elif depth == len(self.symbols) - 1 and starts is not None and self._is_run():
            self._run(group, starts)
        else:
            symbol = self.symbols[depth]
            with counted_loop(fn, "0", str(symbol.extent), 1, nonempty=True) as at:
                self._loops(depth + 1, group.nested({symbol: Index(at)}), starts)

    def _start(self, source: Source, group: Group) -> str:
        """A component of the index vector as i64."""
        read, dtype = self.reader.read(source, group), source.dtype
        if dtype.bits < 64:
            return self.fn.emit(f"{'zext' if dtype.kind == 'uint' else 'sext'} i{dtype.bits} {read} to i64")
        if dtype.kind == "uint":
            return self.fn.intrinsic("llvm.umin.i64", "i64", [("i64", read), ("i64", str(_BEYOND))])
        return read

    def _require_inside(self, position: str, dimension: int, otherwise: str) -> None:
        inside = self.fn.label("inside")
        fits = self.fn.emit(f"icmp ult i64 {position}, {self.shape[dimension]}")
        self.fn.branch_if(fits, inside, otherwise)
        self.fn.block(inside)

    def _offset(self, starts: dict[int, str]) -> tuple[Affine, list[tuple[str, int]]]:
        """Of the element that an update meets: what follows from the loops, and terms of the index vector."""
        strides = index.strides_of(self.shape)
        at = {**self.windows, **self.roles.batching_result}
        fixed = sum((index.of(self.symbols[u]) * strides[d] for d, u in at.items()), Affine())
        return fixed, [(start, strides[d]) for d, start in starts.items()]

    def _address(self, group: Group, starts: dict[int, str]) -> str:
        fixed, terms = self._offset(starts)
        place = Stored(self.dtype, self.node.outputs[0], fixed)
        address = self.reader.address(place, group)
        element = Vec(self.dtype, 1).memory_element
        for start, stride in terms:
            moved = start if stride == 1 else self.fn.emit(f"mul i64 {start}, {stride}")
            address = self.fn.emit(f"getelementptr {element}, ptr {address}, i64 {moved}")
        return address

    def _element(self, group: Group, starts: dict[int, str]) -> None:
        """One update."""
        fn, skipped = self.fn, self.fn.label("skipped")
        for d in (d for d in starts if d in self.windows):
            at = index.of(self.symbols[self.windows[d]])
            within = scalar_index(fn, at, group)
            self._require_inside(fn.emit(f"add i64 {starts[d]}, {within}"), d, skipped)
        self._combine(self._address(group, starts), self.reader.read(self.source, group), 1)
        fn.branch(skipped)
        fn.block(skipped)

    def _is_run(self) -> bool:
        """Whether the last dimension of the updates walks neighbours in the operand, all of them inside."""
        last, dim = len(self.shape) - 1, len(self.symbols) - 1
        return self.windows.get(last) == dim and last not in self.roles.index_map and self.symbols[dim].extent > 1

    def _run(self, group: Group, starts: dict[int, str]) -> None:
        """The innermost loop: whole vectors, then what is left, one by one."""
        symbol, source = self.symbols[-1], self.source
        if self.combiner == "set" and isinstance(source, Stored) and follows(source.offset, symbol):
            first = group.nested({symbol: Index("", 0)})
            length = ("i64", str(symbol.extent * self.dtype.itemsize))
            ends = [("ptr", self._address(first, starts)), ("ptr", self.reader.address(source, first))]
            self.fn.intrinsic("llvm.memcpy.p0.p0.i64", "void", [*ends, length, ("i1", "false")])
            return
        lanes = self.lanes if has_lanes(source, symbol) else 1
        whole = symbol.extent - symbol.extent % lanes
        for begin, end, width in ((0, whole, lanes), (whole, symbol.extent, 1)):
            if begin == end:
                continue
            with counted_loop(self.fn, str(begin), str(end), width, nonempty=True) as at:
                inner = group.nested({symbol: Index(at)})
                address = self._address(inner, starts)
                self._combine(address, self.reader.lanes(source, inner, symbol, width), width)

    def _combine(self, address: str, value: str, lanes: int) -> None:
        if self.combiner != "set":
            old = self.reader.load(address, self.dtype, lanes)
            value = emit_combine(self.fn, self.combiner, old, value, self.dtype, lanes)
        _store(self.fn, address, value, self.dtype, lanes)
