"""A scatter as a kernel: the operand copied by all workers, then the updates combined in, those of an element in order.

    launch 0  result[...] = x                                  in blocks; nothing to do where they are the same memory
    launch 1  for every update, row-major: position from the indices; where it lies inside: result[position] combined
              outputs[...] = what is made of result[...]       of what a worker has completed
    launch 2  outputs[...] = what is made of result[...]       in blocks, where one worker does all updates

    or, where each worker has a copy:
    launch 0  for every part of the updates: copy[...] = what changes nothing; copy[position] combined
    launch 1  outputs[...] = what is made of x[...] combined with the copies

Indices and updates may be computed in the loops. How workers share the updates is said in `scatterloops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from autofuse.errors import BackendError
from autofuse.ir import index
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Node
from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.librarykernels import Fixed, Source, Stored, coded_in, held_in, source_of
from autofuse.lower.tile import OpaqueProgram
from autofuse.targets.cpu.codegen.body import Body
from autofuse.targets.cpu.codegen.layers import open_launch, shared_range
from autofuse.targets.cpu.codegen.metadata import Metadata
from autofuse.targets.cpu.codegen.scatterepilogue import COPIES, Epilogue, EpilogueLoops
from autofuse.targets.cpu.codegen.scatterloops import ScatterLoops
from autofuse.targets.cpu.codegen.scatterupdates import ScatterUpdates
from autofuse.targets.cpu.codegen.values import Group, Index, Lanes, counted_loop
from autofuse.targets.cpu.codegen.viewed import Reader
from autofuse.targets.cpu.codegen.widths import TASK_US
from autofuse.targets.cpu.llvmtext import FunctionText, ModuleText, Vec
from autofuse.targets.cpu.machine import Machine
from autofuse.targets.cpu.native.nativeprogram import KernelCode, PhaseCode
from autofuse.targets.cpu.scalars import emit_store_conversion

_BLOCK_BYTES = 64 << 10
"""Copied at a time: 2 to 3 us."""
_BLOCKS_PER_WORKER = 2


def generate_scatter(program: OpaqueProgram, machine: Machine) -> KernelCode:
    """The code of a kernel that `coded_in` knows. The result may be the operand's memory; else nothing overlaps."""
    name, node = program.name, coded_in(program.graph)
    if node is None:
        raise BackendError(f"kernel {name} must be a scatter of values that are there, got {program.graph.name}")
    legal = f'"prefer-vector-width"="{machine.vector_bits}" "min-legal-vector-width"="{machine.vector_bits}"'
    module = ModuleText(f"nounwind {legal}", machine.features)
    may_copy = any(buffer.name == COPIES for buffer in program.buffers)
    loops = ScatterLoops(program, node, machine.vector_bits, may_copy=may_copy)
    split, registers = loops.split(), 32 if machine.vector_bits > 256 else 16
    behind = loops.epilogue()
    within = None if behind is None or behind.is_apart else behind
    first: list[tuple[PhaseCode, ...]] = []
    if split.way != "copies":
        first.append((PhaseCode(name, _Copy(module, program, node).write(name), _BLOCKS_PER_WORKER),))
    ScatterUpdates(module, loops, split, registers, within).write(f"{name}.p1")
    tasks = loops.ns / (1e3 * TASK_US) if split.blocks > 1 else 0.0
    updates = PhaseCode(f"{name}.p1", split.blocks, tasks=tasks)
    last = (
        ((_epilogue(module, program, behind, registers, f"{name}.p2"),),)
        if behind is not None and behind.is_apart
        else ()
    )
    lines = module.render().splitlines()
    declares = tuple(line for line in lines if line.startswith("declare "))
    kept = [line for line in lines if not line.startswith("declare ")]
    return KernelCode(name, "\n".join([*kept, Metadata().render()]) + "\n", declares, (*first, (updates,), *last))


def _epilogue(
    module: ModuleText, program: OpaqueProgram, loops: EpilogueLoops, registers: int, symbol: str
) -> PhaseCode:
    """A launch of what is made of the result, in blocks."""
    fn, places = open_launch(module, program, symbol)
    blocks, step = loops.parts(1e3 * TASK_US / 2)
    Epilogue(loops, Body(fn, places, registers)).write(*shared_range(fn, step, loops.extent))
    fn.ret()
    return PhaseCode(symbol, blocks, _BLOCKS_PER_WORKER)


def _store(fn: FunctionText, address: str, value: str, dtype: DType) -> None:
    stored = emit_store_conversion(fn, value, dtype, 1)
    fn.line(f"store {Vec(dtype, 1).memory} {stored}, ptr {address}, align {dtype.itemsize}")


@dataclass(frozen=True, slots=True)
class _Copy:
    """Writes the launch that copies the operand."""

    module: ModuleText
    program: OpaqueProgram
    node: Node

    def write(self, symbol: str) -> int:
        """Append the function; the number of its blocks."""
        graph = self.program.graph
        fn, places = open_launch(self.module, self.program, symbol)
        held = (*graph.inputs, *graph.outputs)
        bases = dict(zip(held, (place.base for place in places.values()), strict=False))
        (result,) = self.node.outputs
        bases[result] = places[held_in(self.program, self.node)].base
        symbols = tuple(Symbol(f"x{d}", extent) for d, extent in enumerate(result.type.shape))
        source = source_of(graph, self.node.inputs[0], tuple(map(index.of, symbols)))
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
            _store(fn, reader.address(place, group), reader.read(source, group), source.dtype)
