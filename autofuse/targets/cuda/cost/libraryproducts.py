"""What a product by cuBLASLt costs: its flops in whole tiles, and its bytes."""

from __future__ import annotations

import math

from autofuse.lower.plainproducts import PlainProduct, Side
from autofuse.targets.cuda.cost.rates import Rates
from autofuse.targets.cuda.cost.terms import Terms
from autofuse.targets.cuda.gpus import Gpu

_TILE = 128
"""Rows and columns that a multiprocessor does at a time."""
_PEAK = 0.8
"""Of the peak of the units, that a large product reaches: an estimate, as nothing was measured."""


def library_terms(gpu: Gpu, rates: Rates, product: PlainProduct) -> Terms:
    """The terms of a call; no algorithm is told from another."""
    tiles = product.count * math.ceil(product.rows / _TILE) * math.ceil(product.columns / _TILE)
    waves = tiles / gpu.multiprocessors
    flops = math.ceil(waves) * gpu.multiprocessors * 2.0 * _TILE * _TILE * product.depth
    sides = ((product.left, product.rows, product.depth), (product.right, product.depth, product.columns))
    moved = sum(_bytes(*side, product.count) for side in (*sides, (product.out, product.rows, product.columns)))
    rate = rates.l2_bytes_per_s if moved <= gpu.l2_bytes / 2 else rates.memory_bytes_per_s
    return Terms(
        memory=1e6 * moved / rate,
        l2=0.0,
        issue=0.0,
        special=0.0,
        product=1e6 * flops / (_PEAK * _peak(gpu, product)),
        shared=0.0,
        serial=0.0,
        start=rates.launch_us,
        flight_bytes=0.0,
        waves=waves,
    )


def _bytes(side: Side, rows: int, columns: int, count: int) -> float:
    return float(rows * columns * side.dtype.itemsize * (count if side.step else 1))


def _peak(gpu: Gpu, product: PlainProduct) -> float:
    match product.left.dtype.name:
        case "f64":
            return gpu.f32_flops * gpu.f64_per_clock / gpu.f32_per_clock
        case "f32":
            return gpu.tf32_flops if product.fast else gpu.f32_flops
        case _:
            return gpu.matrix_flops
