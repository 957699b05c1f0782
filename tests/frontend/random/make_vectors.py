"""Writes `vectors.json`: what `jax.random` draws. Needs JAX: `python tests/frontend/random/make_vectors.py`.

Each case: a function, its arguments, and the result as the whole numbers that its bits are. It is written for JAX
0.10.2 with `jax_threefry_partitionable` on and 64-bit types enabled, so that every dtype has vectors; dtypes are given.
"""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_threefry_partitionable", True)

FLOATS = ("float16", "bfloat16", "float32", "float64")
SHAPES = ((), (1,), (7,), (0, 3), (3, 5), (2, 3, 4))
SEEDS = (0, 1, 2**32 - 1)


def key_of(seed):
    return jax.random.wrap_key_data(np.array([0, seed], np.uint32), impl="threefry2x32")


def cases():
    """(function, seed, arguments by name)."""
    return (*of_keys(), *of_floats(), *of_bernoulli(), *of_integers(), *of_orders(), *of_categories())


def of_keys():
    for seed in SEEDS:
        yield "split", seed, {}
        yield "split", seed, {"num": 5}
        yield "fold_in", seed, {"data": 3 * seed + 1 & 0xFFFFFFFF}
        yield "bits", seed, {"shape": (7,), "dtype": "uint32"}
    yield "split", 7, {"num": (2, 3)}
    for dtype in ("uint8", "uint16", "uint32", "uint64"):
        for shape in SHAPES:
            yield "bits", 11, {"shape": shape, "dtype": dtype}


def of_floats():
    for dtype in FLOATS:
        for shape in SHAPES:
            yield "uniform", 3, {"shape": shape, "dtype": dtype}
        for name in ("normal", "exponential", "gumbel"):
            yield name, 5, {"shape": (5, 13), "dtype": dtype}
    yield "gumbel", 5, {"shape": (3, 5), "dtype": "float32", "mode": "high"}
    yield "uniform", 4, {"shape": (3, 7), "dtype": "float32", "minval": -2.5, "maxval": 7.25}
    yield "normal", 6, {"shape": (1001,), "dtype": "float32"}


def of_bernoulli():
    for p in (0.0, 0.3, 0.5, 1.0, 1.5, -0.5):
        yield "bernoulli", 8, {"p": np.float32(p), "shape": (17,)}
    yield "bernoulli", 8, {"p": np.float32(0.3), "shape": (3, 5), "mode": "high"}
    yield "bernoulli", 9, {"p": np.array([0.1, 0.9, 0.5], np.float64)}
    yield "bernoulli", 9, {"p": np.array([0.1, 0.9, 0.5], np.float32), "shape": (4, 3)}


def of_integers():
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        info = np.iinfo(dtype)
        for low, high in ((0, 10), (3, 3), (5, 2), (0, 2**7), (1, 100), (info.min // 2, min(info.max, 2**62))):
            yield "randint", 12, {"shape": (9,), "minval": low, "maxval": high, "dtype": dtype}
        yield "randint", 12, {"shape": (2, 3), "minval": 0, "maxval": min(int(info.max) + 1, 2**62), "dtype": dtype}
    ends = np.array([1, 2, 100], np.int32)
    yield "randint", 13, {"shape": (4, 3), "minval": np.array([[-5]], np.int32), "maxval": ends, "dtype": "int32"}


def of_orders():
    for x in (0, 1, 2, 9, 40):
        yield "permutation", 14, {"x": np.arange(x, dtype=np.int32)}
    yield "permutation", 15, {"x": np.arange(1700, dtype=np.int32)}  # two rounds
    table = np.arange(35, dtype=np.float32).reshape(5, 7)
    for axis in (0, 1):
        for independent in (False, True):
            yield "permutation", 16, {"x": table, "axis": axis, "independent": independent}


def of_categories():
    logits = np.log(np.arange(1, 13, dtype=np.float32)).reshape(3, 4)
    yield "categorical", 17, {"logits": logits}
    yield "categorical", 17, {"logits": logits, "axis": 0}
    yield "categorical", 17, {"logits": logits, "shape": (5, 3)}
    yield "categorical", 17, {"logits": logits, "shape": (2, 3), "replace": False}
    yield "categorical", 17, {"logits": logits, "shape": (2, 4), "axis": 0, "replace": False}


def stored(array):
    """An array as its dtype, its shape and the whole numbers that its bits are."""
    array = np.asarray(array)
    bits = array.view(f"u{array.itemsize}") if array.dtype != bool else array.astype(np.uint8)
    return {"dtype": str(array.dtype), "shape": list(array.shape), "bits": [int(b) for b in bits.ravel()]}


def given(value):
    return stored(value) if isinstance(value, np.ndarray | np.generic) else value


def drawn(function, seed, arguments):
    passed = {name: np.dtype(jax.numpy.dtype(v)) if name == "dtype" else v for name, v in arguments.items()}
    result = getattr(jax.random, function)(key_of(seed), **passed)
    return jax.random.key_data(result) if function in ("split", "fold_in") else result


def main() -> None:
    lines = []
    for function, seed, arguments in cases():
        held = {name: given(value) for name, value in arguments.items()}
        result = stored(drawn(function, seed, arguments))
        lines.append(json.dumps({"function": function, "seed": seed, "arguments": held, "result": result}))
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    Path(__file__).with_name("vectors.json").write_text(text)
    print(f"{len(lines)} cases, {len(text)} bytes, JAX {jax.__version__}")


if __name__ == "__main__":
    main()
