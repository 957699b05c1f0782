"""Plans of many small functions of JAX's libraries (`functions/`) agree with `jax.jit`."""

from __future__ import annotations

import importlib
import warnings

import pytest

from tests.jax.differing import close

jax = pytest.importorskip("jax", minversion="0.10", reason="needs JAX 0.10: pip install 'autofuse[jax]'")
afj = pytest.importorskip("autofuse.jax")

FAMILIES = ("bodies", "linalg", "networks", "order", "randomness", "special", "transforms", "updates")
CASES = {
    f"{family}: {name}": case
    for family in FAMILIES
    for name, case in importlib.import_module(f"tests.jax.functions.{family}").CASES.items()
}
QUICK = {"updates: at.apply", "updates: at.subtract, drop", "order: lax.sort of five, 4 keys", "order: approx_max_k"}


def require_alike(function, arguments, tolerance):
    try:
        expected = jax.jit(function)(*arguments)
    except NotImplementedError as none:
        pytest.skip(f"JAX has no rule: {none}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what is left to NumPy
        found = afj.jit(function)(*arguments)
    close(found, expected, tolerance)


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
def test_values(name):
    case = CASES[name]
    require_alike(case.function, case.arguments, case.tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.has_gradient])
def test_gradients(name):
    case = CASES[name]
    require_alike(case.gradient(), case.arguments, 3 * case.tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.has_batch])
def test_batches(name):
    case = CASES[name]
    require_alike(jax.vmap(case.function), case.batch(), case.tolerance)
