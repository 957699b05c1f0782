"""Calls that have no implementation, left to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.linalg
import scipy.ndimage
import scipy.special

from autofuse.errors import GraphError, NumpyOnlyError, TraceError
from autofuse.frontend.control import cond
from autofuse.frontend.countedloops import fori_loop
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


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "ufunc method"])
def test_listed_calls_need_no_asking(name: str, agrees: Any) -> None:
    traced = agrees(PROGRAMS[name], A, B, ulps=64)
    assert traced.left_to_numpy
    assert all("test_eager.py" in call for call in traced.left_to_numpy)


def test_calls_stand_in_loops_and_branches(agrees: Any) -> None:
    agrees(lambda a, b: fori_loop(0, 3, lambda i, s: np.linalg.solve(a, s), b), A, B, ulps=64)
    agrees(lambda a, b: cond(b[0, 0] > 0, lambda: np.linalg.inv(a), lambda: np.linalg.cholesky(a @ a.T)), A, B, ulps=64)


TYPES: dict[str, tuple[Any, list[str], list[str]]] = {
    "inv": (np.linalg.inv, ["f32[9,1000,1000]"], ["f32[9,1000,1000]"]),
    "integers": (np.linalg.inv, ["i64[7,7]"], ["f64[7,7]"]),
    "solve": (np.linalg.solve, ["f64[500,500]", "f64[500,2]"], ["f64[500,2]"]),
    "vector": (np.linalg.solve, ["f64[500,500]", "f64[500]"], ["f64[500]"]),
    "stacks": (np.linalg.solve, ["f64[4,1,9,9]", "f64[6,9,2]"], ["f64[4,6,9,2]"]),
    "wide svd": (np.linalg.svd, ["f64[20,900]"], ["f64[20,20]", "f64[20]", "f64[900,900]"]),
    "tall svd": (np.linalg.svd, ["f64[900,20]"], ["f64[900,900]", "f64[20]", "f64[20,20]"]),
    "det": (np.linalg.det, ["f32[3,8,8]"], ["f32[3]"]),
    "qr": (np.linalg.qr, ["f32[900,20]"], ["f32[900,20]", "f32[20,20]"]),
    "rank": (np.linalg.matrix_rank, ["f32[900,20]"], ["i64[]"]),
    "partition": (lambda x: np.partition(x, 1000), ["f32[1000000]"], ["f32[1000000]"]),
    "lexsort": (lambda x, y: np.lexsort((x, y)), ["f32[1000]", "f64[1000]"], ["i64[1000]"]),
    "histogram": (lambda x: np.histogram(x, 100, (0, 1)), ["f32[1000]"], ["i64[100]", "f32[101]"]),
    "gammaln": (scipy.special.gammaln, ["f32[3,1000]"], ["f32[3,1000]"]),
    "dct": (scipy.fft.dct, ["f32[3,1000]"], ["f32[3,1000]"]),
    "blur": (lambda x: scipy.ndimage.gaussian_filter(x, 2), ["f32[300,1000]"], ["f32[300,1000]"]),
}


@pytest.mark.parametrize("name", TYPES)
def test_types_of_results_follow_from_those_of_operands(name: str) -> None:
    function, operands, results = TYPES[name]
    graph = trace(function, *map(spec, operands)).graph
    (call,) = (node for node in graph.nodes if node.op == "custom_call")
    assert [str(value.type) for value in call.outputs] == results


def test_a_named_tuple_stays_one(agrees: Any) -> None:
    agrees(lambda a, b: np.linalg.eigh(a + a.T).eigenvalues + np.linalg.slogdet(a).logabsdet, A, B, ulps=64)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: np.linalg.lstsq(a, a)[0],
        np.linalg.eigvals,
        lambda a: np.histogram(a, "auto"),
        lambda a: np.argmax(np.fft.fft(a)),
        lambda a: np.trim_zeros(a[0]),
        lambda a: np.linalg.det(a[:2]),
        lambda a: a.astype(np.clongdouble).real,
        lambda a: np.zeros(3, complex).argmax() + a[0, 0],
    ],
)
def test_what_has_no_such_types_runs_as_a_whole(function: Any) -> None:
    with pytest.raises(NumpyOnlyError):
        trace(function, A)


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
        trace(np.trim_zeros, spec("f64[3]"), on_unsupported="eager")


def test_data_dependent_shapes_stay_errors() -> None:
    with pytest.raises(TraceError, match="depends on data"):
        trace(np.unique, A, on_unsupported="eager")


def test_calls_take_and_give_complex_numbers() -> None:
    graph = trace(lambda a: np.fft.ifft(np.fft.fft(a)).real, A).graph
    calls = [node for node in graph.nodes if node.op == "custom_call"]
    assert [str(node.output.type) for node in calls] == [f"c128[{A.shape[0]},{A.shape[1]}]"] * 2


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
