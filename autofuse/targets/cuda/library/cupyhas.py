"""Which functions of NumPy and SciPy CuPy has with the same meaning, for which operands, and why it has others not.

By the sources of CuPy 14. Not here, so on the host, is what CuPy has under the same name with another meaning: results
that are determined up to signs only (vectors of `svd`, `eigh` and `qr`), that come by another algorithm with other
rounding (`convolve` by FFT, whose errors grow with the largest element), with other defaults (`pinv`), or that atomics
add up in any order (`histogram` with weights).

A line is a function, the parameters that may be set, and behind `:` what operands must be:

    same       of one dtype
    float      f32 or f64
    integer    integers, or bool
    plain      no 16-bit floats
    matrix     of one or two dimensions
    paired     one matrix, or as many matrices as right-hand sides
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autofuse.errors import GraphError
from autofuse.ir.dtypes import BF16, F16, F32, F64
from autofuse.ir.types import TensorType

CUPY: Mapping[str, str] = {
    "numpy": """
        argpartition a kth axis kind : plain
        gcd x1 x2 : same integer
        isin element test_elements assume_unique invert : same integer
        lcm x1 x2 : same integer
        partition a kth axis kind : plain
        searchsorted a v side : same plain""",
    "numpy.linalg": """
        cholesky a : float
        det a : float
        eigvalsh a UPLO : float
        inv a : float
        slogdet a : float
        solve a b : same float paired
        svd a full_matrices compute_uv : float
        svdvals x : float""",
    "scipy.linalg": """
        solve_triangular a b trans lower unit_diagonal : same float matrix""",
    "scipy.ndimage": """
        convolve input weights mode cval : same float
        convolve1d input weights axis mode cval : same float
        correlate input weights mode cval : same float
        correlate1d input weights axis mode cval : same float
        gaussian_filter input sigma order mode cval : same float
        gaussian_filter1d input sigma axis order mode cval : same float
        laplace input mode cval : same float
        maximum_filter input size mode cval : same float
        minimum_filter input size mode cval : same float
        prewitt input axis mode cval : same float
        sobel input axis mode cval : same float
        uniform_filter input size mode cval : same float""",
    "scipy.special": """
        beta x0 x1 : same float
        betaln x0 x1 : same float
        digamma x0 : same float
        entr x0 : same float
        erfcinv x0 : same float
        erfcx x0 : same float
        erfinv x0 : same float
        expit x0 : same float
        exprel x0 : same float
        gamma x0 : same float
        gammainc x0 x1 : same float
        gammaincc x0 x1 : same float
        gammaln x0 : same float
        huber x0 x1 : same float
        i0 x0 : same float
        i0e x0 : same float
        i1 x0 : same float
        i1e x0 : same float
        j0 x0 : same float
        j1 x0 : same float
        k0 x0 : same float
        k1 x0 : same float
        kl_div x0 x1 : same float
        log_expit x0 : same float
        log_ndtr x0 : same float
        logit x0 : same float
        ndtr x0 : same float
        ndtri x0 : same float
        pseudo_huber x0 x1 : same float
        rel_entr x0 x1 : same float
        rgamma x0 : same float
        xlog1py x0 x1 : same float
        xlogy x0 x1 : same float
        y0 x0 : same float
        y1 x0 : same float""",
}
SIGNS = "vectors are determined up to their signs, and CuPy's are not NumPy's"
REASONS: Mapping[str, str] = {
    **dict.fromkeys(
        ("numpy.linalg.eigh", "scipy.linalg.eigh", "numpy.linalg.qr", "scipy.linalg.qr", "scipy.linalg.svd"),
        SIGNS,
    ),
    **dict.fromkeys(
        ("numpy.convolve", "numpy.correlate"), "CuPy computes it by another algorithm, with other rounding errors"
    ),
    "numpy.histogram": "CuPy counts with atomics, in another order in each run where there are weights",
}
"""Why a function runs on the host, where that is not only that CuPy lacks it."""


def parameters_there(module: str, function: str) -> tuple[frozenset[str], tuple[str, ...]] | None:
    """The parameters that may be set, and what operands must be; None for what CuPy does not have as NumPy has it."""
    for line in CUPY.get(module, "").splitlines():
        named, _, demands = line.partition(":")
        name, *allowed = named.split() or [""]
        if name == function:
            return frozenset(allowed), tuple(demands.split())
    return None


def unmet(demands: Sequence[str], operands: Sequence[TensorType]) -> str | None:
    """What operands are not that a function wants on the device; None if they are all of it."""
    for demand in demands:
        holds, said = _DEMANDS[demand]
        if not holds(operands):
            return f"there it takes operands {said}, got {', '.join(map(str, operands)) or 'none'}"
    return None


def _paired(operands: Sequence[TensorType]) -> bool:
    """CuPy repeats no matrices of a stack for the right-hand side, or the other way round."""
    a, b = operands
    return (a.rank == 2 and b.rank in (1, 2)) or (a.rank == b.rank and a.shape[:-1] == b.shape[:-1])


_Holds = Callable[[Sequence[TensorType]], bool]
_DEMANDS: Mapping[str, tuple[_Holds, str]] = {
    "same": (lambda given: len({x.dtype for x in given}) <= 1, "of one dtype"),
    "plain": (lambda given: all(x.dtype not in (BF16, F16) for x in given), "of no 16-bit floats"),
    "float": (lambda given: bool(given) and all(x.dtype in (F32, F64) for x in given), "of f32 or f64"),
    "integer": (lambda given: all(not x.dtype.is_float for x in given), "of integers"),
    "matrix": (lambda given: all(x.rank in (1, 2) for x in given), "that are matrices, or vectors"),
    "paired": (_paired, "of one matrix, or of as many matrices as right-hand sides"),
}


def require_there(module: str, function: str) -> None:
    """Raise GraphError for a function that is not among CuPy's: forms may ask for listed ones only."""
    if (module, function) not in _ASKED and parameters_there(module, function) is None:
        raise GraphError(f"{module}.{function} is not among the functions that are taken from CuPy")


_ASKED = frozenset(
    ("numpy", name)
    for name in ("arange", "argsort", "broadcast_to", "full", "diagonal", "isfinite", "sort", "take_along_axis")
)
"""What forms are made of, beside the functions they stand for: as NumPy has it for the arguments that they give."""
