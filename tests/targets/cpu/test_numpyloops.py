"""Linear algebra of NumPy's, called without Python: its bits, its errors, and what stays Python's."""

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.interpreter import Routine
from autofuse.targets.cpu.native import numpyloops
from autofuse.targets.cpu.native.opaque import OpaqueCall

RNG = np.random.default_rng(5)
pytestmark = pytest.mark.filterwarnings("ignore:.*left to NumPy")


def matrices(*shape, dtype="f8"):
    made = RNG.standard_normal(shape) + (1j * RNG.standard_normal(shape) if np.dtype(dtype).kind == "c" else 0)
    return (made + 3 * np.eye(*shape[-2:])).astype(dtype)


FUNCTIONS = {
    "solve": np.linalg.solve,
    "solve1": lambda a, b: np.linalg.solve(a, b[:, 0]),
    "inv": lambda a, b: np.linalg.inv(a),
    "det": lambda a, b: np.linalg.det(a),
    "slogdet": lambda a, b: tuple(np.linalg.slogdet(a)),
    "part of slogdet": lambda a, b: np.linalg.slogdet(a)[1],
    "eigh": lambda a, b: tuple(np.linalg.eigh(a)),
    "eigh of the other side": lambda a, b: np.linalg.eigh(a, UPLO="U")[0],
    "eigvalsh": lambda a, b: np.linalg.eigvalsh(a, "u"),
    "svd": lambda a, b: tuple(np.linalg.svd(a[:, 1:])),
    "svd of fewer rows": lambda a, b: tuple(np.linalg.svd(a[2:], full_matrices=False)),
    "svd without vectors": lambda a, b: np.linalg.svd(a, compute_uv=False),
    "views": lambda a, b: np.linalg.solve(a.T, b[::-1]),
}


@pytest.fixture
def without_python(monkeypatch):
    """Calls back into Python fail the test."""
    monkeypatch.setattr(Routine, "run_into", lambda *_: pytest.fail("Python was called"))


def check(function, *args):
    plan = af.compile(function, *args)
    wanted, found = function(*args), plan(*args)
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (wanted, found)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    return plan


@pytest.mark.usefixtures("without_python")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_are_numpys(name):
    for dtype in ("f8", "c16", "f4") if name in ("solve", "slogdet", "eigh") else ("f8",):
        check(FUNCTIONS[name], matrices(7, 7, dtype=dtype), matrices(7, 3, dtype=dtype))


@pytest.mark.usefixtures("without_python")
def test_stacks_and_definite_matrices():
    check(np.linalg.solve, matrices(2, 3, 4, 4), matrices(2, 3, 4, 2))
    check(lambda a: np.linalg.inv(a[::2]), matrices(5, 4, 4, dtype="c16"))
    definite = matrices(6, 6)
    check(np.linalg.cholesky, definite @ definite.T)


@pytest.mark.usefixtures("without_python")
def test_loops_call_nothing_of_pythons():
    def steps(a, b):
        for _ in range(20):
            b = np.linalg.solve(a, b)
            b = b / np.abs(b).max()
        return b

    a, b = matrices(6, 6), matrices(6, 2)
    np.testing.assert_allclose(af.compile(steps, a, b)(a, b), steps(a, b), rtol=1e-12)


def test_errors_are_numpys():
    def steps(a):
        for k in range(20):
            a = np.linalg.inv(a) - (k == 12) * np.eye(4) * 0.5
        return a

    def definite(a):
        return np.linalg.cholesky(a)

    plan = af.compile(steps, np.eye(4))
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        plan(2 * np.eye(4))
    np.testing.assert_allclose(plan(3 * np.eye(4)), steps(3 * np.eye(4)), rtol=1e-12)
    plan = af.compile(definite, np.eye(4))
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        plan(-np.eye(4))


def test_what_is_other_than_expected_stays_pythons(monkeypatch):
    made = []
    real = OpaqueCall.__init__
    monkeypatch.setattr(OpaqueCall, "__init__", lambda call, program: (real(call, program), made.append(call))[0])
    check(np.linalg.solve, matrices(3, 4, 4), matrices(4, 2))
    check(np.linalg.inv, np.empty((0, 3, 3)))
    monkeypatch.setattr(numpyloops, "_loops", lambda ufunc: {})
    check(np.linalg.inv, matrices(4, 4))
    assert {call.form.file for call in made} == {"opaque"}
