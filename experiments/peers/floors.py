"""What bounds a program from below: bytes that must move, and its matrix products alone in NumPy's BLAS."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autofuse.measurement.workloads import Workload, arrays

Product = tuple[tuple[int, ...], int, int, int, str]
"""A matrix product: batch extents, rows, inner extent, columns, dtype."""

COPIES = tuple(size << 20 for size in (8, 16, 32, 64, 128, 256, 512, 1024))
"""Bytes in use by a copy, source and target together; the last is beyond any cache of today."""


def least_bytes(program: Workload, size: str, seed: int) -> int:
    """Bytes of every argument read once and of every result, or argument written into, written once."""
    before = arrays(program.inputs(size, seed))
    given = program.inputs(size, seed)
    written = arrays(program.function(*given))
    written += [new for old, new in zip(before, arrays(given), strict=True) if not np.array_equal(old, new)]
    return sum(array.nbytes for array in before + written)


def dots_of(graph: Any) -> list[Product]:
    """Every product in a traced graph."""
    found: list[Product] = []
    for node in graph.nodes:
        if node.op != "dot_general":
            continue
        lhs, rhs = (value.type for value in node.inputs)
        batch = tuple(lhs.shape[axis] for axis in node.attrs["lhs_batching_dimensions"])
        inner = math.prod(lhs.shape[axis] for axis in node.attrs["lhs_contracting_dimensions"])
        shared = math.prod(batch) * inner
        found.append((batch, lhs.size // shared, inner, rhs.size // shared, lhs.dtype.numpy.name))
    return found


def dots_alone_ms(dots: Sequence[Product], seed: int, seconds: float = 1.0) -> float:
    """Median milliseconds of all the products, one after another, contiguous, into results that are there."""
    rng = np.random.default_rng(seed)
    products = []
    for batch, rows, inner, columns, dtype in dots:
        a, b = (rng.standard_normal((*batch, *shape)).astype(dtype) for shape in ((rows, inner), (inner, columns)))
        products.append((a, b, np.matmul(a, b)))
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        for a, b, out in products:
            np.matmul(a, b, out=out)
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def facts(program: Workload, size: str, seed: int) -> dict[str, Any]:
    """The two floors of a program, as far as they do not depend on the machine's copy rate."""
    import autofuse

    dots = dots_of(autofuse.trace(program.function, *program.inputs(size, seed)))
    return {
        "least_bytes": least_bytes(program, size, seed),
        "dots": len(dots),
        "dots_ms": dots_alone_ms(dots, seed) if dots else 0.0,
    }


def copy_rates(seconds: float = 0.7) -> dict[str, float]:
    """Bytes per microsecond, read and written, of copies by all threads over the same arrays, by bytes in use."""
    from autofuse.targets.cpu.cost.probes import run_probes, stream_probes

    rates: dict[str, float] = {}
    for size, probe in zip(COPIES, stream_probes(COPIES), strict=True):
        rates[str(size)] = next(iter(run_probes([probe], seconds).values())).value
    return rates


def floor_ms(least: int, rates: Mapping[str, float]) -> float:
    """Milliseconds that `least` bytes take at the rate of the largest copy that uses no more (else of the smallest)."""
    sizes = sorted(map(int, rates))
    size = max((known for known in sizes if known <= least), default=sizes[0])
    return least / rates[str(size)] / 1e3
