"""What of the driver through CuPy can be checked without a GPU, on a stand-in for CuPy."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.errors import BackendError, DeviceLostError, NotEnoughMemoryError
from autofuse.ir.dtypes import F32
from autofuse.targets.cuda import cupydriver, launch
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.cupydriver import CupyDriver
from autofuse.targets.cuda.driver import CudaCode
from autofuse.targets.cuda.gpus import ALL
from tests.fixtures import handbuilt


class CudaRuntimeError(RuntimeError):
    """As CuPy's errors: with the number of CUDA."""

    def __init__(self, status: int) -> None:
        super().__init__(f"error {status}")
        self.status = status


class CudaDriverError(CudaRuntimeError):
    """Of the driver's interface."""


class PoolEmptyError(MemoryError):
    """Of CuPy's pool."""


class Cupy:
    """As far as the driver asks for it."""

    def __init__(self) -> None:
        self.context = 0
        self.failure: Exception | None = None
        self.now_ms = 0.0
        stream = SimpleNamespace(ptr=0, synchronize=self._wait)
        self.cuda = SimpleNamespace(
            Device=lambda _number: nullcontext(),
            Event=self._event,
            get_elapsed_time=lambda start, end: end.ms - start.ms,
            get_current_stream=lambda: stream,
            memory=SimpleNamespace(OutOfMemoryError=PoolEmptyError),
            driver=SimpleNamespace(CUDADriverError=CudaDriverError, ctxGetCurrent=lambda: self.context),
            runtime=SimpleNamespace(CUDARuntimeError=CudaRuntimeError, memGetInfo=self._begin),
        )

    def _begin(self) -> None:
        self.context = 1

    def _wait(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _event(self) -> Any:
        event = SimpleNamespace(ms=0.0, synchronize=self._wait)

        def record() -> None:
            self._wait()
            self.now_ms += 0.25
            event.ms = self.now_ms

        event.record = record
        return event


@pytest.fixture
def cupy() -> Cupy:
    return Cupy()


@pytest.fixture
def driver(cupy: Cupy, monkeypatch: pytest.MonkeyPatch) -> CupyDriver:
    monkeypatch.setattr(cupydriver, "cupy_with_gpu", lambda: cupy)
    monkeypatch.setattr(CupyDriver, "_delay", lambda _self, *_launch: None)
    return CupyDriver(ALL["h100"], 0)


def test_a_thread_that_enters_has_the_devices_context(driver: CupyDriver, cupy: Cupy) -> None:
    with driver.entered():
        assert cupy.context


def test_the_clock_counts_what_events_say(driver: CupyDriver) -> None:
    assert [driver.clock() for _ in range(3)] == [0, 250_000, 500_000]


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (CudaRuntimeError(700), DeviceLostError),
        (CudaDriverError(701), BackendError),
        (PoolEmptyError("full"), NotEnoughMemoryError),
    ],
)
def test_errors_of_cuda_become_ours(
    driver: CupyDriver, cupy: Cupy, monkeypatch: pytest.MonkeyPatch, failure: Exception, kind: type[Exception]
) -> None:
    def refuse(_kernel: object) -> None:
        raise failure

    monkeypatch.setattr(cupydriver, "LoadedKernel", refuse)
    program = handbuilt.binary("add", "add", 8, F32)
    with pytest.raises(kind, match="H100"):
        driver.load([CudaCode(program, generate(program, "sm_90"))])
    cupy.failure = failure
    for asked in (driver.wait, driver.clock):
        with pytest.raises(kind, match="H100"):
            asked()


def test_the_attribute_for_large_clusters_is_cudas() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    attribute = bindings.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    assert int(attribute) == launch._NON_PORTABLE_CLUSTERS
