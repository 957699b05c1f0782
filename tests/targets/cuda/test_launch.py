"""What of launching can be checked without a GPU: the checks themselves. tests/gpu/ runs kernels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autofuse.errors import ArgumentError, BackendError
from autofuse.ir.dtypes import F32
from autofuse.lower.tile import Space
from autofuse.targets.cuda import launch
from autofuse.targets.cuda.backend import _visible
from autofuse.targets.cuda.codegen import generate
from tests.fixtures import handbuilt

X = handbuilt.buffer("x", Space.INPUT, F32, 2, 8)


def device_array(shape: tuple[int, ...], dtype: Any = np.float32, address: int = 512, contiguous: bool = True) -> Any:
    flags = SimpleNamespace(c_contiguous=contiguous)
    return SimpleNamespace(shape=shape, dtype=np.dtype(dtype), flags=flags, data=SimpleNamespace(ptr=address))


def test_a_matching_array_is_taken() -> None:
    launch.check_argument(X, device_array((2, 8)))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (device_array((8, 2)), r"buffer x must be a C-contiguous f32\[2,8\], got float32\[8, 2\]"),
        (device_array((2, 8), np.float64), r"got float64\[2, 8\]"),
        (device_array((2, 8), contiguous=False), "cupy.ascontiguousarray"),
        (device_array((2, 8), address=516), "multiple of 16 bytes, got address 0x204"),
    ],
)
def test_a_wrong_array_is_refused(array: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        launch.check_argument(X, array)


def test_without_cupy_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_cupy(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(launch, "_has_driver", lambda: True)
    monkeypatch.setattr(launch, "import_module", no_cupy)
    launch.gpu_problem.cache_clear()
    try:
        with pytest.raises(BackendError, match=r"pip install 'autofuse\[cuda\]'"):
            launch.LoadedKernel(generate(handbuilt.binary("add", "add", 8), "sm_90"))
    finally:
        launch.gpu_problem.cache_clear()


@pytest.mark.parametrize(
    ("listed", "names"),
    [(None, ["0", "1", "2"]), ("", ["0", "1", "2"]), ("5, GPU-7,1", ["5", "GPU-7", "1"]), ("3,4,5,6", ["3", "4", "5"])],
)
def test_processes_get_the_devices_that_this_one_sees(listed: str | None, names: list[str]) -> None:
    environment = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    assert _visible(3, environment) == names
