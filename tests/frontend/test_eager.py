"""Calls that cannot be traced, left to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.special

from autofuse.errors import GraphError, TraceError
from autofuse.frontend.spec import spec
from autofuse.frontend.traced import trace
from autofuse.ir.ops import library_calls
from autofuse.ir.ops.library_calls import Operand, UnnamableError

A = np.random.default_rng(0).normal(size=(4, 4)) + 4 * np.eye(4)
B = np.random.default_rng(1).normal(size=(4, 2))

PROGRAMS: dict[str, Any] = {
    "one call": lambda a, b: np.linalg.inv(a + 1) @ b,
    "two operands": lambda a, b: np.linalg.solve(a, b * 2).sum(0),
    "tuple of results": lambda a, b: tuple(np.linalg.eigh(a + a.T)),
    "static arguments": lambda a, b: np.partition(b, [0, 2], axis=0) + 1,
    "chain": lambda a, b: np.linalg.det(np.linalg.inv(a)) * np.exp(np.linalg.inv(a) * 0.1),
    "scipy": lambda a, b: scipy.linalg.expm(a * 0.1) * 2,
    "constant array": lambda a, b: np.linalg.solve(a, np.ones(4)),
    "ufunc method": lambda a, b: scipy.special.beta.outer(a[0], b[0]) * 2,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_numpy(name: str, agrees: Any) -> None:
    traced = agrees(PROGRAMS[name], A, B, on_unsupported="eager", ulps=64)
    assert any(node.op == "custom_call" for node in traced.graph.nodes)


def test_what_can_be_traced_is_traced() -> None:
    graph = trace(lambda a, b: np.exp(a) @ b, A, B, on_unsupported="eager").graph
    assert [node.op for node in graph.nodes] == ["exp", "dot_general"]


def test_the_target_says_what_is_called_in_any_process() -> None:
    graph = trace(lambda b: np.partition(b, [0, 2], axis=0), B, on_unsupported="eager").graph
    (call,) = (node for node in graph.nodes if node.op == "custom_call")
    name = call.attrs["call_target_name"]
    assert name == 'numpy.partition[{"operand":0},[0,2]]{"axis":0}'
    np.testing.assert_array_equal(library_calls.resolve(name)(B), np.partition(B, [0, 2], axis=0))


def test_specs_cannot_be_run() -> None:
    with pytest.raises(TraceError, match="arrays instead of specs"):
        trace(np.linalg.inv, spec("f64[3,3]"), on_unsupported="eager")


def test_data_dependent_shapes_stay_errors() -> None:
    with pytest.raises(TraceError, match="depends on data"):
        trace(np.unique, A, on_unsupported="eager")


def test_complex_results_are_errors() -> None:
    with pytest.raises(TraceError, match="complex128"):
        trace(np.fft.fft, A, on_unsupported="eager")


@pytest.mark.parametrize(
    "name",
    [
        'numpy.load["/etc/passwd"]{}',
        'os.system["true"]{}',
        "numpy.linalg._umath_linalg[]{}",
        "numpy.linalg.inv",
        "numpy.linalg.inv[}{}",
        "numpy.linalg.inv[]",
        "numpy.linalg.inv[][]",
        "numpy.linalg.LinAlgError[]{}",
        "numpy.linalg.nothing[]{}",
        'numpy.linalg.test["full"]{}',
        "scipy.special.seterr[]{}",
        "scipy.special.errstate[]{}",
        "scipy.fft.set_global_backend[]{}",
    ],
)
def test_other_names_are_not_looked_up(name: str) -> None:
    with pytest.raises(GraphError, match="custom_call target"):
        library_calls.resolve(name)


def test_every_ufunc_of_scipy_special_is_looked_up() -> None:
    name = library_calls.target_name("scipy.special", "gammaln", [Operand(0)], {})
    np.testing.assert_allclose(library_calls.resolve(name)(np.array([5.0])), [np.log(24.0)])


def test_names_are_reproducible() -> None:
    kwargs = {"method": "lower", "axis": np.int64(0)}
    name = library_calls.target_name("numpy", "percentile", [Operand(0), (1, 2)], kwargs)
    assert name == 'numpy.percentile[{"operand":0},{"tuple":[1,2]}]{"axis":0,"method":"lower"}'
    with pytest.raises(UnnamableError):
        library_calls.target_name("numpy", "percentile", [print], {})


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        ("lu_solve", [(Operand(0), Operand(1)), Operand(2)], {}),  # trusts pivots
        ("solve", [Operand(0), Operand(1)], {"overwrite_a": True}),
        ("inv", [Operand(0)], {"check_finite": False}),
        ("svd", [Operand(0)], {"lapack_driver": "gesvd"}),
    ],
)
def test_calls_that_are_not_listed_belong_to_this_process(function: str, args: Any, kwargs: Any) -> None:
    assert library_calls.target_name("scipy.linalg", function, args, kwargs).startswith(library_calls.LOCAL)


def test_a_call_with_a_parameter_that_is_not_listed_is_traced_for_this_process(agrees: Any) -> None:
    traced = agrees(lambda a, b: scipy.linalg.inv(a, overwrite_a=True) @ b, A, B, on_unsupported="eager", ulps=64)
    (call,) = (node for node in traced.graph.nodes if node.op == "custom_call")
    assert call.attrs["call_target_name"].startswith("process.scipy.linalg.inv")
