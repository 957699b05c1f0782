"""Makes a `CpuProgram` callable from Python: compiles, links, and builds functions that check arrays natively.

The functions are builtins whose code is `entry.ll`. They accept exactly the arrays the program states and return
NotImplemented for anything else, so that a slower layer above can convert or complain.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError
from autofuse.ir.tree import Leaf
from autofuse.ir.types import TensorType
from autofuse.targets.cpu.blocks import POOLED_FROM_BYTES, output_blocks
from autofuse.targets.cpu.native import driver
from autofuse.targets.cpu.native.guarded import MethodDef, new_builtin
from autofuse.targets.cpu.native.linking import LinkedCode, link
from autofuse.targets.cpu.native.nativeprogram import CpuProgram
from autofuse.targets.cpu.native.nativeruntime import KERNEL_SYMBOLS, enable_blas, native_runtime
from autofuse.targets.cpu.native.treedata import TreeData, tree_data

if TYPE_CHECKING:  # LLVM is loaded where something is compiled
    from autofuse.targets.base import XlaEntry
    from autofuse.targets.cpu.native.engine import Engine
    from autofuse.targets.cpu.native.opaque import OpaqueCall

_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_METH_FASTCALL = 0x80
_RECORD_SLOTS = 9
_HUGE_PAGE = 2 << 20
_HUGE_FROM = 4 << 20
_NO_ALIAS = -1

_SLOTS = (
    "inputs",
    "outputs",
    "input_records",
    "output_records",
    "program",
    "arena_bytes",
    "arena_alignment",
    "arena_head",
    "arena_lock",
    "release_gil",
    "ndarray",
    "not_implemented",
    "own_outputs",
    "some_aliases",
    "arity",
    "in_trees",
    "out_tree",
)
"""Slots of the native context, in the order that entry.ll states."""

_api = ctypes.pythonapi


class _Owner:
    """Keeps alive what the native functions of one program use: code, tables, dtypes, method definitions."""

    def __init__(self, *kept: Any) -> None:
        self.kept = list(kept)


class NativeProgram:
    """A program compiled for this process.

    `call(*inputs)` returns a tuple with one array per output; `call_one(*inputs)`, for programs of one output, returns
    that array itself; `call_into(*inputs, *outs)` writes the outputs that are not written back to inputs into given
    arrays; `call_tree(*args)`, for programs that say how, takes and returns structures. Each returns NotImplemented,
    having done nothing, unless every argument is a plain `numpy.ndarray` of exactly the stated shape and dtype,
    C-contiguous and aligned, and what is written is writeable and shares no memory with another argument. All are safe
    to call from several Python threads at once.
    """

    call: Callable[..., Any]
    call_into: Callable[..., Any]
    call_one: Callable[..., Any] | None
    """None unless the program has exactly one output."""
    call_tree: Callable[..., Any] | None
    """None unless the program has trees, of tuples, lists and dicts only."""

    def __init__(
        self,
        program: CpuProgram,
        engine: Engine | None = None,
        *,
        release_gil: bool = True,
        objects: Sequence[bytes] | None = None,
        calls: Sequence[OpaqueCall] = (),
    ) -> None:
        """Compile (or fetch from the cache) and link. Raises BackendError.

        `release_gil`: let other Python threads run during a call; costs about 50 ns, so say False for programs of a
        few microseconds. `objects`: the kernels' code where it is at hand; their text is not looked at then.
        `calls`: calls of Python whose addresses the constants hold.
        """
        driver.check(program)
        self.program = program
        self._engine = engine
        self.objects = self._compiled() if objects is None else list(objects)
        """Object code of each kernel."""
        self._code = self._link()
        self._constants = [_aligned_copy(constant) for constant in program.constants]
        self._data = self._driver_data(driver.groups(program.calls))
        self._arena_bytes = driver.arena_size(program)
        self._trees = _native_trees(program)
        self._calls = tuple(calls)
        self._xla_entry: XlaEntry | None = None
        context, owner = self._entered = self._context(release_gil)
        runtime = native_runtime()
        self.call = _builtin(context, owner, "call", runtime["af_call"])
        self.call_into = _builtin(context, owner, "call_into", runtime["af_call_into"])
        single = len(program.outputs) == 1
        self.call_one = _builtin(context, owner, "call_one", runtime["af_call_one"]) if single else None
        trees = self._trees is not None
        self.call_tree = _builtin(context, owner, "call_tree", runtime["af_call_tree"]) if trees else None

    def profile(self, inputs: Sequence[NDArray[Any]]) -> tuple[tuple[NDArray[Any], ...], tuple[int, ...]]:
        """Run once and time every kernel call: (outputs, nanoseconds per call, in the order of `program.calls`).

        Results and intermediates lie in memory that was touched before, as in a second call. Lanes run one after
        another here. Inputs must be as `call` needs them; raises ArgumentError otherwise.
        """
        self._require_exact(inputs)
        aliases = {alias.output: alias.input for alias in self.program.output_aliases}
        outputs = tuple(
            inputs[aliases[k]] if k in aliases else np.empty(type_.shape, type_.dtype.numpy)
            for k, type_ in enumerate(self.program.outputs)
        )
        times = np.zeros(max(len(self.program.calls), 1), np.int64)
        arena = _aligned_empty(max(self._arena_bytes, 1))
        # fresh pages would count as the time of the kernels that write them first
        for memory in (arena, *(array for k, array in enumerate(outputs) if k not in aliases)):
            memory.fill(0)
        addresses = [array.ctypes.data for array in (*inputs, *outputs)]
        self.run_at(addresses, arena.ctypes.data, times.ctypes.data)
        return outputs, tuple(int(t) for t in times[: len(self.program.calls)])

    @property
    def arena_bytes(self) -> int:
        """Bytes of temporaries, and of the calling thread's scratch behind them."""
        return self._arena_bytes

    def run_at(self, addresses: Sequence[int], arena: int, times: int | None = None) -> None:
        """Run once, one kernel call after the other, on memory that the caller answers for.

        `addresses`: of inputs, then outputs. `arena`: of `arena_bytes`, 64-byte aligned. `times`: of one 64-bit slot
        for each kernel call, which receives its nanoseconds.
        """
        data = self._driver_data([(call,) for call in self.program.calls])
        arguments = np.array(addresses, np.uint64)
        # unlike CFUNCTYPE: raises what a signal's handler raised (regions.ll)
        run = ctypes.PYFUNCTYPE(None, *([ctypes.c_void_p] * 4))(native_runtime()["af_run"])
        run(data.address, arguments.ctypes.data, arena, times)

    @property
    def direct(self) -> Callable[..., Any] | None:
        """The cheapest way into a program whose results need nothing more; see `autofuse.targets.base.Program`."""
        program = self.program
        flat = program.in_trees is not None and all(isinstance(one, Leaf) for one in program.in_trees)
        return self.call_one if flat and program.out_tree == Leaf() and self.call_one else self.call_tree

    @property
    def constant_bytes(self) -> int:
        """Bytes of the arrays that it holds."""
        return sum(array.nbytes for array in self.program.constants)

    @property
    def direct_into(self) -> Callable[..., Any] | None:
        """The same, into memory that is given."""
        return self.call_into if self.call_one is not None and self.direct is self.call_one else None

    @property
    def xla_entry(self) -> XlaEntry:
        """How XLA's runtime calls it."""
        if self._xla_entry is None:
            from autofuse.targets.cpu.native.xla import entry_of  # few programs are called so

            context, owner = self._entered
            self._xla_entry = entry_of(self.program, self.objects, self._calls, context.ctypes.data, owner, self)
        return self._xla_entry

    def source(self) -> dict[str, str]:
        """The LLVM IR of each kernel, by name."""
        return {kernel.name: driver.kernel_unit(kernel) for kernel in self.program.kernels}

    def assembly(self) -> dict[str, str]:
        """The assembly text of each kernel, by name."""
        return {name: self.engine.emit_assembly(text) for name, text in self.source().items()}

    @property
    def engine(self) -> Engine:
        """What compiles the kernels."""
        if self._engine is None:
            from autofuse.targets.cpu.native.engine import default_engine

            self._engine = default_engine()
        return self._engine

    def _compiled(self) -> list[bytes]:
        return self.engine.compile_all(list(self.source().values()))

    def _link(self) -> LinkedCode:
        runtime = native_runtime()
        symbols = {name: runtime[name] for name in KERNEL_SYMBOLS}
        if driver.uses_blas(self.program.kernels):
            symbols |= enable_blas()
        return link(self.objects, symbols, exports=driver.phase_symbols(self.program))

    def _driver_data(self, groups: Sequence[driver.Group]) -> driver.DriverData:
        functions = {symbol: self._code[symbol] for symbol in driver.phase_symbols(self.program)}
        return driver.DriverData(self.program, groups, functions, self._constants)

    def _context(self, release_gil: bool) -> tuple[NDArray[np.uint64], _Owner]:
        """The native context, and the object that keeps alive what it points to."""
        program = self.program
        aliases = {alias.output: alias.input for alias in program.output_aliases}
        written = set(aliases.values())
        readable = _C_CONTIGUOUS | _ALIGNED
        inputs = _Records(
            (type_, readable | (_WRITEABLE if i in written else 0), _NO_ALIAS) for i, type_ in enumerate(program.inputs)
        )
        outputs = _Records(
            (type_, readable | _WRITEABLE, aliases.get(k, _NO_ALIAS)) for k, type_ in enumerate(program.outputs)
        )
        huge = self._arena_bytes >= _HUGE_FROM
        alignment = _HUGE_PAGE if huge else 64
        values = {
            "inputs": len(program.inputs),
            "outputs": len(program.outputs),
            "input_records": inputs.address,
            "output_records": outputs.address,
            "program": self._data.address,
            "arena_bytes": -(-self._arena_bytes // alignment) * alignment,
            "arena_alignment": alignment,
            "arena_head": 0,
            "arena_lock": 0,
            "release_gil": int(release_gil),
            "ndarray": id(np.ndarray),
            "not_implemented": id(NotImplemented),
            "own_outputs": len(program.outputs) - len(aliases),
            "some_aliases": int(bool(aliases)),
            "arity": len(program.in_trees or ()),
            "in_trees": 0 if self._trees is None else self._trees[0].address,
            "out_tree": 0 if self._trees is None else self._trees[1].address,
        }
        context = np.array([values[slot] for slot in _SLOTS], np.uint64)
        owner = _Owner(self._code, self._calls, self._constants, self._data, self._trees, inputs, outputs, context)
        free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(native_runtime()["af_arena_free"])
        weakref.finalize(owner, _free_arenas, free, context).atexit = False
        return context, owner

    def _require_exact(self, inputs: Sequence[NDArray[Any]]) -> None:
        if len(inputs) != len(self.program.inputs):
            raise ArgumentError(
                f"{self.program.name} takes {len(self.program.inputs)} inputs, got {len(inputs)}; pass them in order"
            )
        for i, (array, type_) in enumerate(zip(inputs, self.program.inputs, strict=True)):
            dense = array.flags.c_contiguous and array.flags.aligned
            if not (dense and array.shape == type_.shape and array.dtype == type_.dtype.numpy):
                raise ArgumentError(
                    f"{self.program.name}: input {i} must be a C-contiguous, aligned {type_}, got {array.dtype} "
                    f"{array.shape} with strides {array.strides}; use numpy.ascontiguousarray(x, dtype)"
                )


def _native_trees(program: CpuProgram) -> tuple[TreeData, TreeData] | None:
    if program.in_trees is None or program.out_tree is None:
        return None
    ins, out = tree_data(program.in_trees), tree_data((program.out_tree,))
    return None if ins is None or out is None else (ins, out)


class _Records:
    """Native records of expected arrays, with the Python objects they point to."""

    def __init__(self, expected: Any) -> None:
        rows: list[list[int]] = []
        self._kept: list[Any] = []
        for type_, flags, alias in expected:
            rows.append(self._record(type_, flags, alias))
        self._table = np.array(rows, np.int64).reshape(len(rows), _RECORD_SLOTS)

    @property
    def address(self) -> int:
        return self._table.ctypes.data

    def _record(self, type_: TensorType, flags: int, alias: int) -> list[int]:
        dimensions = np.array(type_.shape, np.int64)
        shape, dtype = tuple(type_.shape), type_.dtype.numpy
        allocate = output_blocks.empty if type_.nbytes >= POOLED_FROM_BYTES else np.empty
        self._kept += [dimensions, shape, dtype, allocate]
        return [
            id(dtype),
            type_.rank,
            dimensions.ctypes.data,
            type_.nbytes,
            flags,
            alias,
            id(shape),
            id(dtype),
            id(allocate),
        ]


def _free_arenas(free: Callable[[int], None], context: NDArray[np.uint64]) -> None:
    free(context.ctypes.data)


def _builtin(context: NDArray[np.uint64], owner: _Owner, name: str, address: int) -> Callable[..., Any]:
    """A builtin function of the code at `address`; it holds the owner through the capsule that is its `self`."""
    definition = MethodDef(name.encode(), address, _METH_FASTCALL, None)
    owner.kept.append(definition)
    new_capsule = _api.PyCapsule_New
    new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = new_capsule(context.ctypes.data, None, native_runtime()["af_capsule_release"])
    set_context = _api.PyCapsule_SetContext
    set_context.restype, set_context.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.py_object]
    increment = _api.Py_IncRef
    increment.restype, increment.argtypes = None, [ctypes.py_object]
    increment(owner)
    set_context(capsule, owner)
    return new_builtin(definition, capsule)


def _aligned_empty(size: int) -> NDArray[np.uint8]:
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def _aligned_copy(array: NDArray[Any]) -> NDArray[Any]:
    """The array itself when it is C-contiguous and 64-byte aligned, else a copy that is."""
    if array.flags.c_contiguous and array.ctypes.data % 64 == 0:
        return array
    memory = _aligned_empty(max(array.nbytes, 1))
    copy = memory[: array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
