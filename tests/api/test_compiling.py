"""`compile` and `tune`: policies, budgets, inputs for measuring, and what is refused."""

import math
import warnings

import numpy as np
import pytest
import scipy.special

import autofuse as af
from autofuse.api import arrayfiles, programs, tunedplans, tuning
from autofuse.errors import ArgumentError, MeasureError, PlanError, PluginError, SearchError
from autofuse.frontend.traced import trace
from autofuse.ir.types import parse_type
from autofuse.measurement.client import Bench
from autofuse.measurement.database import Database
from autofuse.measurement.planraces import RACE, RACE_POLICIES
from autofuse.passes.choices import Choices
from autofuse.plan.document import GraphVariant
from autofuse.plan.identity import COLD_POLICY, MEASUREMENT_POLICY
from autofuse.search.budget.budget import Budget
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.unfused import Unfused
from autofuse.search.space.enumeration import _Enumeration
from autofuse.search.variants import variants
from autofuse.targets.base import find_target
from autofuse.targets.cpu.device.detect import detect

X = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)  # exp within 4 ulp, sums of 8 terms


# ---- compile ---------------------------------------------------------------------------------------------------------


def test_specs_stand_for_arrays():
    plan = af.compile(softmax, af.spec("f32[4,8]"))
    close(plan(X), softmax(X))
    assert plan.certificate is None


@pytest.mark.parametrize("policy", ["unfused", "analytical", Unfused()])
def test_every_policy_computes_the_same(policy):
    close(af.compile(softmax, X, policy=policy)(X), softmax(X))


def test_policies_fuse_differently():
    counts = {policy: len(af.compile(softmax, X, policy=policy).kernels) for policy in ("unfused", "analytical")}
    assert counts["analytical"] < counts["unfused"] == 5


def test_kernels_carry_predictions():
    for kernel in af.compile(softmax, X).kernels:
        assert kernel.predicted_us > 0
        assert kernel.measured_us is None
        assert kernel.kind
        assert kernel.outputs


def test_threads_are_part_of_the_plan():
    plan = af.compile(softmax, X, threads=1)
    assert plan.threads == 1
    assert plan.document.identity.threads == 1
    close(plan(X), softmax(X))


def test_what_is_left_to_numpy_is_part_of_the_plan():
    def solve(a, b):
        return np.linalg.solve(a, b) * 2

    a, b = np.eye(3) * 2, np.ones(3)
    plan = af.compile(solve, a, b, on_unsupported="eager")
    close(plan(a, b), solve(a, b))


def test_a_call_of_numpy_that_fails_leaves_the_arguments_alone():
    def step(s, a, b):
        s[:] = np.exp(-np.linalg.solve(a, b))

    s, a, b = np.full(3, 7.0), np.eye(3), np.ones(3)
    plan = af.compile(step, s, a, b, on_unsupported="eager")
    with pytest.raises(np.linalg.LinAlgError):
        plan(s, np.zeros((3, 3)), b)
    np.testing.assert_array_equal(s, np.full(3, 7.0))
    plan(s, a, b)
    close(s, np.exp(-b))


REFUSED = {
    "backend": ({"backend": "tpu"}, ArgumentError, r"backend='tpu' is unknown: must be 'cpu' or 'cuda'"),
    "policy": (
        {"policy": "analitical"},
        SearchError,
        r"policy='analitical' is unknown; did you mean analytical",
    ),
    "threads": ({"threads": 0}, ArgumentError, r"threads=0: this process may run on \d+ hardware threads; give 1\.\."),
    "on_unsupported": ({"on_unsupported": "maybe"}, ArgumentError, "on_unsupported='maybe': give"),
    "variants": (
        {"variants": "columns=wide"},
        ArgumentError,
        "variants='columns=wide': columns is apart, joined or split, not 'wide'; or give \"auto\" or \"default\"",
    ),
}


