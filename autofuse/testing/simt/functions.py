"""Kernels of a simulated device, alone and in graphs: the unchanged CUDA C, run in the shim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import BackendError
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.tile import Buffer, Space
from autofuse.targets.cuda.codegen.cudakernel import ALIGNMENT, CudaKernel
from autofuse.targets.cuda.driver import CudaCode, Node
from autofuse.targets.cuda.productcalls import ProductFunction
from autofuse.targets.cuda.streams import share_of
from autofuse.testing.simt.runner import Order, SimtModule
from autofuse.testing.simt.timeline import Operation

if TYPE_CHECKING:
    from autofuse.testing.simt.device import SimulatedDriver


@dataclass(frozen=True, slots=True)
class SimulatedFunction:
    """See `autofuse.targets.cuda.driver.Function`."""

    driver: SimulatedDriver
    module: SimtModule
    code: CudaCode
    takes_ns: int

    def __call__(self, pointers: Sequence[int]) -> None:
        self.driver.calls["launch"] += self.launches
        self.driver.may_fail("launch")
        takes_ns, share = self.cost
        self.driver.start(self.work(pointers), takes_ns=takes_ns, share=share)

    @property
    def launches(self) -> int:
        """Grids that it starts."""
        return len(self.code.kernel.launches)

    @property
    def cost(self) -> tuple[int, float]:
        """Nanoseconds, and the share of the device that is busy meanwhile."""
        return self.takes_ns, share_of(self.code.kernel, self.driver.gpu)

    def work(self, pointers: Sequence[int]) -> partial[None]:
        """What runs it on these addresses. Raises BackendError for those that are not aligned."""
        for buffer, pointer in zip(self.code.kernel.parameters, pointers, strict=True):
            if pointer % ALIGNMENT:
                raise BackendError(f"{self.code.kernel.name}: buffer {buffer.name} at {pointer:#x} is not aligned")
        _require_apart(self.code.kernel, pointers)
        return partial(self._run, tuple(pointers), self.driver.drawn_order())

    def _run(self, pointers: Sequence[int], order: Order) -> None:
        for failure in ("kernel", "lose", "hang"):
            self.driver.may_fail(failure)
        kernel = self.code.kernel
        held = [self.driver.holder(p, b.type.nbytes) for b, p in zip(kernel.parameters, pointers, strict=True)]
        read = [
            (buffer.name, self._bytes(buffer, at), self._bytes(buffer, at).copy())
            for buffer, at in zip(kernel.parameters, pointers, strict=True)
            if buffer.space is Space.INPUT and not self._is_written(buffer, pointers)
        ]
        self.module.run_at(kernel, pointers, order=order)
        for block in held:
            block.check()
        for name, now, before in read:
            if not np.array_equal(now, before):
                raise BackendError(f"{kernel.name} writes to its input {name}")

    def _bytes(self, buffer: Buffer, pointer: int) -> NDArray[np.uint8]:
        return self.driver.bytes_at(pointer, buffer.type.nbytes)

    def _is_written(self, buffer: Buffer, pointers: Sequence[int]) -> bool:
        """Whether an output of the kernel lies where this input does: the plan lets it write there."""
        at = {b.name: pointer for b, pointer in zip(self.code.kernel.parameters, pointers, strict=True)}
        outputs = [b for b in self.code.kernel.parameters if b.space is not Space.INPUT]
        return any(at[buffer.name] == at[output.name] for output in outputs)


@dataclass(frozen=True, slots=True)
class SimulatedProduct:
    """A kernel that the stand-in for cuBLASLt computes. See `autofuse.targets.cuda.driver.Function`."""

    driver: SimulatedDriver
    function: ProductFunction
    parameter_bytes: tuple[int, ...]
    takes_ns: int

    def __call__(self, pointers: Sequence[int]) -> None:
        self.driver.calls["launch"] += 1
        self.driver.may_fail("launch")
        takes_ns, share = self.cost
        self.driver.start(self.work(pointers), takes_ns=takes_ns, share=share)

    @property
    def launches(self) -> int:
        """One call."""
        return 1

    @property
    def cost(self) -> tuple[int, float]:
        """Nanoseconds, and that it fills the device."""
        return self.takes_ns, 1.0

    def work(self, pointers: Sequence[int]) -> partial[None]:
        """What runs it on these addresses."""
        return partial(self._run, tuple(pointers))

    def _run(self, pointers: Sequence[int]) -> None:
        self.driver.may_fail("kernel")
        held = [self.driver.holder(at, size) for at, size in zip(pointers, self.parameter_bytes, strict=True)]
        self.function(pointers)
        for block in held:
            block.check()


def _require_apart(kernel: CudaKernel, pointers: Sequence[int]) -> None:
    """Raise BackendError if kernels that are launched together touch what one of them writes."""
    members = [number for number, count in enumerate(kernel.members) for _ in range(count)]
    touched = sorted(
        (at, at + buffer.type.nbytes, member, buffer.space is not Space.INPUT, buffer.name)
        for member, buffer, at in zip(members, kernel.parameters, pointers, strict=bool(members))
        if buffer.type.nbytes
    )
    for number, (_, end, member, written, name) in enumerate(touched):
        for at, _, other, writes, second in touched[number + 1 :]:
            if at >= end:
                break
            if member != other and (written or writes):
                raise BackendError(f"{kernel.name}: members that run at the same time share memory: {name}, {second}")


class SimulatedGraph:
    """See `autofuse.targets.cuda.driver.Graph`."""

    def __init__(self, driver: SimulatedDriver, nodes: Sequence[Node]) -> None:
        """Of functions of the driver's."""
        self._driver, self._nodes = driver, list(nodes)
        self._last: Operation | None = None

    def __call__(self, changed: Mapping[int, Sequence[int]]) -> None:
        driver = self._driver
        for number, pointers in changed.items():
            driver.calls["node update"] += 1
            self._nodes[number] = replace(self._nodes[number], pointers=pointers)
        driver.calls["graph launch"] += 1
        driver.may_fail("launch")
        stream = driver.current
        if self._last is not None:
            stream.wait_event(self._last)  # the launches of one graph wait for each other
        begin, ends = stream.record(), list[Operation]()
        for node in self._nodes:
            assert isinstance(node.function, SimulatedFunction | SimulatedProduct)
            takes_ns, share = node.function.cost
            needs = (begin, *(ends[number] for number in node.after))
            ends.append(driver.start(node.function.work(node.pointers), needs, takes_ns=takes_ns, share=share))
        for end in ends:
            stream.wait_event(end)
        self._last = stream.record()
