"""Functions that templates name, as words separated by spaces; and those that are not exact."""

from __future__ import annotations

UFUNC1 = "absolute negative positive sign square rint floor ceil trunc conjugate logical_not reciprocal fabs invert"
UFUNC1F = (
    "exp exp2 expm1 log log2 log10 log1p sqrt cbrt sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh"
    " arctanh deg2rad rad2deg degrees radians spacing"
)
UFUNC1I = "invert bitwise_count negative absolute square bitwise_invert"
UFUNC2 = (
    "add subtract multiply divide true_divide maximum minimum fmax fmin floor_divide remainder mod fmod power"
    " copysign heaviside gcd lcm"
)
UFUNC2F = "arctan2 hypot logaddexp logaddexp2 float_power fmod copysign power"
UFUNC2I = "bitwise_and bitwise_or bitwise_xor"

INEXACT = (
    "exp log sqrt cbrt sin cos tan arc deg rad degrees power ** sum mean std var prod dot @ matmul einsum inner "
    "norm average accumulate reduce percentile quantile median interp hypot float_power expit erf entr logit xlog "
    "softmax cov corrcoef convolve correlate polyval vander matvec vecmat trapezoid linspace logspace geomspace "
    "sort( hanning hamming blackman kaiser sinc af. cumulative trace kron cross heaviside spacing fftfreq .at("
)
"""Parts of lines whose float results autofuse may round otherwise than NumPy; all other lines are exact.

Sorts too: zeros of either sign are equal, and may come in any order.
"""
