"""Routines of LAPACK's, called without Python: they give what their definitions by SciPy give."""

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.interpreter import Routine
from autofuse.ir.ops import lapack
from autofuse.targets.cpu.native import driver, lapackcalls
from autofuse.targets.cpu.native.opaque import OpaqueCall
from tests.fixtures.stablehlomodules import module, tensor

pytest.importorskip("jaxlib.mlir.ir", reason="jaxlib reads modules: pip install 'autofuse[jax]'")
pytestmark = pytest.mark.filterwarnings("ignore:.*left to NumPy")
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}
LOWER, UPPER = "uplo = 76 : ui8", "uplo = 85 : ui8"


@pytest.fixture
def without_python(monkeypatch):
    """Calls back into Python fail the test."""
    monkeypatch.setattr(Routine, "run_into", lambda *_: pytest.fail("Python was called"))


def numbers(*shape, dtype=np.float64, seed=1):
    rng = np.random.default_rng(seed)
    made = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else 0)
    return made.astype(dtype)


def hermitian(*shape, dtype=np.float64):
    a = numbers(*shape, dtype=dtype)
    return (a @ a.conj().swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def called(routine, options, wanted, *arguments):
    """A function of a module that calls a routine, whose results are like `wanted`."""
    target = f"lapack_{LETTERS[arguments[0].dtype.char]}{routine}_ffi"
    results = f"({', '.join(tensor(x) for x in wanted)})"
    names = [f"%{name}" for name, _ in zip("abc", arguments, strict=False)]
    given = ", ".join(map(tensor, arguments))
    returned = ", ".join(f"%0#{n}" for n in range(len(wanted))) if len(wanted) > 1 else "%0"
    body = f"""
    %0{f":{len(wanted)}" if len(wanted) > 1 else ""} = stablehlo.custom_call @{target}({", ".join(names)})
      {{mhlo.backend_config = {{{options}}}}} : ({given}) -> {results}
    return {returned} : {results.strip("()")}"""
    return af.from_stablehlo(module(body, arguments, results))


def check(routine, options, wanted, *arguments, skip=()):
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    plan = af.compile(called(routine, options, wanted, *arguments), *arguments)
    found = plan(*arguments)
    single = arguments[0].dtype.char in "fF"
    for number, (a, b) in enumerate(zip(found if len(wanted) > 1 else (found,), wanted, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if number not in skip:
            np.testing.assert_allclose(a, b, rtol=1e-4 if single else 1e-10, atol=1e-4 if single else 1e-10)


@pytest.mark.usefixtures("without_python")
@pytest.mark.parametrize("dtype", DTYPES)
def test_factors(dtype):
    for shape in ((4, 4), (2, 3, 7, 5), (5, 7)):
        a = numbers(*shape, dtype=dtype)
        check("getrf", "", lapack.getrf(a), a)
        check("geqrf", "", lapack.geqrf(a), a)
    packed, factors = lapack.geqrf(numbers(2, 7, 5, dtype=dtype))
    check("ungqr" if np.dtype(dtype).kind == "c" else "orgqr", "", lapack.orgqr(packed, factors), packed, factors)
    definite = hermitian(3, 6, 6, dtype=dtype)
    definite[1] *= -1  # has no factor: info says so, and what is there is LAPACK's
    for option, lower in ((LOWER, True), (UPPER, False)):
        check("potrf", option, lapack.potrf(definite, lower), definite)


@pytest.mark.usefixtures("without_python")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", ["N", "T", "C"])
def test_triangular_systems(dtype, way):
    a, b = numbers(2, 5, 5, dtype=dtype) + 4 * np.eye(5, dtype=dtype), numbers(2, 5, 3, dtype=dtype)
    for side, lower, unit in ((76, 76, 78), (76, 85, 85), (82, 76, 85), (82, 85, 78)):
        letters = {"side": side, "uplo": lower, "trans_x": ord(way), "diag": unit}
        options = ", ".join(f"{name} = {code} : ui8" for name, code in letters.items())
        right = b if side == 76 else b.swapaxes(-1, -2).copy()
        wanted = lapack.trsm(a, right, side == 76, lower == 76, way.lower(), unit == 85)
        check("trsm", options, wanted, a, right)


@pytest.mark.usefixtures("without_python")
@pytest.mark.parametrize("dtype", DTYPES)
def test_spectra(dtype):
    h, eig = hermitian(2, 6, 6, dtype=dtype), "heevd" if np.dtype(dtype).kind == "c" else "syevd"
    check(eig, f"mode = 86 : ui8, {LOWER}", lapack.syevd(h), h, skip=(0,))  # vectors have no sign of their own
    check(eig, f"mode = 78 : ui8, {UPPER}", lapack.syevd(h, False, False), h)
    for rows, columns in ((7, 4), (4, 7), (70, 70)):
        a = numbers(2, rows, columns, dtype=dtype)
        for mode in "SA":
            check("gesdd", f"mode = {ord(mode)} : ui8", lapack.gesdd(a, mode), a, skip=(2, 3))


@pytest.mark.usefixtures("without_python")
def test_vectors_make_the_matrix_again():
    a, h = numbers(6, 4), hermitian(6, 6)
    _, values, u, vt, _ = af.compile(called("gesdd", "mode = 83 : ui8", lapack.gesdd(a, "S"), a), a)(a)
    np.testing.assert_allclose(u @ np.diag(values) @ vt, a, atol=1e-12)
    vectors, values, _ = af.compile(called("syevd", f"mode = 86 : ui8, {LOWER}", lapack.syevd(h), h), h)(h)
    np.testing.assert_allclose(vectors @ np.diag(values) @ vectors.T, h, atol=1e-12)


@pytest.mark.usefixtures("without_python")
def test_views_are_steps():
    body = """
    %0 = stablehlo.transpose %a, dims = [0, 2, 1] : (tensor<2x4x4xf64>) -> tensor<2x4x4xf64>
    %1 = stablehlo.slice %b [0:2, 1:5, 0:4:2] : (tensor<2x5x4xf64>) -> tensor<2x4x2xf64>
    %2 = "stablehlo.triangular_solve"(%0, %1) <{left_side = true, lower = true, unit_diagonal = false,
      transpose_a = #stablehlo<transpose NO_TRANSPOSE>}> : (tensor<2x4x4xf64>, tensor<2x4x2xf64>) -> tensor<2x4x2xf64>
    return %2 : tensor<2x4x2xf64>"""
    a, b = numbers(2, 4, 4) + 4 * np.eye(4), numbers(2, 5, 4)
    plan = af.compile(af.from_stablehlo(module(body, [a, b], "tensor<2x4x2xf64>")), a, b)
    wanted = np.linalg.solve(np.tril(a.swapaxes(-1, -2)), b[:, 1:, ::2])
    np.testing.assert_allclose(plan(a, b), wanted, rtol=1e-10)


@pytest.mark.usefixtures("without_python")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lower", [True, False])
def test_cholesky_has_one_triangle_and_nan_where_there_is_none(dtype, lower):
    a = hermitian(3, 6, 6, dtype=dtype)
    a[1] *= -1
    body = f"%0 = stablehlo.cholesky %a, lower = {str(lower).lower()} : {tensor(a)}\nreturn %0 : {tensor(a)}"
    found = af.compile(af.from_stablehlo(module(body, [a], tensor(a))), a)(a)
    wanted = lapack.cholesky(a, lower)
    assert np.isnan(wanted[1]).all()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_small_matrices_are_factorised_by_one_thread():
    for size, few in ((20, True), (600, False)):
        a = np.eye(size)
        plan = af.compile(called("getrf", "", lapack.getrf(a), a), a)
        assert driver.uses_blas(plan.executable.program.program.kernels) == few


def test_what_is_other_than_expected_stays_pythons(monkeypatch):
    made = []
    real = OpaqueCall.__init__
    monkeypatch.setattr(OpaqueCall, "__init__", lambda call, program: (real(call, program), made.append(call))[0])
    a = numbers(0, 3, 3)
    check("getrf", "", lapack.getrf(a), a)
    monkeypatch.setattr(lapackcalls, "_address", lambda name, arity: None)
    a = numbers(5, 5)
    check("getrf", "", lapack.getrf(a), a)
    monkeypatch.undo()
    monkeypatch.setattr(lapackcalls, "_MOST_BYTES", 100)
    check("getrf", "", lapack.getrf(a), a)
    assert {call.form.file for call in made} == {"opaque"}