@pytest.mark.parametrize(("options", "error", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("make", [af.compile, af.tune], ids=["compile", "tune"])
def test_a_bad_option_is_named(make, options, error, message):
    with pytest.raises(error, match=message):
        make(softmax, X, **options)


def test_measuring_is_not_for_compile():
    with pytest.raises(ArgumentError, match=r'policy="measured" needs measurements: call autofuse.tune'):
        af.compile(softmax, X, policy="measured")


def test_a_wrong_number_of_arguments_is_named():
    with pytest.raises(ArgumentError, match=r"softmax\(x\) was given 2 arguments"):
        af.compile(softmax, X, X)


# ---- variants --------------------------------------------------------------------------------------------------------


def heads(x, w, v):
    return np.tanh(x @ w), x @ v


HEADS = X, np.ones((8, 3), np.float32), np.full((8, 2), 0.5, np.float32)


def right(plan):
    for found, expected in zip(plan(*HEADS), heads(*HEADS), strict=True):
        close(found, expected)


def test_a_variant_can_be_asked_for():
    plan = af.compile(heads, *HEADS, variants="columns=joined")
    right(plan)
    assert [node.op for node in plan.document.graph.nodes].count("dot_general") == 1
    assert "graph variant: columns=joined" in plan.document.notes
    assert "columns=joined" in plan.explain()
    right(af.compile(heads, *HEADS, variants=Choices(columns="joined"), policy="unfused"))


def test_the_usual_graph_is_what_there_is_without_a_word():
    plan = af.compile(heads, *HEADS)
    assert plan.document.variant is None
    assert plan.document.notes == ()


def test_variants_are_priced_and_the_clearly_cheapest_is_taken(monkeypatch):
    plan = af.compile(heads, *HEADS, variants="auto")
    right(plan)
    assert any(note.startswith("graph variants priced: default ") for note in plan.document.notes)
    monkeypatch.setattr(variants, "is_clearly_cheaper", lambda *_: True)
    plan = af.compile(heads, *HEADS, variants="auto")
    right(plan)
    assert plan.document.variant == GraphVariant("columns=joined", af.compile(heads, *HEADS).document.graph_digest)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"policy": "unfused"}, "policy unfused decides about one graph"),
        ({"rules": [af.Forbid("dot_general", "tanh")]}, "rules and legality are about the usual graph"),
        ({"legality": lambda nodes: None}, "rules and legality are about the usual graph"),
    ],
)
def test_rules_and_other_policies_keep_the_usual_graph_and_say_so(monkeypatch, options, why):
    monkeypatch.setattr(variants, "is_clearly_cheaper", lambda *_: True)
    plan = af.compile(heads, *HEADS, variants="auto", **options)
    right(plan)
    assert plan.document.variant is None
    assert f"graph variants were not searched: {why}" in plan.document.notes


@pytest.mark.slow
def test_variants_are_tuned_beside_the_usual_graph(monkeypatch):
    monkeypatch.setattr(variants, "CLOSE", 100.0)
    now, given, price = [9.0], [], tunedplans.price_variants

    def priced(*args):
        given.append(args[1])
        now[0] += 96.0
        return price(*args)

    monkeypatch.setattr(tuning, "monotonic", lambda: now[0])
    monkeypatch.setattr(tunedplans, "monotonic", lambda: now[0])
    monkeypatch.setattr(tunedplans, "price_variants", priced)
    plan = af.tune(heads, *HEADS, variants="auto", budget=200, max_trials=8, progress=False)
    assert given == [pytest.approx(2 * 0.25 * 197.6)]  # some seconds are kept for the function itself
    right(plan)
    (note,) = [note for note in plan.document.notes if note.startswith("graph variants measured: ")]
    assert "columns=joined " in note
    assert "default " in note
    assert plan.certificate.budget == "48.26 s, at most 4 measurements"  # half of what pricing and the race leave


