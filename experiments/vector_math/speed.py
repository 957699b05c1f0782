"""Nanoseconds per element of each function on one thread with arrays in the cache, against NumPy and PyTorch.

Run as a script by run.py: it prints one JSON record per function and dtype.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib import metadata, util
from typing import Any

import numpy as np
from kernels import Kernel, host_widths
from numpy.typing import NDArray

from autofuse.ir.dtypes import F32, F64, I8, I32, I64, U8, DType

Array = NDArray[Any]
Call = Callable[[int], Any]
ELEMENTS = 16384
"""Both arrays of f64 together fill an eighth of a 2 MiB L2."""
_TORCH = {"logistic": "sigmoid", "power": "pow", "remainder": "fmod"}
_POSITIVE = ("log", "log2", "rsqrt", "sqrt", "power")
_SCALE = {"log": 3.0, "log2": 3.0, "power": 3.0, "tanh": 1.0, "erf": 1.0, "log1p": 1.0, "convert": 100.0}
CONVERSIONS = ((F32, I32), (F32, I8), (F32, U8), (F64, I32), (F64, I64), (I32, F32))


def aligned(values: Array) -> Array:
    """A copy that starts on a cache line, as large arrays of one's own do not: vectors would straddle lines."""
    room = np.empty(values.nbytes + 64, np.uint8)
    copy = room[-room.ctypes.data % 64 :][: values.nbytes].view(values.dtype)
    copy[:] = values
    return copy


def inputs(name: str, dtype: DType) -> tuple[Array, ...]:
    """Arguments of ordinary size, normally distributed."""
    rng = np.random.default_rng([len(name), dtype.bits])
    x = rng.normal(size=ELEMENTS) * _SCALE.get(name, 4.0)
    if name in _POSITIVE or name == "log1p":
        x = np.abs(x)
    y = rng.normal(size=ELEMENTS) * 3.0
    arrays = (x, y) if name in ("power", "atan2", "remainder") else (x,)
    return tuple(aligned(array.astype(dtype.numpy)) for array in arrays)


def variants(name: str, dtype: DType, result: DType) -> dict[str, Call]:
    """Ways to compute `name`: each takes how many times to do it."""
    arrays = inputs(name, dtype)
    out = aligned(np.empty(ELEMENTS, result.numpy))
    kernel = Kernel(name, (dtype,) * len(arrays), result, host_widths()[-1])
    found: dict[str, Call] = {"autofuse": lambda repeats: kernel(*arrays, out=out, repeats=repeats)}
    if name == "convert":
        found["numpy"] = _repeat(partial(np.copyto, aligned(out), arrays[0], casting="unsafe"))
    elif hasattr(np, name):
        found["numpy"] = _repeat(partial(getattr(np, name), *arrays, out=aligned(out)))
    if util.find_spec("torch"):
        call = _torch(name, arrays, out)
        found |= {"torch": _repeat(call)} if call else {}
    return found


def _torch(name: str, arrays: tuple[Array, ...], out: Array) -> Callable[[], Any] | None:
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    tensors = [torch.from_numpy(array) for array in arrays]
    result = torch.from_numpy(aligned(out))
    if name == "convert":
        return partial(result.copy_, tensors[0])
    function = getattr(torch, _TORCH.get(name, name), None)
    return partial(function, *tensors, out=result) if function else None


def _repeat(call: Callable[[], Any]) -> Call:
    def run(repeats: int) -> None:
        for _ in range(repeats):
            call()

    return run


def time_blocks(calls: Mapping[str, Call], blocks: int, block_seconds: float, seed: int) -> dict[str, list[float]]:
    """Nanoseconds per element of each block; the variants take turns in random order."""
    rng = np.random.default_rng(seed)
    repeats = {name: _repeats(call, block_seconds) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for _ in range(blocks):
        for place in rng.permutation(len(names)):
            name = names[place]
            calls[name](2)
            samples[name].append(round(_seconds(calls[name], repeats[name]) / repeats[name] / ELEMENTS * 1e9, 4))
    return samples


def _repeats(call: Call, block_seconds: float) -> int:
    call(3)
    return max(3, int(block_seconds / max(_seconds(call, 3) / 3, 1e-9)))


def _seconds(call: Call, repeats: int) -> float:
    start = time.perf_counter()
    call(repeats)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", help="functions, separated by commas")
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--block-seconds", type=float, default=0.01)
    options = parser.parse_args()
    names = options.names.split(",")
    cases = [(name, dtype, dtype) for name in names if name != "convert" for dtype in (F32, F64)]
    cases += [("convert", *pair) for pair in CONVERSIONS] if "convert" in names else []
    versions = {name: metadata.version(name) for name in ("numpy", "torch", "llvmlite") if util.find_spec(name)}
    for seed, (name, dtype, result) in enumerate(cases):
        samples = time_blocks(variants(name, dtype, result), options.blocks, options.block_seconds, seed)
        record = {"kind": "speed", "function": name, "dtype": dtype.name, "result": result.name, "ns": samples}
        operands = (dtype,) * len(inputs(name, dtype))
        record["instructions"] = Kernel(name, operands, result, host_widths()[-1], unroll=1).instructions()
        print(json.dumps(record | {"versions": versions}), flush=True)


if __name__ == "__main__":
    main()
