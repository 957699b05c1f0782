"""Arrays of a simulated device: what of CuPy's arrays callers need, views included."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.devicearrays import footprint
from autofuse.testing.simt.memory import Block
from autofuse.testing.simt.timeline import Timeline


class SimulatedArray:
    """An array on the simulated device, or a view of one."""

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        block: Block,
        timeline: Timeline,
        place: tuple[int, tuple[int, ...] | None] | None = None,
        base: SimulatedArray | None = None,
    ) -> None:
        """`block`: where it lies. `timeline`: what must be done before it is looked at.

        `place`: address and strides, by default of a C-contiguous array that begins with the block. `base`: what it is
        a view of, whose memory lives as long.
        """
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize
        self.block, self._timeline, self._base = block, timeline, base
        pointer, self.strides = place or (block.address, None)
        self.data = SimpleNamespace(ptr=pointer)
        self.flags = SimpleNamespace(c_contiguous=footprint(self).flags.c_contiguous)

    @property
    def now(self) -> NDArray[Any]:
        """Its elements, where they are, as they are now."""
        image = footprint(self)
        first, end = np.lib.array_utils.byte_bounds(image) if image.size else (self.data.ptr, self.data.ptr)
        memory = self.block.bytes_at(first, end - first)
        return np.ndarray(self.shape, self.dtype, memory, self.data.ptr - first, image.strides)

    @property
    def host(self) -> NDArray[Any]:
        """The same when all that was started is done."""
        self._timeline.finish()
        return self.now

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """What other libraries ask."""
        typestr, data = self.dtype.str, (self.data.ptr, False)
        return {"version": 3, "shape": self.shape, "typestr": typestr, "data": data, "strides": self.strides}

    def __getitem__(self, key: Any) -> SimulatedArray:
        """A view, or itself: an array of the device has no scalars."""
        if key == ():
            return self
        view = footprint(self)[key]
        return self.seen_as(view.shape, self.dtype, view.__array_interface__["data"][0], view.strides)

    def seen_as(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], pointer: int, strides: tuple[int, ...] | None
    ) -> SimulatedArray:
        """A view of it."""
        return SimulatedArray(shape, dtype, self.block, self._timeline, (pointer, strides), self)

    def get(self) -> NDArray[Any]:
        """A copy on the host."""
        return self.host.copy()
