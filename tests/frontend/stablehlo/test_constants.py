"""Constants of every element type, in all the ways in which MLIR writes them."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import TraceError
from autofuse.ir import dtypes
from tests.fixtures.stablehlomodules import tensor

pytest.importorskip("jaxlib.mlir.ir", reason="jaxlib reads modules: pip install 'autofuse[jax]'")

FLOATS = [dtype for dtype in dtypes.ALL if dtype.is_float]
INTEGERS = [dtype for dtype in dtypes.ALL if dtype.is_integer]


def constant(literal, type_, resources=""):
    """The constant of a module that returns it."""
    text = f"""module {{
  func.func public @main() -> {type_} {{
    %0 = stablehlo.constant {literal} : {type_}
    return %0 : {type_}
  }}
}}
{resources}"""
    return np.asarray(af.from_stablehlo(text)())


def require_bits(found, expected):
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (30, 7), (0, 2), ()])
def test_raw_bytes(dtype, shape):
    numbers = np.random.default_rng(1).integers(0, 100, shape).astype(dtype.numpy)
    expected = np.asarray(numbers / np.array(8, dtype.numpy) if dtype.is_float else numbers, dtype.numpy)
    literal = f'dense<"0x{expected.tobytes().hex().upper()}">' if expected.size else "dense<>"
    require_bits(constant(literal, tensor(expected)), expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_numbers_and_bits(dtype):
    nan = {"f16": "0x7E01", "bf16": "0x7FC1", "f32": "0x7FC00001", "f64": "0x7FF8000000000001"}[dtype.name]
    found = constant(f"dense<[[-1.5, 2.0e-3], [{nan}, -0.0]]>", f"tensor<2x2x{dtype}>")
    bits = int(nan, 16).to_bytes(dtype.itemsize, "little")
    expected = np.array([[-1.5, 2e-3], [0, -0.0]], dtype.numpy)
    expected[1, 0] = np.frombuffer(bits, dtype.numpy)[0]
    require_bits(found, expected)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_one_number_for_all(dtype):
    literal = {"bool": "true"}.get(dtype.name, "3.0" if dtype.is_float else "3")
    expected = np.full((2, 5), True if dtype.kind == "bool" else 3, dtype.numpy)
    require_bits(constant(f"dense<{literal}>", tensor(expected)), expected)


def test_bool():
    found = constant("dense<[true, false, true]>", "tensor<3xi1>")
    require_bits(found, np.array([True, False, True]))


@pytest.mark.parametrize("name", ["blob", "__elided__"])
def test_constants_beside_the_module_are_refused(name):
    blob = '{-# dialect_resources: { builtin: { blob: "0x040000000000803F00000040" } } #-}'
    with pytest.raises(TraceError, match=rf"has the value dense_resource<{name}> .*: only dense<\.\.\.> can be read"):
        constant(f"dense_resource<{name}>", "tensor<2xf32>", blob)
