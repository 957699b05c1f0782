"""fmod: the exact remainder with the dividend's sign."""

from __future__ import annotations

import numpy as np

from autofuse.targets.cpu.llvmtext import mangled
from autofuse.targets.cpu.vectormath.lanes import Lanes
from autofuse.targets.cpu.vectormath.rare import mended


def fmod(x: Lanes, y: Lanes) -> Lanes:
    """C's fmod, exact for all arguments.

    While x/y < 2**p (p two bits short of the significand) the truncated rounded quotient q is the true one or one
    more, and x - q*y is representable, so one fma gives it exactly. Larger quotients, which are rare, take libm's fmod
    behind a branch; both ways are exact, so lanes do not depend on their neighbours.
    """
    single = x.element == "float"
    ax, ay = x.abs(), y.abs()
    quotient = (ax / ay).intrinsic("trunc")
    rest = (-quotient).fma(ay, ax)
    rest = (rest < 0).select(rest + ay, rest)
    result = (ax < ay).select(ax, rest).copysign(x)
    far = (quotient >= 2.0 ** (22 if single else 51)) & (ax < np.inf) & (ay > 0)

    return mended(result, far, lambda: far.select(_library_fmod(x, y), result))


def _library_fmod(x: Lanes, y: Lanes) -> Lanes:
    """LLVM's frem, which is a call of libm's fmod per lane, kept out of line."""
    module, symbol = x.fn.module, f"af_fmod_far_{mangled(x.element, x.lanes)}"
    if not module.defines(symbol):
        fn = module.function(
            symbol, x.type, [(x.type, "x"), (x.type, "y")], linkage="internal", attributes="noinline cold"
        )
        fn.ret(x.type, fn.emit(f"frem {x.type} %x, %y"))
    called = x.fn.call(x.type, f"@{symbol}", [(x.type, x.name), (y.type, y.name)])
    return Lanes(x.fn, called, x.element, x.lanes)
