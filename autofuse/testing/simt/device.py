"""A simulated GPU behind the driver's interface: kernels run in the shim, and its clock is the cost model's.

What a driver would not forgive is an error: addresses in memory that was given back or never handed out, buffers that
are too short or not aligned, writes beside a buffer or into an input. Memory is poisoned when it is handed out and when
it is given back. What is started runs in any order that streams and events allow, and the threads of each launch
forwards or backwards, both drawn from a seed. Failures can be had on demand.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Event, local
from typing import Any, Literal
from weakref import WeakValueDictionary, finalize

import numpy as np
from numpy.typing import NDArray

from autofuse.cost_models.base import KernelFacts, Prices
from autofuse.errors import ArgumentError, BackendError, DeviceLostError, NotEnoughMemoryError
from autofuse.ir.devicearrays import offers_device_memory, type_of_device_array
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import replace
from autofuse.targets.cuda.codegen.cudakernel import ALIGNMENT, CudaKernel
from autofuse.targets.cuda.cost.librarycosts import form_us
from autofuse.targets.cuda.cost.model import GpuModel
from autofuse.targets.cuda.cost.rates import Rates
from autofuse.targets.cuda.cublaslt import CublasLt
from autofuse.targets.cuda.driver import CAPTURED, CudaCode, Function, Node
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.library.form import Form, Given
from autofuse.targets.cuda.productcalls import product_function
from autofuse.testing.simt.array import SimulatedArray
from autofuse.testing.simt.cublaslt import FakeCublasLt
from autofuse.testing.simt.entrance import SimulatedEntrance
from autofuse.testing.simt.functions import SimulatedFunction, SimulatedGraph, SimulatedProduct
from autofuse.testing.simt.library import SimulatedLibrary
from autofuse.testing.simt.memory import Block, Pool
from autofuse.testing.simt.runner import Order, SimtModule
from autofuse.testing.simt.timeline import Operation, SimulatedStream, Timeline

_ORDERS: tuple[Order, ...] = ("forward", "reverse")
_COPY_NS = 5_000_000
SLOWER = 1000
"""Times the device that it is like: few calls then fill a moment, as each takes the host milliseconds."""
Failing = Literal["compile", "allocate", "launch", "kernel", "graph", "lose", "hang"]
"""What can be made to fail: compiling, giving out memory, starting a kernel, a kernel that runs, making a graph; a
kernel after which the device does nothing more for this process, and one that does not end."""


class SimulatedModel(GpuModel):
    """The model, of a device that is so much slower."""

    def price(self, kernels: Sequence[KernelFacts]) -> Prices:
        found = super().price(kernels)
        return replace(found, us=found.us * SLOWER, floor_us=found.floor_us * SLOWER)

    def write_us(self, value: TensorType) -> float:
        return super().write_us(value) * SLOWER

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "name": "analytical-simulated"}


class SimulatedDriver:
    """See `autofuse.targets.cuda.driver.Driver`. Each is a device of its own."""

    def __init__(
        self,
        gpu: Gpu,
        seed: int = 0,
        order: Order | None = None,
        *,
        graphs: bool = True,
        rates: Rates | None = None,
        cublaslt: bool = False,
    ) -> None:
        """`gpu`: the device that it is like. `seed`: of the order in which work, threads and blocks run.

        `order`: of threads and blocks, in every launch. `graphs`: whether it can replay graphs. `rates`: at
        which it works, by default those of the data sheet. `cublaslt`: whether there are bindings of it.
        """
        self.gpu, self.has_graphs = gpu, graphs
        self.order: Order | None = order
        self.limit_bytes = gpu.memory_bytes
        """Of its memory."""
        self.calls: Counter[str] = Counter()
        """How often the driver was asked for what: `launch`, `graph launch`, `library call`, `allocate`, ..."""
        self._model = SimulatedModel(gpu, rates)
        self._random = random.Random(seed)
        self._timeline = Timeline(seed + 1)
        self._lock = self._timeline.lock
        self._pool = Pool()
        self._used = 0
        self._gone: deque[tuple[Block, SimulatedStream, int]] = deque()
        """Of arrays that nobody has any more: garbage is collected at any moment, in any thread."""
        self._live: WeakValueDictionary[int, SimulatedArray] = WeakValueDictionary()
        self._failing: dict[Failing, int] = {}
        self.is_lost = False
        """Whether an error of a kernel has ended all use of it."""
        self._streams: list[SimulatedStream] = []
        self._thread = local()
        self._default = self.stream()
        self._library = SimulatedLibrary(self)
        self.cublaslt = FakeCublasLt(self.bytes_at) if cublaslt else None
        """In place of its bindings."""
        self._products = None if self.cublaslt is None else CublasLt(self.cublaslt)

    def version(self) -> str:
        return "simulated"

    def library(self) -> str:
        """In the place of CuPy."""
        return f"numpy {np.__version__}"

    # ---- kernels ---------------------------------------------------------------------------------------------------
    def conditions(self) -> str:
        """It has no clocks to ask for."""
        return "unknown: the device is simulated"

    def load(self, codes: Sequence[CudaCode]) -> Sequence[Function]:
        self.may_fail("compile")
        module = SimtModule([code.kernel for code in codes if code.library is None])
        prices = self._model.price([KernelFacts(code.program) for code in codes])
        expected = [
            us if code.together_us is None else SLOWER * code.together_us
            for code, us in zip(codes, prices.us, strict=True)
        ]
        times = [max(1, round(1e3 * us)) for us in expected]
        return [
            SimulatedFunction(self, module, code, time)
            if code.library is None
            else SimulatedProduct(
                self,
                product_function(self._products, code.library, code.kernel.parameters, lambda: 0),
                tuple(buffer.type.nbytes for buffer in code.kernel.parameters),
                time,
            )
            for code, time in zip(codes, times, strict=True)
        ]

    def compiled(self, kernel: CudaKernel) -> None:  # noqa: ARG002  # the host's compiler compiles what runs here
        return None

    def cublas_version(self) -> str:
        return "" if self._products is None else self._products.version

    def graph(self, nodes: Sequence[Node]) -> SimulatedGraph | None:
        if not self.has_graphs:
            return None
        self.may_fail("graph")
        self.calls["instantiate"] += 1
        return SimulatedGraph(self, nodes)

    def call(self, form: Form, operands: Sequence[Given], results: Sequence[Given]) -> None:
        self.calls["library call"] += 1
        self.may_fail("launch")
        reads, writes = [given.type for given in operands], [given.type for given in results]
        takes_ns = round(1e3 * SLOWER * form_us(form, reads, writes, self._model.rates))
        called = self.start(partial(self._called, form, tuple(operands), tuple(results)), takes_ns=takes_ns)
        if form.raises:
            self._timeline.finish(called)

    def _called(self, form: Form, operands: Sequence[Given], results: Sequence[Given]) -> None:
        self.may_fail("kernel")
        self._library.run(form, operands, results)

    # ---- streams ---------------------------------------------------------------------------------------------------

    @contextmanager
    def entered(self) -> Generator[None]:
        if self.current.is_captured:
            raise BackendError(f"{self.gpu.name}: {CAPTURED}")
        yield

    def entrance(
        self, arguments: Sequence[TensorType], results: Sequence[TensorType], arena_bytes: int
    ) -> SimulatedEntrance:
        return SimulatedEntrance(self, arguments, results, arena_bytes)

    def stream(self) -> SimulatedStream:
        """A new one. `with stream:` makes it the current one of the thread."""
        return SimulatedStream(self._timeline, self._use)

    def streams(self, count: int) -> Sequence[SimulatedStream]:
        with self._lock:
            fresh = [self.stream() for _ in range(len(self._streams), count - 1)]
            self.calls["stream"] += len(fresh)
            self._streams += fresh
            return [self.current, *self._streams[: count - 1]]

    @property
    def current(self) -> SimulatedStream:
        """The current stream of this thread."""
        used: list[SimulatedStream] = getattr(self._thread, "streams", [])
        return used[-1] if used else self._default

    def _use(self, stream: SimulatedStream | None) -> None:
        used = self._thread.__dict__.setdefault("streams", [])
        if stream is None:
            used.pop()
        else:
            used.append(stream)

    def start(
        self, run: Callable[[], None], needs: Sequence[Operation] | None = None, *, takes_ns: int, share: float = 1.0
    ) -> Operation:
        """Start something in the current stream, or, if it is said what it needs, in none."""
        with self._lock:
            self._require_here()
            self._collect()
            if needs is None:
                return self.current.add(run, takes_ns=takes_ns, share=share)
            return self._timeline.add(run, needs, takes_ns=takes_ns, share=share)

    def wait(self) -> None:
        self._require_here()
        self.current.synchronize()

    def clock(self) -> int:
        self._require_here()
        self._timeline.finish()
        return self._timeline.now_ns

    def advance(self, nanoseconds: int) -> None:
        """Let time pass."""
        self._timeline.pause(nanoseconds)

    def drawn_order(self) -> Order:
        """In which threads of the next launch run."""
        with self._lock:
            drawn = self._random.choice(_ORDERS)
        return drawn if self.order is None else self.order

    # ---- failures --------------------------------------------------------------------------------------------------

    def fail(self, what: Failing, skip: int = 0) -> None:
        """Have something fail once, the next time but `skip`."""
        self._failing[what] = skip

    def may_fail(self, what: Failing) -> None:
        """Raise BackendError, or NotEnoughMemoryError for memory, if this is the time; for ever once it is lost."""
        with self._lock:
            left = self._failing.pop(what, None)
            if left:
                self._failing[what] = left - 1
        if left == 0 and what == "hang":
            Event().wait()
        self.is_lost |= left == 0 and what == "lose"
        self._require_here()
        if left == 0:
            kind = NotEnoughMemoryError if what == "allocate" else BackendError
            raise kind(f"{self.gpu.name}: a failure on demand: {what}")

    def _require_here(self) -> None:
        """Raise DeviceLostError if it is lost."""
        if self.is_lost:
            raise DeviceLostError(f"{self.gpu.name}: a kernel failed on demand: nothing more runs in this process")

    # ---- memory ----------------------------------------------------------------------------------------------------

    def empty(self, kind: TensorType) -> SimulatedArray:
        self.may_fail("allocate")
        return self._made(kind.shape, kind.dtype.numpy)

    def _made(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> SimulatedArray:
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        with self._lock:
            self._collect()
            if self._used + nbytes > self.limit_bytes:
                raise NotEnoughMemoryError(
                    f"{self.gpu.name}: asked for {nbytes} bytes beside {self._used}; it has {self.limit_bytes}"
                )
            stream = self.current
            block, is_new = self._pool.take(stream, nbytes)
            self.calls["allocate"] += is_new
            self._used += nbytes
            stream.add(partial(block.begin, nbytes), tidies=True)
            array = SimulatedArray(shape, dtype, block, self._timeline)
            self._live[block.address] = array
            finalize(array, self._gone.append, (block, stream, nbytes)).atexit = False
            return array

    def _collect(self) -> None:
        """Give back the memory of arrays that are gone, when their streams come to it."""
        while self._gone:
            block, stream, nbytes = self._gone.popleft()
            self._used -= nbytes
            stream.add(block.end, tidies=True)
            if not self._pool.give_back(stream, block):
                stream.add(partial(self._pool.drop, block), tidies=True)

    def adopt(self, value: Any) -> SimulatedArray | None:
        found = value
        if not isinstance(value, SimulatedArray):
            if hasattr(type(value), "__cuda_array_interface__"):
                found = self._offered(value)
            elif hasattr(type(value), "__dlpack_device__") and offers_device_memory(value):
                found = value.__dlpack__(stream=self.current)
            else:
                return None
        if found is None or self._pool.block_of(found.data.ptr) is not found.block:
            raise ArgumentError("lies on another simulated device than the plan's: copy it there")
        return found

    def _offered(self, value: Any) -> SimulatedArray | None:
        """The array of an object that has `__cuda_array_interface__`, if it lies here."""
        offered = value.__cuda_array_interface__
        with self._lock:
            block = self._pool.block_of(offered["data"][0])
            base = None if block is None else self._live.get(block.address)
        if base is None:
            return None
        dtype = type_of_device_array(value).dtype.numpy
        return base.seen_as(offered["shape"], dtype, offered["data"][0], offered.get("strides"))

    def array(self, source: NDArray[Any]) -> SimulatedArray:
        """A copy on the device, as `cupy.asarray` makes one."""
        array = self._made(source.shape, source.dtype)
        self.write(array.data.ptr, source)
        return array

    def pointer(self, array: SimulatedArray) -> int:
        return array.data.ptr

    def is_plain(self, array: SimulatedArray) -> bool:
        return bool(array.flags.c_contiguous) and array.data.ptr % ALIGNMENT == 0

    def copied(self, array: SimulatedArray) -> SimulatedArray:
        made = self._made(array.shape, array.dtype)
        self.assign(made, array)
        return made

    def assign(self, target: SimulatedArray, source: SimulatedArray) -> None:
        self._copy(lambda: np.copyto(target.now, source.now))

    def write(self, pointer: int, source: NDArray[Any]) -> None:
        staged = np.array(source, order="C").reshape(-1).view(np.uint8)
        self._copy(lambda: np.copyto(self.bytes_at(pointer, staged.nbytes), staged))

    def read(self, pointer: int, target: NDArray[Any]) -> None:
        there = target.reshape(-1).view(np.uint8)
        self._timeline.finish(self._copy(lambda: np.copyto(there, self.bytes_at(pointer, target.nbytes))))

    def move(self, target: int, source: int, nbytes: int) -> None:
        self._copy(lambda: np.copyto(self.bytes_at(target, nbytes), self.bytes_at(source, nbytes)))

    def _copy(self, run: Callable[[], None]) -> Operation:
        self.calls["copy"] += 1
        return self.start(run, takes_ns=_COPY_NS)

    def bytes_at(self, pointer: int, nbytes: int) -> NDArray[np.uint8]:
        """Of the device's memory, now. Raises BackendError for memory that nobody has."""
        return self._pool.bytes_at(pointer, nbytes)

    def holder(self, pointer: int, nbytes: int) -> Block:
        """The block where that memory is, now. Raises BackendError for memory that nobody has."""
        return self._pool.holder(pointer, nbytes)
