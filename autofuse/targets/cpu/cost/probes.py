"""Small kernels whose times give the numbers of a calibration.

Each probe says how to turn its time into a number; `run_probes` compiles a set of them into one program and times every
kernel by itself, over and over, until the times are known or time is up.

What else runs on the machine only ever adds time, in long bursts; so the lower quartile of the samples is taken, not
the median. On an idle machine the two are the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import BackendError
from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine, Element, Symbol, of
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.schedule import PRODUCTS, Schedule
from autofuse.lower.statements import Constant, Load, Map, Reduce, Statement, Store
from autofuse.lower.tile import Buffer, Dot, Matrix, Phase, RowBlock, RowGroup, Space, Stage, TileProgram
from autofuse.targets.cpu.codegen.kernel import generate
from autofuse.targets.cpu.decisions import VECTOR_BITS
from autofuse.targets.cpu.device.describe import DTYPES
from autofuse.targets.cpu.machine import host_machine
from autofuse.targets.cpu.native.entry import NativeProgram
from autofuse.targets.cpu.native.nativeprogram import BufferRef, CpuProgram, KernelCall, KernelCode
from autofuse.targets.cpu.native.threadcount import get_num_threads
from autofuse.targets.cpu.passes.prepare import CpuPasses

_LENGTH = 1024
"""Elements of the arrays that stay in the first-level cache."""
_DIFFERENT = 1 << 16
"""Values that repeat in longer arrays."""
_ROUNDS = 64
_CHAIN = 16
"""Operations per element in the probes of cheap ones: enough that loading and storing do not count."""
_PAGE = 4096
_SCATTERED = 5
"""Longer than the strides for which whole vectors are loaded and shuffled."""
_IN_LINE = 16
"""Elements of a line."""
_FAR_STRIDE = (_PAGE + 64) // 4
_FAR_STEPS = 1 << 16
"""Least steps of a probe."""
_PIECE_ROUNDS = 64
"""Of a piece of work: some microseconds."""
_STAGGER = 1088
_NORMAL_95 = 1.96
_ALONE_US, _TOGETHER_US, _ALWAYS_US = 1e8, 1.0, 1e-6
"""Least work worth handing to another worker, in microseconds: of kernels that one worker runs, of those that all do,
and of those that all do though there is nothing to do."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One kernel to time."""

    name: str
    """The number it gives, e.g. `exp/f32`."""
    program: TileProgram
    work: float
    """Elements, bytes or flops of one run: the number is work per microsecond."""
    task_us: float = _ALONE_US
    """Least work worth handing to another worker."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured number."""

    value: float
    low: float
    """End of the 95 % interval."""
    high: float
    samples: int


def run_probes(
    probes: Sequence[Probe], seconds: float, relative_interval: float = 0.03, least: int = 5
) -> dict[str, Estimate]:
    """Work per microsecond of each probe. Those that cannot be compiled are left out.

    Stops when every interval is narrow enough, or `seconds` after it began, but not before `least` runs.
    """
    compiled = [(probe, code) for probe in probes if (code := _compiled(probe)) is not None]
    if not compiled:
        return {}
    program, inputs = _joined(compiled)
    samples: list[list[float]] = [[] for _ in compiled]
    start = time.monotonic()
    program.profile(inputs)
    alone = len(compiled) == 1 and get_num_threads() == 1
    while True:
        before = time.thread_time_ns()
        _, times = program.profile(inputs)
        if alone:  # what the thread itself used does not count the time that others took from it
            times = (min(times[0], time.thread_time_ns() - before),)
        for column, nanoseconds in zip(samples, times, strict=True):
            column.append(max(nanoseconds, 1) / 1e3)
        if len(samples[0]) >= least and (
            time.monotonic() - start > seconds or all(_narrow(column, relative_interval) for column in samples)
        ):
            break
    return {probe.name: _estimate(probe.work, column) for (probe, _), column in zip(compiled, samples, strict=True)}


def _narrow(samples: Sequence[float], relative: float) -> bool:
    low, middle, high = _quartile(samples)
    return high - low <= relative * middle


