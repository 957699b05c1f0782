"""Complex numbers, transforms, linear algebra and tuples in modules."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import autofuse as af
from autofuse.errors import LeftToNumpyWarning, TraceError
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of

pytest.importorskip("jaxlib.mlir.ir", reason="jaxlib reads modules: pip install 'autofuse[jax]'")

RNG = np.random.default_rng(0)
Z = (RNG.standard_normal((4, 6)) + 1j * RNG.standard_normal((4, 6))).astype(np.complex64)
A = RNG.standard_normal((4, 4)).astype(np.float32)
C = "tensor<4x6xcomplex<f32>>"
F = "tensor<4x4xf32>"


def function(body, argument=C, result=C):
    text = f"module {{ func.func public @main(%a: {argument}) -> {result} {{\n{body}\n}} }}"
    return af.from_stablehlo(text)


def unary(op, argument=C, result=C):
    return function(f"%0 = {op} : ({argument}) -> {result}\nreturn %0 : {result}", argument, result)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("negate", np.negative),
        ("exponential", np.exp),
        ("log", np.log),
        ("sqrt", np.sqrt),
        ("rsqrt", lambda z: 1 / np.sqrt(z)),
        ("tanh", np.tanh),
        ("sine", np.sin),
        ("cosine", np.cos),
        ("tan", np.tan),
        ("sign", np.sign),
        ("log_plus_one", np.log1p),
        ("exponential_minus_one", np.expm1),
        ("logistic", lambda z: 1 / (1 + np.exp(-z))),
    ],
)
def test_functions(op, expected):
    assert_allclose(unary(f"stablehlo.{op} %a")(Z), expected(Z), rtol=2e-5, atol=1e-5)


COMPARED = """
    %ra = stablehlo.real %x : (tensor<complex<f32>>) -> tensor<f32>
    %rb = stablehlo.real %y : (tensor<complex<f32>>) -> tensor<f32>
    %ia = stablehlo.imag %x : (tensor<complex<f32>>) -> tensor<f32>
    %ib = stablehlo.imag %y : (tensor<complex<f32>>) -> tensor<f32>
    %first = stablehlo.compare LT, %ra, %rb : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %same = stablehlo.compare EQ, %ra, %rb : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %second = stablehlo.compare {direction}, %ia, %ib : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %ties = stablehlo.and %same, %second : tensor<i1>
    %less = stablehlo.or %first, %ties : tensor<i1>