def test_ctrl_c_among_variants_gives_the_best_plan_so_far(monkeypatch):
    monkeypatch.setattr(tunedplans, "Tuner", FakeTuner(True, KeyboardInterrupt()))
    plan = af.tune(heads, *HEADS, variants="auto", progress=False)
    assert plan.document.variant is None
    assert plan.document.notes[-1].startswith("tuning was interrupted")


# ---- tune ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_tuned_plan_is_certified(tmp_path):
    plan = af.tune(softmax, X, budget=1000, progress=False, db=tmp_path / "t.db", max_trials=12)
    close(plan(X), softmax(X))
    certificate = plan.certificate
    assert certificate.budget == "1000 s, at most 12 measurements"
    assert 0 < certificate.measured <= certificate.classes
    assert certificate.e2e_us > 0
    assert certificate.unfused_us > 0
    assert any(note.startswith("accepted partition: ") for note in plan.document.notes)
    # the same call on the same records measures no kernel again
    seen = []
    real = Bench.kernels
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bench, "kernels", lambda *args: seen.extend(found := real(*args)) or found)
        again = af.tune(softmax, X, budget=1000, progress=False, db=tmp_path / "t.db", max_trials=12)
    assert [kernel.nodes for kernel in again.kernels]
    assert sum(time.replayed for time in seen) >= certificate.measured
    assert again.certificate.space_digest == certificate.space_digest


@pytest.mark.slow
def test_cold_and_warm_measurements_are_kept_apart(tmp_path):
    options = {"progress": False, "policy": "unfused", "db": tmp_path / "t.db"}
    plans = [af.tune(softmax, X, max_trials=1, cold=cold, **options) for cold in (True, False)]
    assert [plan.certificate.timing for plan in plans] == [COLD_POLICY, MEASUREMENT_POLICY]
    for plan in plans:
        close(plan(X), softmax(X))
    with Database(tmp_path / "t.db", plans[0].document.identity) as database:
        policies = {record.measurement.policy for record in database.records()}
    assert {COLD_POLICY, MEASUREMENT_POLICY} <= policies
    assert {policy for policy in policies if policy.startswith(RACE)} == {*RACE_POLICIES.values()}
    assert ["operands in memory" in plan.explain() for plan in plans] == [True, False]


def test_a_budget_in_seconds_bounds_enumeration(monkeypatch):
    monkeypatch.setattr(Budget, "enumeration_s", 0.0)
    plan = af.tune(softmax, X, budget=2, max_trials=12, progress=False)
    assert any("of them for want of time" in note for note in plan.document.notes)
    assert plan.certificate.cut_off > 0
    close(plan(X), softmax(X))


def test_a_policy_that_is_unknown_is_refused_before_anything_is_begun(tmp_path):
    with pytest.raises(SearchError, match="did you mean measured"):
        af.tune(softmax, af.spec("f32[64,64]"), policy="mesured", db=tmp_path / "times.db")
    assert list(tmp_path.iterdir()) == []


def test_a_fixed_policy_keeps_its_partition():
    plan = af.tune(softmax, af.spec("f32[4,8]"), progress=False, policy="unfused", max_trials=6)
    assert plan.certificate.budget == "at most 6 measurements"
    assert len(plan.kernels) == 5
    assert plan.certificate.policy == "unfused"
    close(plan(X), softmax(X))


@pytest.mark.parametrize("rules", [af.Forbid("exp", "reduce"), 3, {"force": []}])
def test_rules_are_a_list_or_a_file(rules):
    with pytest.raises(ArgumentError, match="must be a list of Force, Forbid and Pin"):
        af.compile(softmax, X, rules=rules)


