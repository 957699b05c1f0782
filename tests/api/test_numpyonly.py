"""Functions that run through NumPy as a whole."""

import numpy as np
import pytest
from scipy import interpolate, sparse, spatial, stats

import autofuse as af
from autofuse.errors import ArgumentError, LeftToNumpyWarning, PlanError, TraceError

X = np.linspace(0.0, 1.0, 8)
SPARSE = sparse.csr_matrix(np.eye(8))
SPLINE = interpolate.CubicSpline(X, X**3)
TREE = spatial.cKDTree(X[:, None])
FROZEN = stats.norm(0.0, 2.0)
TURNS = [np.exp(2j * X).astype(np.clongdouble)]
PROGRAMS = {
    "the largest complex number": (lambda z: {"abs": np.abs(z), "largest": np.argmax(z)}, (X + 1j,)),
    "longer complex numbers": (lambda x: x.astype(np.clongdouble), (X,)),
    "an element as a complex number": (lambda x: complex(x[1]) * x, (X,)),
    "an array of longer numbers in a list": (lambda x: x * TURNS[0], (X,)),
    "least squares": (lambda a, b: np.linalg.lstsq(a, b)[0], (np.eye(3), np.ones(3))),
    "a distribution": (lambda x: stats.norm.cdf(x) * 2, (X,)),
    "a distribution with its parameters": (lambda x: FROZEN.pdf(x) + stats.norm(0, x[1]).pdf(x), (X,)),
    "a sparse matrix": (lambda x: SPARSE @ x + 1, (X,)),
    "a spline": (lambda x: SPLINE(x) * 2 + SPLINE.derivative()(x), (X,)),
    "a spline made inside": (lambda x: interpolate.CubicSpline(X, X**3)(x) * 2, (X,)),
    "a tree of points": (lambda x: TREE.query(x[:, None])[0] + 1, (X,)),
    "inside a loop": (lambda x: af.fori_loop(0, 3, lambda _, s: s + np.fft.fft(s).argmax(), x), (X,)),
}
RUN_TO_SEE = {"least squares", "a distribution", "a distribution with its parameters", "a spline", "a tree of points"}
"""Those of whose calls `on_unsupported="eager"` asks what comes."""


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("make", [af.compile, af.tune, af.jit], ids=["compile", "tune", "jit"])
def test_the_answer_is_numpys_own(name, make):
    function, arguments = PROGRAMS[name]
    with pytest.warns(LeftToNumpyWarning, match="runs through NumPy as it is written") as caught:
        plan = af.jit(function).plan(*arguments) if make is af.jit else make(function, *arguments)
    assert len(caught) == 1
    got, expected = plan(*arguments), function(*arguments)
    for one, other in zip(*(r.values() if isinstance(r, dict) else [r] for r in (got, expected)), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("mode", ["error", "eager"])
def test_it_is_refused_where_that_is_asked_for(name, mode):
    function, arguments = PROGRAMS[name]
    if mode == "eager" and name in RUN_TO_SEE:
        return
    with pytest.raises(TraceError):
        af.compile(function, *arguments, on_unsupported=mode)


@pytest.fixture
def plan():
    def turned(z, w):
        w[0] = 1
        return (z.astype(np.clongdouble) * 1j).astype(complex)

    with pytest.warns(LeftToNumpyWarning):
        return af.compile(turned, X + 1j, X)


def test_what_it_says_of_itself(plan, tmp_path):
    assert plan.kernels == ()
    assert plan.certificate is None
    assert plan.source() == {}
    assert "turned runs through NumPy" in plan.explain() == plan.why_not()
    assert repr(plan) == "<autofuse: turned through NumPy>"
    with pytest.raises(PlanError, match="turned runs through NumPy as a whole"):
        plan.save(tmp_path / "plan.json")
    with pytest.raises(PlanError, match="turned runs through NumPy as a whole"):
        _ = plan.document


def test_profiling_it_leaves_the_arguments_alone(plan):
    w = X + 5
    ((name, us),) = plan.profile(X + 1j, w)
    assert name == "NumPy"
    assert us > 0
    assert w[0] == 5


def test_results_go_where_they_are_wanted(plan):
    out = np.empty(8, complex)
    assert plan(X + 1j, X.copy(), out=out) is out
    np.testing.assert_array_equal(out, (X + 1j) * 1j)
    for bad in (np.empty(8), np.empty(7, complex), 3):
        with pytest.raises(ArgumentError, match="out must be an array, complex128"):
            plan(X + 1j, X.copy(), out=bad)


def test_a_function_that_raises_raises_what_numpy_raises():
    with pytest.warns(LeftToNumpyWarning):
        plan = af.compile(np.linalg.inv, np.ones((2, 3)))
    with pytest.raises(np.linalg.LinAlgError):
        plan(np.ones((2, 3)))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"partition": [["y"]]}, "partition"),
        ({"rules": [af.Forbid("a", "b")]}, "rules"),
        ({"legality": lambda nodes: None, "max_memory": 1 << 20}, "legality, max_memory"),
    ],
)
def test_decisions_about_kernels_are_refused_where_there_are_none(options, named):
    with pytest.raises(ArgumentError, match=f"^{named}: .* runs through NumPy as a whole: no kernels to decide about"):
        af.compile(*_transform(), **options)
    if "partition" not in options:
        with pytest.raises(ArgumentError, match=f"^{named}: "):
            af.tune(*_transform(), **options)
        with pytest.raises(ArgumentError, match=f"^{named}: "):
            af.jit(_transform()[0], **options)(X)


def _transform():
    function, arguments = PROGRAMS["longer complex numbers"]
    return function, *arguments


POLYNOMIAL = np.poly1d([1.0, 2.0])


def test_what_objects_of_scipy_give_without_traced_arrays_is_a_constant():
    plan = af.compile(lambda x: x * stats.norm.ppf(0.975) + FROZEN.mean() + POLYNOMIAL(x), X)
    assert plan.kernels
    np.testing.assert_allclose(plan(X), X * stats.norm.ppf(0.975) + X + 2)
