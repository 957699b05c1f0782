"""Complex numbers beside NumPy: functions of the front end, as they are traced and as pairs of real numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

import autofuse as af
from autofuse.errors import NumpyOnlyError
from autofuse.frontend.traced import trace
from autofuse.ir.interpreter import interpret
from autofuse.ir.parts import as_complex, as_parts
from autofuse.ir.verifier import verify
from autofuse.passes.complexparts import has_complex, split_complex

Array = NDArray[Any]
RNG = np.random.default_rng(0)
Z, W = (RNG.standard_normal((5, 8)) + 1j * RNG.standard_normal((5, 8)) for _ in "zw")
X = RNG.standard_normal((5, 8))

ARITHMETIC = """
    z+w; z-w; z*w; z/w; -z; +z; z*x; x*z; z+1; z*2j; z/2; 2/z; 1j/z; np.complex64(1j)*z; np.complex128(1j)*x
    complex(2,3)*z; np.arange(8)*z; z**2; z**-2; z**0; z**0.5; z**2.5; z**w; x**z; np.power(z,3); z**(1+2j)
    np.square(z); np.reciprocal(z); np.sign(z); np.abs(z); np.conj(z); x.conj(); np.rint(z); np.round(z,2)
"""
FUNCTIONS = """
    np.exp(z); np.exp2(z); np.expm1(z); np.log(z); np.log2(z); np.log10(z); np.log1p(z); np.sqrt(z); np.sin(z)
    np.cos(z); np.tan(z); np.sinh(z); np.cosh(z); np.tanh(z); np.angle(z); np.angle(z,deg=True); np.angle(x)
    np.arcsin(z); np.arccos(z); np.arctan(z); np.arcsinh(z); np.arccosh(z); np.arctanh(z)
    np.exp(1j*x); np.exp(2j*np.pi*np.arange(8)/8)*z; np.sinc(z)
"""
PARTS = """
    z.real; z.imag; np.real(z); np.imag(z); np.real(x); x.imag; z[0,0].real; z.view(z.real.dtype)
    x.view(z.dtype); z.astype(np.complex64); x.astype(complex); z.astype(bool); z.astype(np.complex128)
    np.isreal(z); np.iscomplex(z); np.iscomplex(x); np.iscomplexobj(z); np.isrealobj(z)
"""
COMPARISONS = """
    z==w; z!=w; z==z; z<w; z<=w; z>w; z>=w; np.maximum(z,w); np.minimum(z,w); np.clip(z,-1,1j); np.isnan(z)
    np.isinf(z); np.isfinite(z); np.logical_and(z,w); np.logical_not(z); np.where(x>0,z,w); np.where(x>0,z,1j)
    np.select([x>0],[z],w); np.nan_to_num(z); np.isclose(z,w)
"""
REDUCTIONS = """
    z.sum(); z.sum(0); z.mean(); z.mean(1); z.var(); z.std(1,ddof=1); z.prod(); z.prod(0); z.max(); z.max(0)
    z.min(1); np.ptp(z); z.cumsum(1); z.cumprod(1); np.nansum(z); np.nanmean(z,0); np.average(z,weights=x)
    np.any(z); np.all(z,0); np.count_nonzero(z); np.subtract.reduce(z); np.divide.accumulate(z); np.trapezoid(z)
"""
PRODUCTS = """
    z@w.T; z@z[0]; x@z.T; np.vdot(z,w); np.vecdot(z,w); np.inner(z,w); np.outer(z[0],w[0]); np.kron(z,w)
    np.tensordot(z,w); np.einsum('ij,kj->ik',z,w); np.einsum('ij,ij->',z,w.conj()); np.linalg.norm(z)
    np.linalg.norm(z,axis=1); np.linalg.norm(z,1); np.linalg.norm(z[0],3); np.linalg.norm(z[0],0); np.cov(z)
    np.corrcoef(z); np.trace(z); np.convolve(z[0],w[0]); np.correlate(z[0],w[0],'full'); np.polyval(z[0],x)
"""
MOVES = """
    z.T[::-1]; z[:,1:3]; z[[0,2,1]]; np.concatenate([z,w]); np.pad(z,1); np.pad(z,1,constant_values=1j); np.roll(z,1,0)
    np.take_along_axis(z,np.argsort(x,1),1); np.zeros_like(z); np.full_like(z,2j); np.array([x[0,0],1j]); np.triu(z,1)
    np.median(z); np.median(z,1); np.sort(z); np.sort(z,0); np.sort(z,None,kind="stable"); np.argsort(z)
    np.argsort(z,0,stable=True)
    np.gradient(z,axis=0); np.interp(x[0],np.arange(8.),z[0]); np.linspace(z[0,0],z[1,1],5); np.diag(z[0])
"""
LOOPS = """
    af.fori_loop(0,3,lambda i,s: s*z+1j,w); af.scan(lambda c,r:(c*r+1j,c.real),w[0],z)[0]
    af.scan(lambda c,r:(c*r+1j,c.real),w[0],z)[1]; af.cond(x[0,0]>0,lambda a:a*1j,lambda a:a+1,z)
    af.while_loop(lambda s: np.abs(s[1])<10,lambda s:(s[0]+z,s[1]+1j),(w,0j))[0]
"""
CALLS = """
    np.fft.fft(z); np.fft.ifft(z,axis=0); np.fft.fft2(z); np.fft.fftn(z); np.fft.fftshift(z); np.fft.fft(np.exp(x)).real
    np.fft.rfft(x); np.fft.irfft(z); np.fft.irfft(z,9,0); np.fft.rfft2(x)
    np.fft.irfftn(z,(4,7),(0,1)); np.fft.hfft(z,norm="ortho")
    np.linalg.solve(z[:5,:5],w[:5,:2]); np.linalg.inv(z[:5,:5]); np.linalg.qr(z)[1]
    np.linalg.cholesky(z@z.conj().T+5*np.eye(5)); np.linalg.eigh(z@z.conj().T)[0]