@pytest.mark.parametrize("seed", [-1, 1.5, "0", None])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ArgumentError, match=r"seed=.*: must be a whole number from 0"):
        af.tune(softmax, X, seed=seed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": -1}, "budget=-1: must be a number of seconds above 0; for no limit in time give max_trials= alone"),
        ({"budget": 0}, "budget=0: must be a number of seconds"),
        ({"budget": math.inf}, "budget=inf: must be a number of seconds"),
        ({"budget": float("nan")}, "budget=nan: must be a number of seconds"),
        ({"budget": "60"}, "budget='60': must be a number of seconds"),
        ({"budget": True}, "budget=True: must be a number of seconds"),
        ({"max_trials": 0}, "max_trials=0: must be a whole number from 1"),
        ({"max_trials": 2.5}, "max_trials=2.5: must be a whole number from 1"),
        ({"max_trials": True}, "max_trials=True: must be a whole number from 1"),
    ],
)
def test_budgets_are_positive(options, message):
    with pytest.raises(ArgumentError, match=message):
        af.tune(softmax, X, **options)


def test_numbers_of_numpy_are_numbers():
    budget = tunedplans._budget(np.float32(2.5), np.int64(7))
    assert (budget.seconds, budget.max_trials) == (2.5, 7)
    assert [type(number) for number in (budget.seconds, budget.max_trials)] == [float, int]
    with pytest.raises(ArgumentError, match=r"seed=np.int64\(-1\): must be a whole number from 0"):
        af.tune(softmax, X, seed=np.int64(-1))


class FakeTuner:
    """Ends as it is told; has a best plan from the start if `first` says so."""

    def __init__(self, first, end):
        self.first, self.end = first, end
        self.has_measured = first

    def __call__(self, context, bench, identity, budget, seed, report):
        self.context, self.identity = context, identity
        self.best = None
        if self.first:
            self.best = document_of(context, Unfused().partition(context), identity)
        return self

    def measured_plan(self, rules):
        assert rules
        raise self.end


def test_ctrl_c_gives_the_best_plan_so_far(monkeypatch, tmp_path):
    monkeypatch.setattr(tunedplans, "Tuner", FakeTuner(True, KeyboardInterrupt()))
    plan = af.tune(softmax, X, progress=False)
    assert plan.document.notes[-1] == "tuning was interrupted; give db= to be able to resume"
    close(plan(X), softmax(X))
    db = tmp_path / "t.db"
    plan = af.tune(softmax, X, progress=False, db=db)
    assert plan.document.notes[-1] == f"tuning was interrupted; run the same call with db={str(db)!r} to resume"