def _estimate(work: float, samples: Sequence[float]) -> Estimate:
    low, middle, high = _quartile(samples)
    return Estimate(work / middle, work / high, work / low, len(samples))


def _quartile(samples: Sequence[float]) -> tuple[float, float, float]:
    """The lower quartile between the ends of its 95 % interval, by order statistics (David & Nagaraja, 7.1)."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    reach = _NORMAL_95 * math.sqrt(len(ordered) * 3 / 16)
    low, high = math.floor(last / 4 - reach), math.ceil(last / 4 + reach)
    return ordered[max(low, 0)], ordered[last // 4], ordered[min(high, last)]


def _generated(program: TileProgram, task_us: float = _ALONE_US) -> KernelCode:
    machine = host_machine()
    return generate(CpuPasses(machine.vector_bits)(program), machine, task_us)


def _compiled(probe: Probe) -> KernelCode | None:
    try:
        return _generated(probe.program, probe.task_us)
    except BackendError:
        return None


def _joined(compiled: Sequence[tuple[Probe, KernelCode]]) -> tuple[NativeProgram, tuple[NDArray[Any], ...]]:
    """One program with a call per probe.

    Buffers of one type and role share an array that lives as long as the program: results go to memory that was
    written before, so that no page faults are timed.
    """
    arrays: dict[tuple[TensorType, bool], int] = {}
    calls: list[KernelCall] = []
    for probe, code in compiled:
        keys = [(buffer.type, buffer.space is Space.INPUT) for buffer in probe.program.parameters()]
        refs = tuple(BufferRef("input", arrays.setdefault(key, len(arrays))) for key in keys)
        calls.append(KernelCall(code.name, refs))
    kernels = tuple(code for _, code in compiled)
    program = CpuProgram("probes", kernels, tuple(calls), tuple(type_ for type_, _ in arrays), ())
    return NativeProgram(program), tuple(_placed(_values(type_), n) for n, (type_, _) in enumerate(arrays))


def _placed(values: NDArray[Any], number: int) -> NDArray[Any]:
    """A copy that starts on a cache line, at an address whose low 12 bits are its own.

    A store holds up later loads from addresses that agree with it in these bits.
    """
    memory = np.empty(values.nbytes + 2 * _PAGE, np.uint8)
    start = -memory.ctypes.data % _PAGE + number * _STAGGER % _PAGE
    copy = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def _values(type_: TensorType) -> NDArray[Any]:
    """Values at which every function is defined and ordinary; for integers, positions in any order."""
    if type_.dtype.is_integer:
        return np.random.default_rng(0).permutation(type_.size).reshape(type_.shape).astype(type_.dtype.numpy)
    some = np.linspace(0.5, 1.5, min(type_.size, _DIFFERENT), dtype=np.float64).astype(type_.dtype.numpy)
    return np.resize(some, type_.shape)


# ---- instructions ------------------------------------------------------------------------------------------------


def narrow(probes: Sequence[Probe], bits: int) -> list[Probe]:
    """The same in vectors of at most `bits` bits."""
    schedule = Schedule.of({VECTOR_BITS: bits})
    return [
        replace(
            probe,
            name=f"{probe.name}/narrow",
            program=replace(probe.program, name=f"{probe.program.name}_narrow", schedule=schedule),
        )
        for probe in probes
    ]


def _repeated(name: str, dtype: DType, body: Sequence[Statement], length: int, rounds: int) -> TileProgram:
    """A body over the same `length` elements, `rounds` times."""
    k, r = Symbol("k0", length), Symbol("i0", rounds)
    buffers = (
        Buffer("x", TensorType((length,), dtype), Space.INPUT),
        Buffer("y", TensorType((length,), dtype), Space.OUTPUT),
    )
    phase = Phase((r,), (RowGroup((Stage((k,), tuple(body), k),)),))
    return TileProgram(name, buffers, ((phase,),), Schedule())


def _chain(dtype: DType, opcodes: Sequence[str], constant: float | None) -> list[Statement]:
    """Load, a chain of operations whose second operand is a constant if there is one, store."""
    k = Symbol("k0", _LENGTH)
    body: list[Statement] = [Load(0, dtype, "x", of(k))]
    last, number = 0, 1
    for position, opcode in enumerate(opcodes):
        operands: tuple[int, ...] = (last,)
        if constant is not None:
            value = constant * (1 + position / 64)
            body.append(Constant(number, dtype, int(value) if dtype.is_integer else value))
            operands, number = (last, number), number + 1
        body.append(Map(number, dtype, opcode, operands))
        last, number = number, number + 1
    return [*body, Store("y", of(k), last)]


def _conversions(integer: DType, real: DType) -> list[Statement]:
    """Integer to float, eight times; the way back keeps the bits and costs nothing."""
    k = Symbol("k0", _LENGTH)
    body: list[Statement] = [Load(0, integer, "x", of(k))]
    for number in range(0, 16, 2):
        body += [
            Map(number + 1, real, "convert", (number,)),
            Map(number + 2, integer, "bitcast_convert", (number + 1,)),
        ]
    return [*body, Store("y", of(k), 16)]


_FLOATS: Mapping[str, DType] = {name: dtypes.by_name(name) for name in DTYPES}
_INTEGERS: Mapping[str, DType] = {"f32": dtypes.I32, "f64": dtypes.I64}
_UNARY: Mapping[str, str] = {"sqrt": "sqrt", "exp": "exp", "log": "log", "tanh": "tanh", "sin": "sin", "erf": "erf"}


def instruction_probes() -> list[Probe]:
    """Elements per microsecond for each class of operation and dtype, on one core with data in its first cache."""
    found: list[Probe] = []
    for name, dtype in _FLOATS.items():
        integer = _INTEGERS[name]
        bodies: dict[str, tuple[DType, list[Statement], float]] = {
            "add": (dtype, _chain(dtype, ("add",) * _CHAIN, 0.25), _CHAIN),
            "multiply": (dtype, _chain(dtype, ("multiply",) * _CHAIN, 0.99), _CHAIN),
            # a maximum that keeps NaN is four comparisons and choices
            "compare": (dtype, _chain(dtype, ("maximum", "minimum") * 4, 0.9), 4 * 8),
            "convert": (integer, _conversions(integer, dtype), 8),
            "integer": (integer, _chain(integer, ("add", "xor") * (_CHAIN // 2), 77), _CHAIN),
            "divide": (dtype, _chain(dtype, ("divide",) * 4, 1.5), 4),
            "power": (dtype, _chain(dtype, ("power",), 1.7), 1),
            **{kind: (dtype, _chain(dtype, (opcode,), None), 1) for kind, opcode in _UNARY.items()},
        }
        for kind, (kept, body, operations) in bodies.items():
            program = _repeated(f"probe_{kind}_{name}", kept, body, _LENGTH, _ROUNDS)
            found.append(Probe(f"{kind}/{name}", program, operations * _LENGTH * _ROUNDS))
        found += [_gather_probe(name, dtype), _scatter_probe(name, dtype), _fma_probe(name, dtype)]
    return found


def _fma_probe(name: str, dtype: DType) -> Probe:
    k = Symbol("k0", _LENGTH)
    body: list[Statement] = [Load(0, dtype, "x", of(k)), Constant(1, dtype, 0.9), Constant(2, dtype, 0.1)]
    body += [Map(number, dtype, "fma", (number - 1 if number > 3 else 0, 1, 2)) for number in range(3, 3 + _CHAIN)]
    body.append(Store("y", of(k), 2 + _CHAIN))
    program = _repeated(f"probe_fma_{name}", dtype, body, _LENGTH, _ROUNDS)
    return Probe(f"fma/{name}", program, 2.0 * _CHAIN * _LENGTH * _ROUNDS)


def _gather_probe(name: str, dtype: DType) -> Probe:
    k, r = Symbol("k0", _LENGTH), Symbol("i0", _ROUNDS)
    place = Affine(0, ((Element("0", (), 0, _LENGTH - 1), 1),))
    body = (Load(0, dtypes.I32, "at", of(k)), Load(1, dtype, "x", place), Store("y", of(k), 1))
    buffers = (
        Buffer("at", TensorType((_LENGTH,), dtypes.I32), Space.INPUT),
        Buffer("x", TensorType((_LENGTH,), dtype), Space.INPUT),
        Buffer("y", TensorType((_LENGTH,), dtype), Space.OUTPUT),
    )
    phase = Phase((r,), (RowGroup((Stage((k,), body, k),)),))
    return Probe(
        f"gather/{name}",
        TileProgram(f"probe_gather_{name}", buffers, ((phase,),), Schedule()),
        _LENGTH * _ROUNDS,
    )


def _scatter_probe(name: str, dtype: DType) -> Probe:
    """Every fifth element is written, so that lines are met again while they are in the cache."""
    k, r = Symbol("k0", _LENGTH), Symbol("i0", _ROUNDS)
    body = (Load(0, dtype, "x", of(k)), Store("y", of(k) * _SCATTERED, 0))
    buffers = (
        Buffer("x", TensorType((_LENGTH,), dtype), Space.INPUT),
        Buffer("y", TensorType((_LENGTH * _SCATTERED,), dtype), Space.OUTPUT),
    )
    phase = Phase((r,), (RowGroup((Stage((k,), body, k),)),))
    program = TileProgram(f"probe_scatter_{name}", buffers, ((phase,),), Schedule())
    return Probe(f"scatter/{name}", program, _LENGTH * _ROUNDS)


# ---- memory ------------------------------------------------------------------------------------------------------


def cache_probes(l1_bytes: int, l2_bytes: int) -> list[Probe]:
    """Bytes per microsecond of copies inside the first two caches of one core.

    The copies go through an `abs`, so that no library routine takes over.
    """
    found: list[Probe] = []
    for name, total in (("l1", l1_bytes // 3), ("l2", l2_bytes // 2)):
        length = total // 8
        rounds = max(2, (1 << 19) // total)
        k = Symbol("k0", length)
        body = [Load(0, dtypes.F32, "x", of(k)), Map(1, dtypes.F32, "abs", (0,)), Store("y", of(k), 1)]
        found.append(Probe(name, _repeated(f"probe_{name}", dtypes.F32, body, length, rounds), 8.0 * length * rounds))
    return found


def stream_probes(totals: Iterable[int]) -> list[Probe]:
    """Bytes per microsecond of copies with `totals` bytes in use, one pass by as many workers as are set."""
    found: list[Probe] = []
    for total in totals:
        length = total // 8
        i = Symbol("i0", length)
        stage = Stage(
            (), (Load(0, dtypes.F32, "x", of(i)), Map(1, dtypes.F32, "abs", (0,)), Store("y", of(i), 1)), None
        )
        buffers = (
            Buffer("x", TensorType((length,), dtypes.F32), Space.INPUT),
            Buffer("y", TensorType((length,), dtypes.F32), Space.OUTPUT),
        )
        phase = Phase((i,), (RowGroup((stage,)),), i)
        name = f"stream_{total}"
        found.append(Probe(name, TileProgram(name, buffers, ((phase,),), Schedule()), 8.0 * length, _TOGETHER_US))
    return found


def far_probes(pages: Iterable[int]) -> list[Probe]:
    """Steps per microsecond to one line after another, each on a page of its own, and back to the first.

    Steps are a line longer than a page, so that lines do not crowd into one set of a cache.
    """
    found: list[Probe] = []
    for count in pages:
        k, r = Symbol("k0", count), Symbol("r0", _IN_LINE)
        rounds = Symbol("i0", max(_FAR_STEPS // (count * _IN_LINE), 1))
        at = of(k) * _FAR_STRIDE + of(r)
        memory = TensorType((count * _FAR_STRIDE,), dtypes.F32)
        read = (
            Stage((r, k), (Load(0, dtypes.F32, "x", at), Reduce(1, dtypes.F32, "add", 0)), k),
            Stage((), (Store("y", of(rounds), 1),), None),
        )
        write = (Stage((r, k), (Constant(0, dtypes.F32, 0.5), Store("y", at, 0)), k),)
        kept = Buffer("x", memory, Space.INPUT), Buffer("y", TensorType((rounds.extent,), dtypes.F32), Space.OUTPUT)
        for name, stages, buffers in (
            ("read", read, kept),
            ("write", write, (Buffer("y", memory, Space.OUTPUT),)),
        ):
            title = f"far_{name}_{count}"
            program = TileProgram(title, buffers, ((Phase((rounds,), (RowGroup(stages),)),),), Schedule())
            found.append(Probe(title, program, float(rounds.extent * count * _IN_LINE)))
    return found


def overlap_probe(total: int) -> Probe:
    """Elements per microsecond of exponentials with `total` bytes in use: as much to compute as to move."""
    length = total // 8
    i = Symbol("i0", length)
    stage = Stage((), (Load(0, dtypes.F32, "x", of(i)), Map(1, dtypes.F32, "exp", (0,)), Store("y", of(i), 1)), None)
    buffers = (
        Buffer("x", TensorType((length,), dtypes.F32), Space.INPUT),
        Buffer("y", TensorType((length,), dtypes.F32), Space.OUTPUT),
    )
    phase = Phase((i,), (RowGroup((stage,)),), i)
    return Probe("overlap", TileProgram("probe_overlap", buffers, ((phase,),), Schedule()), float(length))


FORKS = 8
"""Launches in a row."""

# ---- products and overheads --------------------------------------------------------------------------------------


THIN_ROWS, THIN_COLUMNS, THIN_DEPTH = 16, 512, 256
"""Of a product that lays out its right factor for few rows."""


def product_probes(workers: int) -> list[Probe]:
    """Flops per microsecond of large products by BLAS, in one row block per worker."""
    found: list[Probe] = []
    for name, dtype in _FLOATS.items():
        size = 512 if name == "f32" else 384
        program = _product(f"probe_blas_{name}", dtype, size * workers, (size, size, size))
        found.append(Probe(f"blas/{name}", program, 2.0 * size * workers * size * size, _TOGETHER_US))
    return found


def thin_probe() -> Probe:
    """Calls per microsecond of a product by BLAS of few rows."""
    program = _product("probe_thin", dtypes.F32, THIN_ROWS, (THIN_ROWS, THIN_COLUMNS, THIN_DEPTH))
    return Probe("thin", program, 1.0)


def _product(name: str, dtype: DType, rows: int, shape: tuple[int, int, int]) -> TileProgram:
    """By BLAS: `rows` rows in blocks; `shape`: rows, columns and depth of a block."""
    height, columns, depth = shape
    i = Symbol("i0", rows)
    buffers = (
        Buffer("x", TensorType((rows, depth), dtype), Space.INPUT),
        Buffer("w", TensorType((depth, columns), dtype), Space.INPUT),
        Buffer("y", TensorType((rows, columns), dtype), Space.OUTPUT),
    )
    out, left = Matrix("y", of(i) * columns, columns, 1), Matrix("x", of(i) * depth, depth, 1)
    dot = Dot(out, left, Matrix("w", Affine(), columns, 1), height, columns, depth, dtype)
    phase = Phase((i,), (dot,), None, RowBlock(i, Symbol("row", height), height))
    return TileProgram(name, buffers, ((phase,),), Schedule.of({PRODUCTS: "library"}))


def fork_probes(pieces: int) -> list[Probe]:
    """Launches per microsecond of a kernel of so many pieces, each of which is worth handing to another worker.

    There are several, one after another: at the first of them the workers may sleep.
    """
    return [_fork_probe(f"fork_{number}", pieces) for number in range(FORKS)]


def _fork_probe(name: str, pieces: int) -> Probe:
    i, r, k = Symbol("i0", pieces), Symbol("r0", _PIECE_ROUNDS), Symbol("k0", _LENGTH)
    body = (Load(0, dtypes.F32, "x", of(k)), Map(1, dtypes.F32, "exp", (0,)), Store("y", of(i) * _LENGTH + of(k), 1))
    buffers = (
        Buffer("x", TensorType((_LENGTH,), dtypes.F32), Space.INPUT),
        Buffer("y", TensorType((pieces * _LENGTH,), dtypes.F32), Space.OUTPUT),
    )
    phase = Phase((i,), (RowGroup((Stage((r, k), body, k),)),))
    return Probe(name, TileProgram(f"probe_{name}", buffers, ((phase,),), Schedule()), 1.0, _ALWAYS_US)
