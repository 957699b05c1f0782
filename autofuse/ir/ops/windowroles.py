"""What gather and scatter have in common: dimension roles, and the operand positions of every window element.

Names follow StableHLO's gather; scatter is the same map read the other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir.graph import Attrs
from autofuse.ir.ops import require
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Roles:
    """Which dimension of the operand, the index array and the windowed array is which.

    The windowed array is gather's result and scatter's updates.
    """

    op: str
    names: tuple[str, str, str, str, str, str]
    """The op's attribute names of the next six fields."""
    window: tuple[int, ...]
    """Dimensions of the windowed array that walk a window, ascending."""
    collapsed: tuple[int, ...]
    """Operand dimensions that a window has one element of."""
    operand_batching: tuple[int, ...]
    indices_batching: tuple[int, ...]
    index_map: tuple[int, ...]
    """The operand dimension that each component of an index vector addresses."""
    index_vector_dim: int
    operand_rank: int
    indices_rank: int

    @staticmethod
    def of(op: str, names: tuple[str, str, str, str, str, str], attrs: Attrs, operand: int, indices: int) -> Roles:
        """The roles that `attrs` give to an operand and an index array of these ranks."""
        window, collapsed, batching, indices_batching, index_map, vector = (attrs[name] for name in names)
        return Roles(op, names, window, collapsed, batching, indices_batching, index_map, vector, operand, indices)

    @property
    def windowed_rank(self) -> int:
        return len(self.indices_dims) + len(self.window)

    @property
    def indices_dims(self) -> tuple[int, ...]:
        """Dimensions of the index array that count index vectors."""
        return tuple(d for d in range(self.indices_rank) if d != self.index_vector_dim)

    @property
    def batch(self) -> tuple[int, ...]:
        """Dimensions of the windowed array that count index vectors, in order."""
        return tuple(d for d in range(self.windowed_rank) if d not in self.window)

    @property
    def window_operand(self) -> tuple[int, ...]:
        """The operand dimension that each of `window` walks."""
        gone = {*self.collapsed, *self.operand_batching}
        return tuple(d for d in range(self.operand_rank) if d not in gone)

    @property
    def batching_result(self) -> dict[int, int]:
        """Operand batching dimension -> the dimension of the windowed array that gives its position."""
        batch = self.batch
        return {
            d: batch[self.indices_dims.index(i)]
            for d, i in zip(self.operand_batching, self.indices_batching, strict=True)
        }

    def components(self, indices: TensorType) -> int:
        """The length of an index vector."""
        return 1 if self.index_vector_dim == indices.rank else indices.shape[self.index_vector_dim]

    def check(self, operand: TensorType, indices: TensorType) -> None:
        """Raises GraphError where the dimension numbers contradict the types or each other."""
        window, collapsed, batching, indices_batching, index_map, vector = self.names
        op, rank = self.op, operand.rank
        require.kind(op, "indices", indices, require.INTEGER)
        if not 0 <= self.index_vector_dim <= indices.rank:
            raise GraphError(
                f"{op}: attribute {vector} must lie in 0..{indices.rank} (the indices are {indices}), "
                f"got {self.index_vector_dim}"
            )
        require.ascending(op, collapsed, self.collapsed, rank)
        require.ascending(op, batching, self.operand_batching, rank)
        require.axes(op, f"{collapsed} + {batching}", (*self.collapsed, *self.operand_batching), rank)
        require.axes(op, f"{index_map} + {batching}", (*self.index_map, *self.operand_batching), rank)
        require.length(op, index_map, self.index_map, self.components(indices), "component of an index vector")
        require.axes(op, indices_batching, self.indices_batching, indices.rank, "the indices")
        if self.index_vector_dim in self.indices_batching:
            raise GraphError(f"{op}: attribute {indices_batching} must not hold {vector}, {self.index_vector_dim}")
        require.length(op, indices_batching, self.indices_batching, len(self.operand_batching), f"entry of {batching}")
        for d, i in zip(self.operand_batching, self.indices_batching, strict=True):
            if operand.shape[d] != indices.shape[i]:
                raise GraphError(
                    f"{op}: dimension {d} of the operand ({operand}) and {i} of the indices ({indices}) are batching "
                    "partners and must have equal extents"
                )
        require.length(op, window, self.window, len(self.window_operand), "operand dimension that windows keep")
        require.ascending(op, window, self.window, self.windowed_rank, "the windowed array")

    def positions(self, indices: Array, shape: Sequence[int], limits: Sequence[int] | None) -> list[Array]:
        """Per operand dimension, the position of every windowed element; arrays that broadcast to `shape`.

        Positions read from `indices` are clamped to `0..limits` where limits are given.
        """
        rank = len(shape)
        vectors = np.moveaxis(indices, self.index_vector_dim, -1) if self.index_vector_dim < indices.ndim else indices
        vectors = vectors.reshape(*(indices.shape[d] for d in self.indices_dims), len(self.index_map))
        spread = [1] * rank
        for d, extent in zip(self.batch, vectors.shape, strict=False):
            spread[d] = extent
        found = [np.zeros([1] * rank, np.int64) for _ in range(self.operand_rank)]
        for component, d in enumerate(self.index_map):
            given = _signed(vectors[..., component])
            found[d] = (given if limits is None else np.clip(given, 0, limits[d])).reshape(spread)
        for d, result_dim in self.batching_result.items():
            found[d] = found[d] + _along(shape[result_dim], result_dim, rank)
        for d, result_dim in zip(self.window_operand, self.window, strict=True):
            found[d] = found[d] + _along(shape[result_dim], result_dim, rank)
        return found


def _along(extent: int, axis: int, rank: int) -> Array:
    return np.arange(extent).reshape([-1 if d == axis else 1 for d in range(rank)])


def _signed(indices: Array) -> Array:
    """As i64; unsigned positions beyond its range stay out of bounds."""
    if indices.dtype == np.uint64:
        return np.minimum(indices, np.uint64(2**62)).astype(np.int64)
    return indices.astype(np.int64, copy=False)
