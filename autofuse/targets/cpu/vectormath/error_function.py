"""erf."""

from __future__ import annotations

from autofuse.targets.cpu.vectormath import coefficients
from autofuse.targets.cpu.vectormath.exponential import exp_reduced, reduce_ln2
from autofuse.targets.cpu.vectormath.formats import at_most, polynomial
from autofuse.targets.cpu.vectormath.lanes import Lanes


def erf(x: Lanes) -> Lanes:
    """The error function: x * (1 + E(x**2)) below 1, and 1 - exp(-G(|x|)) beyond, where G = -log(erfc).

    Beyond 1 the result is over 0.84, so the difference cancels nothing. The clamp is where erf rounds to 1.
    """
    single = x.element == "float"
    inner, outer, limit = (
        (coefficients.ERF_F32, coefficients.LOG_ERFC_F32, 4.0)
        if single
        else (coefficients.ERF_F64, coefficients.LOG_ERFC_F64, 6.0)
    )
    magnitude = x.abs()
    near = polynomial(x * x, inner).fma(x, x)
    r, power = reduce_ln2(-polynomial(at_most(magnitude, limit), outer))
    far = (-exp_reduced(r)).fma(power.value(), 1.0)
    return (magnitude < 1.0).select(near, far.copysign(x))
