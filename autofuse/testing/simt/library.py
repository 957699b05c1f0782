"""What stands for CuPy on a simulated device: NumPy's and SciPy's functions, those of them that CuPy has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autofuse.targets.cuda.library.cupyhas import require_there
from autofuse.targets.cuda.library.form import Form, Given, computed

if TYPE_CHECKING:
    from autofuse.testing.simt.device import SimulatedDriver


class SimulatedLibrary:
    """See `autofuse.targets.cuda.library.form.ArrayLibrary`."""

    def __init__(self, driver: SimulatedDriver) -> None:
        """`driver`: whose memory the arrays lie in."""
        self._driver = driver

    def function(self, module: str, name: str) -> Callable[..., Any]:
        require_there(module, name)
        return getattr(import_module(module), name)

    def run(self, form: Form, operands: Sequence[Given], results: Sequence[Given]) -> None:
        """Now. Raises BackendError for memory that nobody has, and for a write beside a result."""
        if not any(place.type.size for place in results):
            return
        blocks = [self._driver.holder(given.pointer, given.type.nbytes) for given in (*operands, *results)]
        given = [self._array(place) for place in operands]
        for array in given:
            array.flags.writeable = False
        with np.errstate(all="ignore"):
            found = computed(form, self, given, results)
        for place, array in zip(results, found, strict=True):
            np.copyto(self._array(place), array)
        for block in blocks:
            block.check()

    def _array(self, place: Given) -> NDArray[Any]:
        held = self._driver.bytes_at(place.pointer, place.type.nbytes)
        return held.view(place.stored).reshape(place.type.shape)
