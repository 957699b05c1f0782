"""Horizontal diffusion with flux limiter (COSMO weather model; also in NPBench); fills its argument `out` in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def hdiff(field: NDArray[Any], out: NDArray[Any], coeff: NDArray[Any]) -> None:
    inner = field[1:-1, 1:-1, :]
    lap = 4.0 * inner - (field[2:, 1:-1, :] + field[:-2, 1:-1, :] + field[1:-1, 2:, :] + field[1:-1, :-2, :])
    flux_i = lap[1:, 1:-1, :] - lap[:-1, 1:-1, :]
    flux_i = np.where(flux_i * (field[2:-1, 2:-2, :] - field[1:-2, 2:-2, :]) > 0.0, 0.0, flux_i)
    flux_j = lap[1:-1, 1:, :] - lap[1:-1, :-1, :]
    flux_j = np.where(flux_j * (field[2:-2, 2:-1, :] - field[2:-2, 1:-2, :]) > 0.0, 0.0, flux_j)
    out[:, :, :] = field[2:-2, 2:-2, :] - coeff * (
        flux_i[1:, :, :] - flux_i[:-1, :, :] + flux_j[:, 1:, :] - flux_j[:, :-1, :]
    )


def inputs(size: str, seed: int) -> tuple[Any, ...]:
    rows, columns, levels = {"small": (13, 11, 5), "full": (128, 128, 80)}[size]
    rng = np.random.default_rng(seed)
    field = rng.random((rows + 4, columns + 4, levels))
    return field, np.zeros((rows, columns, levels)), rng.uniform(0.01, 0.05, (rows, columns, levels))
