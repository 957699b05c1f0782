"""Calls of NumPy and SciPy functions by name: `custom_call` targets that any process can find again.

A target's name says all that the call is: the function and its arguments as JSON, operands by number:
`numpy.linalg.solve[{"operand":0},{"operand":1}]{}`. Only functions on the list below are ever looked up, so a graph
from a stranger's file calls nothing else; none of them reads or writes anything but its arguments.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, cast

import numpy as np

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.tree import as_dtype

_SPECIAL = "scipy.special"
_NAMES: Mapping[str, frozenset[str]] = {
    module: frozenset(names.split())
    for module, names in {
        "numpy": """
            argpartition corrcoef cov histogram histogram2d histogram_bin_edges i0 lexsort median nanmedian
            nanpercentile nanquantile packbits partition percentile poly polyadd polyder polyfit polyint polymul
            quantile roots sort_complex unpackbits unwrap""",
        "numpy.linalg": """
            cholesky cond cross det diagonal eig eigh eigvals eigvalsh inv lstsq matmul matrix_norm matrix_power
            matrix_rank matrix_transpose multi_dot norm outer pinv qr slogdet solve svd svdvals tensordot tensorinv
            tensorsolve trace vecdot vector_norm""",
        "numpy.fft": """
            fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2
            rfftfreq rfftn""",
        "scipy.fft": """
            dct dctn dst dstn fft fft2 fftfreq fftn fftshift fht fhtoffset hfft hfft2 hfftn idct idctn idst idstn ifft
            ifft2 ifftn ifftshift ifht ihfft ihfft2 ihfftn irfft irfft2 irfftn next_fast_len prev_fast_len rfft rfft2
            rfftfreq rfftn""",
        "scipy.linalg": """
            bandwidth block_diag cdf2rdf cho_factor cho_solve cho_solve_banded cholesky cholesky_banded circulant
            companion convolution_matrix coshm cosm cossin det dft diagsvd eig eig_banded eigh eigh_tridiagonal eigvals
            eigvals_banded eigvalsh eigvalsh_tridiagonal expm expm_cond expm_frechet fiedler fiedler_companion
            fractional_matrix_power hadamard hankel helmert hessenberg hilbert inv invhilbert invpascal ishermitian
            issymmetric khatri_rao kron ldl leslie logm lstsq lu lu_factor lu_solve matmul_toeplitz matrix_balance norm
            null_space ordqz orth orthogonal_procrustes pascal pinv pinvh polar qr qr_delete qr_insert qr_multiply
            qr_update qz rq rsf2csf schur signm sinhm sinm solve solve_banded solve_circulant solve_continuous_are
            solve_continuous_lyapunov solve_discrete_are solve_discrete_lyapunov solve_lyapunov solve_sylvester
            solve_toeplitz solve_triangular solveh_banded sqrtm subspace_angles svd svdvals tanhm tanm toeplitz tri tril
            triu""",
        "scipy.ndimage": """
            affine_transform binary_closing binary_dilation binary_erosion binary_fill_holes binary_hit_or_miss
            binary_opening binary_propagation black_tophat center_of_mass convolve convolve1d correlate correlate1d
            distance_transform_bf distance_transform_cdt distance_transform_edt extrema find_objects fourier_ellipsoid
            fourier_gaussian fourier_shift fourier_uniform gaussian_filter gaussian_filter1d
            gaussian_gradient_magnitude gaussian_laplace generate_binary_structure grey_closing grey_dilation
            grey_erosion grey_opening histogram iterate_structure label laplace map_coordinates maximum maximum_filter
            maximum_filter1d maximum_position mean median median_filter minimum minimum_filter minimum_filter1d
            minimum_position morphological_gradient morphological_laplace percentile_filter prewitt rank_filter rotate
            shift sobel spline_filter spline_filter1d standard_deviation sum sum_labels uniform_filter uniform_filter1d
            value_indices variance watershed_ift white_tophat zoom""",
        _SPECIAL: """
            ai_zeros bei_zeros beip_zeros ber_zeros bernoulli berp_zeros bi_zeros comb diric ellip_harm ellip_harm_2
            ellip_normal erf_zeros euler factorial factorial2 factorialk fresnel_zeros fresnelc_zeros fresnels_zeros
            h1vp h2vp ivp jn_zeros jnjnp_zeros jnp_zeros jnyn_zeros jvp kei_zeros keip_zeros kelvin_zeros ker_zeros
            kerp_zeros kvp lmbda log_softmax logsumexp mathieu_even_coef mathieu_odd_coef multigammaln obl_cv_seq
            pbdn_seq pbdv_seq pbvv_seq perm polygamma pro_cv_seq riccati_jn riccati_yn sinc softmax spherical_in
            spherical_jn spherical_kn spherical_yn stirling2 y0_zeros y1_zeros y1p_zeros yn_zeros ynp_zeros yvp zeta""",
    }.items()
}
"""Functions that a graph may call, by module; of `scipy.special` also every ufunc. All compute and do nothing else:
`numpy.linalg.test`, for one, runs a test suite, and is not here."""


class UnnamableError(Exception):
    """An argument that cannot be written into a target's name."""