def test_ctrl_c_before_there_is_a_plan_is_ctrl_c(monkeypatch):
    monkeypatch.setattr(tunedplans, "Tuner", FakeTuner(False, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        af.tune(softmax, X, progress=False)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", [MeasureError, PluginError])
def test_errors_in_the_middle_reach_the_caller_with_the_best_plan_so_far(monkeypatch, first, kind):
    monkeypatch.setattr(tunedplans, "Tuner", FakeTuner(first, kind("the disk is full")))
    with pytest.raises(kind, match="the disk is full") as caught:
        af.tune(softmax, X, progress=False)
    assert (caught.value.best is not None) == first
    if first:
        close(caught.value.best(X), softmax(X))
        assert caught.value.best.document.notes[-1] == "tuning ended early: the disk is full"


# ---- inputs for measuring --------------------------------------------------------------------------------------------


def scaled(x, params):
    return x * params["w"] + params["b"][0]


ARGUMENTS = (af.spec("f32[4]"), {"w": af.spec("f32[4]"), "b": [af.spec("i32[]")]})


def measuring(inputs=None, args=ARGUMENTS, seed=0):
    return programs.measuring_inputs(trace(scaled, *args), inputs, seed, find_target("cpu"))


def test_the_callers_own_arrays_are_measured():
    x, w, b = np.arange(4, dtype=np.float32), np.ones(4, np.float32), np.int32(3)
    for found, given in zip(measuring(args=(x, {"w": w, "b": [b]})), (x, w, b), strict=True):
        np.testing.assert_array_equal(found, given)
        assert found.dtype == given.dtype
        assert found.flags.c_contiguous


def test_specs_get_seeded_data():
    first, again, other = measuring(seed=1), measuring(seed=1), measuring(seed=2)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first[0], other[0])
    assert [a.shape for a in first] == [(4,), (4,), ()]
    assert first[2].dtype == np.int32


@pytest.mark.parametrize("spec", ["f64[100]", "bf16[100]", "i8[100]", "u32[100]", "bool[100]"])
def test_random_data_of_every_type(spec):
    type_ = parse_type(spec)
    array = programs.random_array(type_, np.random.default_rng(0))
    assert (array.shape, array.dtype) == (type_.shape, type_.dtype.numpy)
    assert len(np.unique(array.astype(np.float64))) > 1


def test_values_come_from_a_file_by_name_or_number(tmp_path):
    path = tmp_path / "batch.npz"
    names = [value.name for value in trace(scaled, *ARGUMENTS).graph.inputs]
    np.savez(path, arg0=np.full(4, 7, np.float32), **{names[2]: np.int32(5)})
    x, w, b = measuring(path)
    assert (x == 7).all()
    assert b == 5
    np.testing.assert_array_equal(w, measuring(path)[1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"x": np.zeros(5, np.float32)}, r"inputs: x must be f32\[4\], got float32\[5\]"),
        ({"x": np.zeros(4)}, r"inputs: x must be f32\[4\], got float64\[4\]"),
        ({"y": np.zeros(4)}, r"inputs='.*npz': 'y' is no argument.*; the arguments are x, "),
        ({"arg9": np.zeros(4)}, r"inputs='.*npz': 'arg9' is no argument"),
        ({"x": np.array([None] * 4)}, r"cannot be read as \.npz"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path, content, message):
    path = tmp_path / "batch.npz"
    np.savez(path, **content)
    with pytest.raises(ArgumentError, match=message):
        measuring(path)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 broken", None])
def test_a_file_that_is_no_archive_is_refused(tmp_path, content):
    path = tmp_path / "batch.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ArgumentError, match=r"inputs='.*batch\.npz'"):
        measuring(path)


def test_a_short_file_that_unpacks_to_more_than_there_is_memory_for_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "batch.npz"
    np.savez_compressed(path, x=np.zeros(1 << 20, np.float32))
    assert path.stat().st_size < 1 << 14
    monkeypatch.setattr(arrayfiles, "available_bytes", lambda: 1 << 20)
    with pytest.raises(ArgumentError, match=r"batch\.npz': 'x': takes 4\.0 MiB of memory, 1\.0 MiB are available"):
        measuring(path)


def test_a_single_array_file_is_refused(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(4, np.float32))
    with pytest.raises(ArgumentError, match=r"must be an \.npz file, with the arguments by name"):
        measuring(path)


def test_tracing_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        af.compile(softmax, X, threads=detect().threads)


def test_a_call_that_no_file_may_hold_runs_here_and_is_not_saved(tmp_path):
    def sums(x):
        return scipy.special.beta.outer(np.exp(x), [0.5, 2])

    x = np.arange(4.0)
    plan = af.compile(sums, x, on_unsupported="eager")
    close(plan(x), sums(x))
    with pytest.raises(PlanError, match=r"cannot save the plan sums: .*outer.*in the process that traced it only"):
        plan.save(tmp_path / "sums.json")


def test_fewer_kernels_are_tried_for_a_plan_that_is_not_measured_where_the_target_says_so(monkeypatch):
    tried: list[int] = []
    run = _Enumeration.run

    def noted(self, leaner):
        space = run(self, leaner)
        tried.append(self.classes)
        return space

    monkeypatch.setattr(_Enumeration, "run", noted)
    monkeypatch.setenv("AUTOFUSE_DECISIONS", "off")
    x = np.ones((8, 8), np.float32)
    af.compile(np.tanh, x)
    af.compile(np.tanh, x, backend="counted")
    _ = af.candidates(np.tanh, x).options
    assert tried == [150, 400, 400]
