"""Machines where no kernel can be launched: each says why in one line. CuPy is a stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import BackendError
from autofuse.targets.cuda import launch


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    launch.gpu_problem.cache_clear()
    yield
    launch.gpu_problem.cache_clear()


def cupy(answer: int | str) -> Any:
    """CuPy that finds so many devices, or fails to look for them."""

    class CUDARuntimeError(RuntimeError): ...

    def count() -> int:
        if isinstance(answer, str):
            raise CUDARuntimeError(answer)
        return answer

    runtime = SimpleNamespace(CUDARuntimeError=CUDARuntimeError, getDeviceCount=count)
    return SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (0, "CUDA finds no GPU: there is no device"),
        ("cudaErrorInsufficientDriver: CUDA driver version is insufficient", "driver is older than the CUDA that CuPy"),
        ("cudaErrorNoDevice: no CUDA-capable device is detected", "CUDA finds no GPU: cudaErrorNoDevice"),
    ],
)
def test_what_is_missing_is_named(answer: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_has_driver", lambda: True)
    monkeypatch.setattr(launch, "import_module", lambda _: cupy(answer))
    with pytest.raises(BackendError, match=message):
        af.compile(lambda x: x + 1, np.ones(4), backend="cuda")


def test_a_machine_without_cupy_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> Any:
        raise ImportError

    monkeypatch.setattr(launch, "_has_driver", lambda: True)
    monkeypatch.setattr(launch, "import_module", missing)
    with pytest.raises(BackendError, match=r"pip install 'autofuse\[cuda\]'"):
        af.compile(lambda x: x + 1, np.ones(4), backend="cuda")