def allowed(module: str, function: str) -> bool:
    """Whether a graph may call this function by name."""
    if module == _SPECIAL and isinstance(getattr(import_module(module), function, None), np.ufunc):
        return True
    return function in _NAMES.get(module, ())


def target_name(module: str, function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The name of a call; an argument that is an operand is given as `Operand`. Raises UnnamableError."""
    positional = json.dumps([_encoded(item) for item in args], separators=(",", ":"))
    named = json.dumps({key: _encoded(item) for key, item in kwargs.items()}, separators=(",", ":"), sort_keys=True)
    return f"{module}.{function}{positional}{named}"


class Operand(int):
    """An argument that is the operand of this number."""


def resolve(name: str) -> Callable[..., Any]:
    """The function that a target's name stands for, taking the operands.

    Raises GraphError for a function that is not on the list, or an ill-formed name.
    """
    path, bracket, rest = name.partition("[")
    module, _, function = path.rpartition(".")
    if not bracket or not allowed(module, function):
        raise GraphError(f"custom_call target {name!r} is neither registered nor a known function of NumPy or SciPy")
    target = getattr(import_module(module), function, None)
    if not callable(target) or isinstance(target, type):
        raise GraphError(f"custom_call target {name!r}: {module} has no function {function!r}")
    return _bound(target, *_arguments(name, bracket + rest))


def bound(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """`function` of the operands alone; the other arguments are fixed. Arguments are as in a target's name."""
    return _bound(function, [_encoded(item) for item in args], {key: _encoded(item) for key, item in kwargs.items()})


def _bound(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        return function(*_filled(args, operands), **_filled(kwargs, operands))

    return call


def public_module(function: Any) -> str:
    """The module that users import `function` from: `numpy.linalg`, though NumPy keeps it in a private one."""
    module, name = str(getattr(function, "__module__", None) or ""), getattr(function, "__name__", "")
    for public in sorted(_NAMES, reverse=True):  # numpy itself last
        loaded = sys.modules.get(public)
        if loaded is not None and getattr(loaded, name, None) is function:
            return public
    return module


def _arguments(name: str, text: str) -> tuple[list[Any], dict[str, Any]]:
    decoder = json.JSONDecoder()
    try:
        args, end = decoder.raw_decode(text)
        kwargs = json.loads(text[end:])
    except ValueError as error:
        raise GraphError(f"custom_call target {name!r} has ill-formed arguments: {error}") from None
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise GraphError(f"custom_call target {name!r} has ill-formed arguments")
    return cast("list[Any]", args), cast("dict[str, Any]", kwargs)


def _encoded(value: Any) -> Any:
    if isinstance(value, Operand):
        return {"operand": int(value)}
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        items = [_encoded(item) for item in cast("Sequence[Any]", value)]
        return items if isinstance(value, list) else {"tuple": items}
    dtype = as_dtype(value)
    if dtype is None:
        raise UnnamableError(f"an argument of type {type(value).__name__}")
    return {"dtype": dtype.name}


def _filled(value: Any, operands: Sequence[Any]) -> Any:
    match value:
        case {"operand": int(position)}:
            return operands[position]
        case {"tuple": list(items)}:
            return tuple(_filled(item, operands) for item in cast("list[Any]", items))
        case {"dtype": str(name)}:
            return dtypes.by_name(name).numpy
        case list():
            return [_filled(item, operands) for item in cast("list[Any]", value)]
        case dict():
            return {key: _filled(item, operands) for key, item in cast("dict[str, Any]", value).items()}
        case _:
            return value