"""
ALL = ";".join([ARITHMETIC, FUNCTIONS, PARTS, COMPARISONS, REDUCTIONS, PRODUCTS, MOVES, LOOPS, CALLS]).replace(
    "\n", ";"
)
EXPRESSIONS = [text.strip() for text in ALL.split(";") if text.strip()]


def evaluated(text: str) -> Any:
    return eval(f"lambda z, w, x: {text}", {"np": np, "af": af})


@pytest.mark.parametrize("text", EXPRESSIONS)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_functions_give_what_numpy_gives(text: str, dtype: Any) -> None:
    function = evaluated(text)
    arguments = (Z.astype(dtype), W.astype(dtype), X.astype(dtype(0).real.dtype))
    traced = trace(function, *arguments)
    split = split_complex(traced.graph)
    verify(split)
    assert not has_complex(split)
    found = interpret(split, *map(as_parts, arguments))
    pairs = zip(found, traced.graph.outputs, strict=True)
    whole = [as_complex(array) if value.type.dtype.is_complex else array for array, value in pairs]
    expected: Any = function(*arguments)
    tolerance = 3e-5 if dtype is np.complex64 else 1e-12
    for results in (interpret(traced.graph, *arguments), whole):
        answer: Any = traced.unflatten(results)
        assert np.asarray(answer).dtype == np.asarray(expected).dtype
        assert_allclose(answer, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "text",
    [
        "z.argmax()",
        "z*np.clongdouble(1j)",
    ],
)
def test_what_no_graph_has_is_left_to_numpy_by_name(text: str) -> None:
    with pytest.raises(NumpyOnlyError, match="complex"):
        trace(evaluated(text), Z, W, X)


@pytest.mark.parametrize("size", [30, 700])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_sorts_put_nan_where_numpy_does(dtype: Any, size: int) -> None:
    """Equal numbers keep their order; NaN in one part is behind numbers, in the real part behind the imaginary one."""
    rng = np.random.default_rng(size)
    part = np.array([-2.0, -1, -0.0, 0, 1, 3, np.inf, -np.inf, np.nan, -np.nan])
    z = np.empty((3, size), dtype)
    z.real, z.imag = rng.choice(part, z.shape), rng.choice(part, z.shape)

    def ordered(z: Any) -> Any:
        places = np.argsort(z, axis=-1, kind="stable")
        return np.sort(z, axis=-1, kind="stable"), places, np.take_along_axis(z, places, -1)

    expected = ordered(z)
    for answers in (af.compile(ordered, z)(z), interpret(trace(ordered, z).graph, z)):
        for answer, right in zip(answers, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(answer), right)


def test_quantiles_of_complex_numbers_are_numpys_error() -> None:
    for function in (np.quantile, np.percentile):
        with pytest.raises(TypeError, match="real numbers"):
            function(Z, 0.5)
        with pytest.raises(TypeError, match="real numbers"):
            trace(lambda z, function=function: function(z, 0.5), Z)


def test_parts_are_views() -> None:
    def function(z: Any) -> Any:
        z.real[1:] = 7
        z.imag += 2
        z.view(np.float64)[0, :3] = -1
        part = z.real
        z *= 1j
        return part, z.imag[0]

    mine, theirs = Z.copy(), Z.copy()
    plan = af.compile(function, Z)
    for found, expected in zip(plan(mine), function(theirs), strict=True):
        assert_allclose(found, expected)
    assert_allclose(mine, theirs)


def test_real_arrays_have_no_imaginary_part_to_write() -> None:
    def function(x: Any) -> Any:
        x.imag = 1
        return x

    with pytest.raises(TypeError, match="non-complex"):
        trace(function, X)


def test_what_drops_imaginary_parts_warns_as_numpy_does() -> None:
    def function(x: Any, z: Any) -> Any:
        x[:2] = z[:2]
        return x

    with pytest.warns(np.exceptions.ComplexWarning, match="discards the imaginary part") as caught:
        graph = trace(function, X, Z).graph
    assert caught[0].filename == __file__
    assert [str(value.type) for value in graph.outputs] == ["f64[5,8]"] * 2


@pytest.mark.parametrize("name", ["arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh"])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_inverse_functions_know_their_branch_cuts_and_infinities(name: str, dtype: Any) -> None:
    sides = [0.0, 1e-30, 1e-10, 0.5, 1.0, 1 + 1e-6, 2.0, 1e5, 1e30, np.inf]
    parts = np.array([sign * side for side in sides for sign in (1, -1)])
    z = np.empty((len(parts), len(parts)), dtype)  # not `re + 1j * im`, which loses signs of zero
    z.real, z.imag = parts[:, None], parts
    with np.errstate(all="ignore"):
        right = getattr(np, name)(z)
        (found,) = interpret(split_complex(trace(getattr(np, name), z).graph), as_parts(z))
        found = as_complex(found)
    within = np.nan_to_num(8 * np.finfo(dtype).eps * np.abs(right))
    for part, other in ((found.real, right.real), (found.imag, right.imag)):
        assert np.isclose(part, other, rtol=0, atol=within, equal_nan=True).all()
        numbers = ~np.isnan(other)
        np.testing.assert_array_equal(np.signbit(part)[numbers], np.signbit(other)[numbers])
