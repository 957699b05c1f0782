"""The table of vector math functions, and their definition once per module on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autofuse.errors import BackendError
from autofuse.targets.cpu.llvmtext import mangled
from autofuse.targets.cpu.vectormath.error_function import erf, erf_inv
from autofuse.targets.cpu.vectormath.exponential import exp, exp2, expm1, logistic, tanh
from autofuse.targets.cpu.vectormath.lanes import Lanes
from autofuse.targets.cpu.vectormath.logarithm import log, log1p, log2
from autofuse.targets.cpu.vectormath.power import cbrt, power, rsqrt
from autofuse.targets.cpu.vectormath.remainder import fmod
from autofuse.targets.cpu.vectormath.trigonometric import atan2, cos, sin, tan

Body = Callable[..., Lanes]
"""Writes the function's body into the block it is given and returns the result; it may open further blocks."""

_FUNCTIONS: Mapping[str, Body] = {
    "atan2": atan2,
    "cbrt": cbrt,
    "cos": cos,
    "erf": erf,
    "erf_inv": erf_inv,
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "fmod": fmod,
    "log": log,
    "log1p": log1p,
    "log2": log2,
    "logistic": logistic,
    "pow": power,
    "rsqrt": rsqrt,
    "sin": sin,
    "tan": tan,
    "tanh": tanh,
}

NAMES = frozenset(_FUNCTIONS)
"""Functions `apply` knows."""


def outlined(name: str, body: Body, *arguments: Lanes, attributes: str = "alwaysinline") -> Lanes:
    """Call the internal function `@af_NAME_TYPE`, first defining it with `body` where the module lacks it.

    All arguments and the result have the first argument's type. The caller's block stays open, whatever `body` does.
    """
    first = arguments[0]
    symbol = f"af_{name}_{mangled(first.element, first.lanes)}"
    module = first.fn.module
    if not module.defines(symbol):
        parameters = [(argument.type, f"x{index}") for index, argument in enumerate(arguments)]
        fn = module.function(symbol, first.type, parameters, linkage="internal", attributes=attributes)
        result = body(*(Lanes(fn, f"%{parameter}", first.element, first.lanes) for _, parameter in parameters))
        fn.ret(result.type, result.name)
    called = first.fn.call(first.type, f"@{symbol}", [(argument.type, argument.name) for argument in arguments])
    return Lanes(first.fn, called, first.element, first.lanes)


def apply(name: str, *arguments: Lanes) -> Lanes:
    """`name` of float or double lanes. The bits do not depend on the lane count.

    Raises BackendError for an unknown name or an element type that is neither float nor double.
    """
    if name not in _FUNCTIONS or arguments[0].element not in ("float", "double"):
        raise BackendError(
            f"no vector math function {name!r} on {arguments[0].element}; known on float and double: {sorted(NAMES)}"
        )
    return outlined(name, _FUNCTIONS[name], *arguments)