"""


@pytest.mark.parametrize(("direction", "turned"), [("LT", 1), ("GT", -1)])
def test_sorts_by_parts(direction, turned):
    """By the real part, then by the imaginary one; whole numbers go along."""
    fn = function(
        f"""%0 = "stablehlo.sort"(%a) <{{dimension = 1 : i64, is_stable = true}}> ({{
            ^bb0(%x: tensor<complex<f32>>, %y: tensor<complex<f32>>):
            {COMPARED.format(direction=direction)}
            stablehlo.return %less : tensor<i1>
            }}) : ({C}) -> {C}
        return %0 : {C}"""
    )
    z = np.round(Z)
    parts = z.real + 1j * turned * z.imag
    assert_array_equal(fn(z), np.take_along_axis(z, np.argsort(parts, axis=1, stable=True), 1))


def test_a_comparator_that_reads_whole_complex_numbers_is_refused():
    fn = """%0 = "stablehlo.sort"(%a) <{dimension = 1 : i64, is_stable = true}> ({
            ^bb0(%x: tensor<complex<f32>>, %y: tensor<complex<f32>>):
            %p = stablehlo.abs %x : (tensor<complex<f32>>) -> tensor<f32>
            %q = stablehlo.abs %y : (tensor<complex<f32>>) -> tensor<f32>
            %less = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
            stablehlo.return %less : tensor<i1>
            }) : (CC) -> CC
        return %0 : CC"""
    with pytest.raises(TraceError, match="comparator that is no ascending or descending"):
        function(fn.replace("CC", C))(Z)


def test_parts_and_constants():
    real = "tensor<4x6xf32>"
    fn = function(
        f"""%c = stablehlo.constant dense<(1.5,-2.0)> : tensor<complex<f32>>
        %b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<complex<f32>>) -> {C}
        %r = stablehlo.real %a : ({C}) -> {real}
        %i = stablehlo.imag %a : ({C}) -> {real}
        %n = stablehlo.abs %a : ({C}) -> {real}
        %z = stablehlo.complex %n, %i : {C}
        %p = stablehlo.multiply %z, %b : {C}
        %e = stablehlo.compare EQ, %p, %a, FLOAT : ({C}, {C}) -> tensor<4x6xi1>
        %s = stablehlo.select %e, %a, %p : tensor<4x6xi1>, {C}
        return %s : {C}"""
    )
    assert_allclose(fn(Z), (np.abs(Z) + 1j * Z.imag) * np.complex64(1.5 - 2j), rtol=1e-5)


@pytest.mark.parametrize(
    "text", ["[(1.0,-2.5), (0x7FC00000,0xFF800000)]", '"0x0000803F000020C00000C07F000080FF"', "(1.0,-2.5)"]
)
def test_constants_in_every_form(text):
    kind = "tensor<2xcomplex<f32>>"
    fn = function(f"%c = stablehlo.constant dense<{text}> : {kind}\nreturn %c : {kind}", "tensor<f32>", kind)
    expected = [1 - 2.5j, 1 - 2.5j] if text[0] == "(" else [1 - 2.5j, complex(np.nan, -np.inf)]
    assert_array_equal(fn(np.float32(0)), np.array(expected, np.complex64))


@pytest.mark.parametrize(("op", "combine"), [("add", np.sum), ("multiply", np.prod)])
def test_reductions(op, combine):
    row, scalar = "tensor<6xcomplex<f32>>", "tensor<complex<f32>>"
    start = "(0.0,0.0)" if op == "add" else "(1.0,0.0)"
    fn = function(
        f"""%c = stablehlo.constant dense<{start}> : {scalar}
        %0 = stablehlo.reduce(%a init: %c) applies stablehlo.{op} across dimensions = [0] : ({C}, {scalar}) -> {row}
        return %0 : {row}""",
        result=row,
    )
    assert_allclose(fn(Z), combine(Z, 0), rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "lengths", "argument", "result", "expected"),
    [
        ("FFT", "[6]", Z, C, np.fft.fft),
        ("IFFT", "[4, 6]", Z, C, np.fft.ifft2),
        ("RFFT", "[6]", Z.real.copy(), "tensor<4x4xcomplex<f32>>", np.fft.rfft),
        ("IRFFT", "[11]", Z, "tensor<4x11xf32>", lambda z: np.fft.irfft(z, 11)),
    ],
)
def test_transforms(kind, lengths, argument, result, expected):
    given = C if argument.dtype == np.complex64 else "tensor<4x6xf32>"
    fn = unary(f"stablehlo.fft %a, type = {kind}, length = {lengths}", given, result)
    assert_allclose(fn(argument), expected(argument), rtol=1e-5, atol=1e-5)


def test_triangular_systems_and_cholesky():
    h = A @ A.T + 4 * np.eye(4, dtype=np.float32)
    factor = unary("stablehlo.cholesky %a, lower = true", F, F)(h)
    assert_allclose(factor, np.linalg.cholesky(h), rtol=1e-4, atol=1e-5)
    fn = function(
        f"""%0 = "stablehlo.triangular_solve"(%a, %a) {{left_side = true, lower = true, unit_diagonal = false,
            transpose_a = #stablehlo<transpose TRANSPOSE>}} : ({F}, {F}) -> {F}
        return %0 : {F}""",
        F,
        F,
    )
    assert_allclose(np.tril(h).T @ fn(h), h, rtol=1e-4, atol=1e-4)


def test_calls_are_named_and_may_be_refused():
    fn = unary("stablehlo.cholesky %a, lower = true", F, F)
    h = A @ A.T + 4 * np.eye(4, dtype=np.float32)
    with pytest.warns(LeftToNumpyWarning, match=r"calls left to NumPy.*lapack\.potrf at "):
        plan = af.compile(fn, h)
    assert_allclose(plan(h), np.linalg.cholesky(h), rtol=1e-4, atol=1e-5)
    assert Role.CALL in map(role_of, plan.graph.nodes)
    with pytest.raises(TraceError, match=r"lapack\.potrf at .* is a call that no kernel computes"):
        af.compile(fn, h, on_unsupported="error")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("lapack_sggev_ffi", "calls @lapack_sggev_ffi, which autofuse does not have"),
        ("lapack_spotrf_ffi", "has no option uplo in its mhlo.backend_config"),
    ],
)
def test_other_calls_are_refused_by_name(target, message):
    with pytest.raises(TraceError, match=message):
        unary(f"stablehlo.custom_call @{target}(%a)", F, F)


def test_tuples_of_functions():
    pair = f"tuple<{F}, {F}>"
    text = f"""module {{
      func.func public @main(%a: {F}) -> {F} {{
        %0 = call @both(%a) : ({F}) -> {pair}
        %1 = stablehlo.get_tuple_element %0[1] : ({pair}) -> {F}
        return %1 : {F}
      }}
      func.func private @both(%a: {F}) -> {pair} {{
        %0 = stablehlo.negate %a : {F}
        %1 = stablehlo.tuple %a, %0 : {pair}
        return %1 : {pair}
      }}
    }}"""
    assert_array_equal(af.from_stablehlo(text)(A), -A)


def test_other_operations_take_no_tuples():
    pair = f"tuple<{F}, {F}>"
    with pytest.raises(TraceError, match="custom_call takes a tuple"):
        function(
            f"""%0 = stablehlo.tuple %a, %a : {pair}
            %1 = stablehlo.custom_call @pass(%0) : ({pair}) -> {pair}
            %2 = stablehlo.get_tuple_element %1[0] : ({pair}) -> {F}
            return %2 : {F}""",
            F,
            F,
        )
