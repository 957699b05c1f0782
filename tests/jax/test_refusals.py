"""What no plan has: errors that name operation, line and remedy, or JAX runs the function with one warning."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import RunByJaxWarning
from tests.jax.differing import close, numbers

jax = pytest.importorskip("jax", minversion="0.10", reason="needs JAX 0.10: pip install 'autofuse[jax]'")
jnp = jax.numpy
afj = pytest.importorskip("autofuse.jax")

X = numbers(0, 3, 3)


def calls_back(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1


def prints(x):
    jax.debug.print("{}", x.sum())
    return x + 1


def perturbed(x):
    return jax.lax.linalg.tridiagonal_solve(x[:, 0], x[:, 0], x[:, 0], x, perturb_singular=True)


REFUSED = {
    "callback": (calls_back, "callback"),
    "ordered effects": (prints, "debug_print"),
    "library call": (perturbed, "tridiagonal_solve_perturbed_ffi"),
    "quantised": (lambda x: x.astype(jnp.float8_e4m3fn).astype(jnp.float32), "f8E4M3FN"),
    "small integers": (lambda x: x.astype(jnp.int4).astype(jnp.float32), "i4"),
    "custom call": (
        lambda x: jax.ffi.ffi_call("strangers_code", jax.ShapeDtypeStruct(x.shape, x.dtype))(x),
        "strangers_code",
    ),
}


SLOWLY = ("library call", "quantised")


@pytest.mark.parametrize("case", REFUSED)
def test_errors_name_operation_line_and_remedy(case):
    function, word = REFUSED[case]
    with pytest.raises(af.AutofuseError) as caught:
        afj.jit(function)(X)
    text = str(caught.value)
    assert word in text
    assert "test_refusals.py" in text
    assert "instead" in text
    assert 'on_unsupported="xla"' in text


@pytest.mark.parametrize(
    "case",
    [*("callback", "ordered effects"), *(pytest.param(name, marks=pytest.mark.slow) for name in SLOWLY)],
)
def test_jax_runs_the_function_where_that_is_asked_for(case):
    function, word = REFUSED[case]
    planned = afj.jit(function, on_unsupported="xla")

    def run_twice():
        return planned(X), jax.jit(lambda x: planned(x) * 2)(X)

    with pytest.warns(RunByJaxWarning, match=word) as caught:
        found = run_twice()
    close(found, (function(X), function(X) * 2))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.raises(af.AutofuseError):
        planned.plan(X)


@pytest.mark.parametrize(
    "function", [lambda x: jnp.linalg.inv(x) + 1, lambda x: jnp.fft.fft(x).real], ids=["inv", "fft"]
)
def test_library_calls_are_parts_of_plans(function):
    planned = afj.jit(function)
    with pytest.warns(af.errors.LeftToNumpyWarning, match="calls left to NumPy"):
        found = planned(X)
    close(found, function(X))


def test_complex_numbers_fuse():
    function = lambda x: (x * jnp.exp(1j * x), jnp.abs(x + 2j).sum())  # noqa: E731
    close(afj.jit(function)(X), function(X))


def test_every_operation_in_the_way_is_named():
    def both(x):
        return perturbed(calls_back(x))

    with pytest.raises(af.AutofuseError, match=r"not translated: .*callback.*tridiagonal_solve_perturbed"):
        afj.jit(both)(X)


def test_collectives_over_mapped_axes():
    centred = lambda x: x - jax.lax.pmean(x, "rows")  # noqa: E731
    with pytest.raises(af.AutofuseError, match=r"psum at .*test_refusals.py.* along a named axis"):
        jax.vmap(afj.jit(centred), axis_name="rows")(X)
    with pytest.warns(RunByJaxWarning, match="psum"):
        found = jax.vmap(afj.jit(centred, on_unsupported="xla"), axis_name="rows")(X)
    close(found, X - X.mean(axis=0))


def test_options_are_checked_at_once():
    for options, word in (
        ({"on_unsupported": "numpy"}, '"error" or "xla"'),
        ({"on_miss": "no"}, "on_miss"),
        ({"policy": "measured"}, "measure"),
        ({"numerics": "loose"}, "numerics"),
    ):
        with pytest.raises(af.AutofuseError, match=word):
            afj.jit(lambda x: x, **options)


def test_what_is_fine_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        afj.jit(lambda x: x + 1, on_unsupported="xla")(X)


MISSING = """
import sys
sys.modules["jax"] = None
try:
    import autofuse.jax
except Exception as error:
    print(type(error).__name__, error)
"""
DEVICES = """
import jax, autofuse.jax as afj, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ("x",))
x = jax.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, P("x")))
try:
    afj.jit(lambda x: x * 2 + 1)(x)
except Exception as error:
    print(type(error).__name__, error)
inside = jax.shard_map(afj.jit(lambda x: x * 2 + x.sum()), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
print(np.asarray(jax.jit(inside)(x)).tolist())
"""


def run(code, **variables):
    environment = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_without_jax():
    assert "ArgumentError autofuse.jax: needs JAX" in run(MISSING)
    assert "False" in run("import autofuse, sys; autofuse.jit; print('jax' in sys.modules)")


@pytest.mark.slow
def test_arrays_over_several_devices():
    found = run(DEVICES, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert "TraceError" in found
    assert "sharded over 2 devices" in found
    assert "[6.0, 8.0, 10.0, 12.0, 30.0, 32.0, 34.0, 36.0]" in found
