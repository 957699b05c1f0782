"""CuPy as an array library: its functions by NumPy's and SciPy's names, and arrays of it over memory of a plan's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from autofuse.errors import BackendError, CallError
from autofuse.targets.cuda.library.cupyhas import require_there
from autofuse.targets.cuda.library.form import Form, Given, computed

_MODULES = {
    "numpy": "cupy",
    "numpy.linalg": "cupy.linalg",
    "scipy.linalg": "cupyx.scipy.linalg",
    "scipy.ndimage": "cupyx.scipy.ndimage",
    "scipy.special": "cupyx.scipy.special",
}


class CupyLibrary:
    """See `autofuse.targets.cuda.library.form.ArrayLibrary`. CuPy works in the caller's current stream."""

    def __init__(self, cupy: Any, device: int) -> None:
        """`cupy`: the module. `device`: the number of the device."""
        self._cupy, self._device = cupy, device

    def function(self, module: str, name: str) -> Callable[..., Any]:
        require_there(module, name)
        try:
            return getattr(import_module(_MODULES[module]), name)
        except (ImportError, AttributeError) as error:
            raise CallError(f"{module}.{name}: CuPy {self._cupy.__version__} does not have it: {error}") from error

    def call(self, form: Form, operands: Sequence[Given], results: Sequence[Given]) -> None:
        """See `autofuse.targets.cuda.driver.Driver.call`."""
        if not any(place.type.size for place in results):
            return  # CuPy does not take all that is empty
        import cupyx  # pyright: ignore[reportMissingImports]  # optional, as CuPy is

        given = [self._array(place) for place in operands]
        with cupyx.errstate(linalg="raise"):  # of this thread: a singular matrix is an error, as it is NumPy's
            found = self._computed(form, given, results)
        for place, array in zip(results, found, strict=True):
            self._cupy.copyto(self._array(place), array)

    def _computed(self, form: Form, operands: Sequence[Any], results: Sequence[Given]) -> list[Any]:
        """Raises what the device itself says, which is the driver's to tell, and BackendError for its libraries."""
        cuda = self._cupy.cuda
        try:
            return computed(form, self, operands, results)
        except (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError):
            raise
        except RuntimeError as error:  # of cuSOLVER, cuBLAS or NVRTC
            raise BackendError(f"{form.label}: {type(error).__name__}: {error}") from error

    def _array(self, place: Given) -> Any:
        cuda = self._cupy.cuda
        memory = cuda.UnownedMemory(place.pointer, max(place.type.nbytes, 1), self, self._device)
        return self._cupy.ndarray(place.type.shape, place.stored, cuda.MemoryPointer(memory, 0))
