"""Which functions of NumPy and SciPy a graph may call, and which of their parameters it may set to what.

A line is a function and its parameters in their own order, each with the kind of value that it may have:

    array      an operand of the graph, or numbers in at most four nested lists
    array?     the same, or none
    arrays     a list of such
    flag       true or false
    axis       an axis, or none
    axes       one, several, or none
    indices    integers, which the function itself compares with the shape
    length     points along an axis of the result: at most as many as make the largest declared result four times over
    bins       as `length`, or edges (array, of operands only those of one dimension), or one of these for each axis
    pair       an array and a flag
    range      two numbers, or a list of two numbers for each axis
    dtype      an element type
    1..4       a number
    a|b        one of some words; `#` stands for a number, `none` for none
    -          not to be set: it stands here for the positions of those behind it

What is not listed may not be set: whatever writes into operands (`out`, `overwrite_*`), turns checks off, or runs
threads. Functions that trust integers from outside (pivots of `lu_solve`), whose result's shape depends on data, that
make arrays from numbers alone, or that call back, are not here at all.
"""

from __future__ import annotations

from collections.abc import Mapping

NUMPY: Mapping[str, str] = {
    "numpy": """
        argpartition a:array kth:indices axis:axis kind:introselect
        convolve a:array v:array mode:full|same|valid
        corrcoef x:array y:array? rowvar:flag dtype:dtype
        cov m:array y:array? rowvar:flag bias:flag ddof:0..64 fweights:array? aweights:array? dtype:dtype
        digitize x:array bins:array right:flag
        gcd x1:array x2:array
        histogram a:array bins:bins range:range density:flag weights:array?
        histogram2d x:array y:array bins:bins range:range density:flag weights:array?
        histogram_bin_edges a:array bins:bins range:range weights:array?
        i0 x:array
        isin element:array test_elements:array assume_unique:flag invert:flag
        lcm x1:array x2:array
        lexsort keys:arrays axis:axis
        median a:array axis:axes out:- overwrite_input:- keepdims:flag
        nanmedian a:array axis:axes out:- overwrite_input:- keepdims:flag
        nanpercentile a:array q:array axis:axes out:- overwrite_input:- method:METHOD keepdims:flag weights:array?
        nanquantile a:array q:array axis:axes out:- overwrite_input:- method:METHOD keepdims:flag weights:array?
        packbits a:array axis:axis bitorder:big|little
        partition a:array kth:indices axis:axis kind:introselect
        percentile a:array q:array axis:axes out:- overwrite_input:- method:METHOD keepdims:flag weights:array?
        poly seq_of_zeros:array
        polyadd a1:array a2:array
        polyder p:array m:0..64
        polyfit x:array y:array deg:0..64 rcond:#|none full:- w:array?
        polyint p:array m:0..64 k:array?
        polymul a1:array a2:array
        polyval p:array x:array
        quantile a:array q:array axis:axes out:- overwrite_input:- method:METHOD keepdims:flag weights:array?
        searchsorted a:array v:array side:left|right sorter:-
        unpackbits a:array axis:axis count:length bitorder:big|little
        unwrap p:array discont:#|none axis:axis period:#""",
    "numpy.linalg": """
        cholesky a:array upper:flag
        cond x:array p:ORDER
        cross x1:array x2:array axis:axis
        det a:array
        diagonal x:array offset:indices
        eig a:array
        eigh a:array UPLO:L|U|l|u
        eigvals a:array
        eigvalsh a:array UPLO:L|U|l|u
        inv a:array
        lstsq a:array b:array rcond:#|none
        matmul x1:array x2:array
        matrix_norm x:array keepdims:flag ord:ORDER
        matrix_power a:array n:-1000000..1000000
        matrix_rank A:array tol:#|none hermitian:flag rtol:#|none
        matrix_transpose x:array
        norm x:array ord:ORDER axis:axes keepdims:flag
        outer x1:array x2:array
        pinv a:array rcond:#|none hermitian:flag rtol:#|none
        qr a:array mode:reduced|complete|r|raw
        slogdet a:array
        solve a:array b:array
        svd a:array full_matrices:flag compute_uv:flag hermitian:flag
        svdvals x:array
        tensordot x1:array x2:array axes:indices
        tensorinv a:array ind:1..32
        tensorsolve a:array b:array axes:axes
        trace x:array offset:indices dtype:dtype
        vecdot x1:array x2:array axis:axis
        vector_norm x:array axis:axes keepdims:flag ord:ORDER""",
    "numpy.fft": """
        fft a:array n:length axis:axis norm:NORM
        fft2 a:array s:length axes:axes norm:NORM
        fftn a:array s:length axes:axes norm:NORM
        fftshift x:array axes:axes
        hfft a:array n:length axis:axis norm:NORM
        ifft a:array n:length axis:axis norm:NORM
        ifft2 a:array s:length axes:axes norm:NORM
        ifftn a:array s:length axes:axes norm:NORM
        ifftshift x:array axes:axes
        ihfft a:array n:length axis:axis norm:NORM
        irfft a:array n:length axis:axis norm:NORM
        irfft2 a:array s:length axes:axes norm:NORM
        irfftn a:array s:length axes:axes norm:NORM
        rfft a:array n:length axis:axis norm:NORM
        rfft2 a:array s:length axes:axes norm:NORM
        rfftn a:array s:length axes:axes norm:NORM""",
}
SCIPY: Mapping[str, str] = {
    "scipy.fft": """
        dct x:array type:1..4 n:length axis:axis norm:NORM overwrite_x:- workers:- orthogonalize:flag
        dctn x:array type:1..4 s:length axes:axes norm:NORM overwrite_x:- workers:- orthogonalize:flag
        dst x:array type:1..4 n:length axis:axis norm:NORM overwrite_x:- workers:- orthogonalize:flag
        dstn x:array type:1..4 s:length axes:axes norm:NORM overwrite_x:- workers:- orthogonalize:flag
        fft x:array n:length axis:axis norm:NORM
        fft2 x:array s:length axes:axes norm:NORM
        fftn x:array s:length axes:axes norm:NORM
        fftshift x:array axes:axes
        hfft x:array n:length axis:axis norm:NORM
        idct x:array type:1..4 n:length axis:axis norm:NORM overwrite_x:- workers:- orthogonalize:flag
        idctn x:array type:1..4 s:length axes:axes norm:NORM overwrite_x:- workers:- orthogonalize:flag
        idst x:array type:1..4 n:length axis:axis norm:NORM overwrite_x:- workers:- orthogonalize:flag
        idstn x:array type:1..4 s:length axes:axes norm:NORM overwrite_x:- workers:- orthogonalize:flag
        ifft x:array n:length axis:axis norm:NORM
        ifft2 x:array s:length axes:axes norm:NORM
        ifftn x:array s:length axes:axes norm:NORM
        ifftshift x:array axes:axes
        ihfft x:array n:length axis:axis norm:NORM
        irfft x:array n:length axis:axis norm:NORM
        irfft2 x:array s:length axes:axes norm:NORM
        irfftn x:array s:length axes:axes norm:NORM
        rfft x:array n:length axis:axis norm:NORM
        rfft2 x:array s:length axes:axes norm:NORM
        rfftn x:array s:length axes:axes norm:NORM""",
    "scipy.linalg": """
        cho_solve c_and_lower:pair b:array
        cholesky a:array lower:flag
        circulant c:array
        cosm A:array
        coshm A:array
        det a:array
        eigh a:array b:array? lower:flag eigvals_only:flag type:1..3
        eigvalsh a:array b:array? lower:flag type:1..3
        expm A:array
        hessenberg a:array calc_q:flag
        inv a:array
        lu a:array permute_l:flag
        norm a:array ord:ORDER axis:axes keepdims:flag
        pinv a:array atol:#|none rtol:#|none
        polar a:array side:left|right
        qr a:array overwrite_a:- lwork:- mode:full|r|economic
        sinm A:array
        sinhm A:array
        solve a:array b:array lower:flag overwrite_a:- overwrite_b:- check_finite:- assume_a:ASSUMED transposed:flag
        solve_toeplitz c_or_cr:array b:array
        solve_triangular a:array b:array trans:0..2 lower:flag unit_diagonal:flag
        sqrtm A:array
        svd a:array full_matrices:flag compute_uv:flag
        svdvals a:array
        tanm A:array
        tanhm A:array
        toeplitz c:array r:array?""",
    "scipy.ndimage": """
        convolve input:array weights:array output:- mode:EDGE cval:#
        convolve1d input:array weights:array axis:axis output:- mode:EDGE cval:#
        correlate input:array weights:array output:- mode:EDGE cval:#
        correlate1d input:array weights:array axis:axis output:- mode:EDGE cval:#
        gaussian_filter1d input:array sigma:0..1000 axis:axis order:0..3 output:- mode:EDGE cval:#
        gaussian_filter input:array sigma:0..1000 order:0..3 output:- mode:EDGE cval:#
        gaussian_laplace input:array sigma:0..1000 output:- mode:EDGE cval:#
        laplace input:array output:- mode:EDGE cval:#
        maximum_filter input:array size:1..1000 footprint:- output:- mode:EDGE cval:#
        median_filter input:array size:1..1000 footprint:- output:- mode:EDGE cval:#
        minimum_filter input:array size:1..1000 footprint:- output:- mode:EDGE cval:#
        prewitt input:array axis:axis output:- mode:EDGE cval:#
        sobel input:array axis:axis output:- mode:EDGE cval:#
        uniform_filter input:array size:1..1000 output:- mode:EDGE cval:#""",
    "scipy.special": """
        comb N:array k:array
        diric x:array n:array
        factorial n:array
        h1vp v:array z:array n:0..32
        h2vp v:array z:array n:0..32
        ivp v:array z:array n:0..32
        jvp v:array z:array n:0..32
        kvp v:array z:array n:0..32
        multigammaln a:array d:1..64
        perm N:array k:array
        polygamma n:array x:array
        sinc x:array
        yvp v:array z:array n:0..32
        zeta x:array q:array?""",
}
"""Of `scipy.special` also every ufunc, of arrays alone."""
OWN: Mapping[str, str] = {
    "autofuse.ir.ops.lapack": """
        cholesky a:array lower:flag
        geqrf a:array
        gesdd a:array mode:A|S|N
        getrf a:array
        orgqr a:array factors:array
        potrf a:array lower:flag
        syevd a:array lower:flag vectors:flag
        trsm a:array b:array left:flag lower:flag trans:n|t|c unit:flag""",
    "autofuse.ir.ops.reduced_matrices": """
        gees a:array vectors:flag
        geev a:array left:flag right:flag
        gehrd a:array
        geqp3 a:array pivots:array
        gtsv lower:array diagonal:array upper:array b:array
        ormqr a:array factors:array c:array left:flag transpose:flag
        sytrd a:array lower:flag""",
}
"""What modules of StableHLO ask for, and NumPy gives in another form."""

WORDS: Mapping[str, str] = {
    "METHOD": "inverted_cdf|averaged_inverted_cdf|closest_observation|interpolated_inverted_cdf|hazen|weibull|linear"
    "|median_unbiased|normal_unbiased|lower|higher|midpoint|nearest",
    "ORDER": "fro|nuc|#|none",
    "NORM": "backward|ortho|forward|none",
    "EDGE": "reflect|constant|nearest|mirror|wrap",
    "ASSUMED": "gen|sym|her|pos|none",
}
"""Kinds that several parameters have."""


_LISTED: Mapping[str, str] = {**NUMPY, **SCIPY, **OWN}


def parameters(module: str, function: str) -> Mapping[str, str] | None:
    """The parameters that a graph may set, in the function's own order, and their kinds; None if it is not listed."""
    for line in _LISTED.get(module, "").splitlines():
        name, *rest = line.split() or [""]
        if name == function:
            pairs = (parameter.split(":") for parameter in rest)
            return {parameter: WORDS.get(kind, kind) for parameter, kind in pairs}
    return None


def modules() -> tuple[str, ...]:
    """The modules that have listed functions; the innermost first."""
    return tuple(sorted(_LISTED, reverse=True))
