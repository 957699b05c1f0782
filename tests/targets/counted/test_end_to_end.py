"""Programs tuned, saved, loaded and run on the counted target, as on any other."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError, BackendError, PlanError
from autofuse.targets.base import find_backend

POLICIES = ("unfused", "analytical", "measured", "greedy", "beam", "rule:xla", "rule:inductor")
RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((6, 8), np.float32), RNG.standard_normal((8, 10), np.float32)


def softened(x, w):
    """A product and a softmax: many ways to fuse."""
    y = x @ w
    e = np.exp(y - y.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def mixed(x, w, rows):
    """Something of each kind: a gather, a sort that the interpreter does, a write into an argument."""
    w += 1
    return np.sort(x[rows] * 2, axis=1), x.sum(axis=0, keepdims=True) + w[:, :1].T


def tuned(policy, **options):
    """A plan of `softened`. Its measurements are counted, not limited by time."""
    return af.tune(softened, X, W, backend="counted", policy=policy, max_trials=8, progress=False, **options)


def times(plan):
    """All that was measured."""
    return asdict(plan.certificate), [(kernel.name, kernel.measured_us, kernel.schedule) for kernel in plan.kernels]


@pytest.mark.usefixtures("near")
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_tunes_saves_loads_and_runs(policy, tmp_path: Path):
    plan = tuned(policy)
    loaded = af.load(plan.save(tmp_path / "plan.json"))
    np.testing.assert_allclose(loaded(X, W), softened(X, W), rtol=1e-5)  # sums in another order
    assert loaded.document.backend == "counted"
    counts = dict(loaded.profile(X, W))
    assert sum(counts.values()) == pytest.approx(plan.certificate.e2e_us)
    measured = {kernel.name: kernel.measured_us for kernel in plan.kernels if kernel.measured_us is not None}
    assert measured == pytest.approx({name: counts[name] for name in measured})


def test_two_runs_measure_the_same_in_processes_of_their_own_and_in_this_one(request):
    """Not roughly: all times, and so all that was decided."""
    first = tuned("measured")
    request.getfixturevalue("near")
    assert times(tuned("measured")) == times(first)


@pytest.mark.usefixtures("near")
def test_a_schedule_of_its_own_is_found_and_read_back(tmp_path: Path):
    """Rows of 5 elements waste most of a batch of 4, and none of one of 1."""
    x = RNG.standard_normal((64, 5), np.float32)
    plan = af.tune(lambda x: np.tanh(x).sum(axis=1), x, backend="counted", max_trials=12, progress=False)
    (kernel,) = plan.kernels
    assert dict(kernel.schedule.chosen).keys() == {"batch"}
    assert af.load(plan.save(tmp_path / "plan.json")).kernels == plan.kernels


def test_compile_writes_into_arguments_and_asks_the_interpreter():
    rows, mine, theirs = np.array([3, 0, 5]), W[:, :8].copy(), W[:, :8].copy()
    plan = af.compile(mixed, X, mine, rows, backend="counted")
    for found, right in zip(plan(X, mine, rows), mixed(X, theirs, rows), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5)
    np.testing.assert_array_equal(mine, theirs)


def test_out_and_arrays_that_do_not_fit_at_once():
    plan = af.compile(softened, X, W, backend="counted")
    out = np.empty((6, 10), np.float32)
    assert plan(X, W, out=out) is out
    np.testing.assert_array_equal(out, plan(X[:, ::-1][:, ::-1].copy("F"), W))
    with pytest.raises(ArgumentError, match="x"):
        plan(X[:3], W)


def test_what_it_says_of_itself():
    assert "phase" in next(iter(af.compile(softened, X, W, backend="counted").source().values()))
    with pytest.raises(ArgumentError, match="threads=2: must be 1"):
        af.compile(softened, X, W, backend="counted", threads=2)
    with pytest.raises(BackendError, match="made up"):
        find_backend("counted").calibrate(1.0, lambda share, what: None, None, force=False)


def test_a_plan_of_other_throughputs_is_refused(tmp_path: Path):
    path = af.compile(softened, X, W, backend="counted").save(tmp_path / "plan.json")
    text = path.read_text()
    path.write_text(text.replace('"generator": "counted/', '"generator": "counted/0'))
    with pytest.raises(PlanError, match="generator"):
        af.load(path)
