"""The candidate space from Python, single candidates measured, partitions and rules."""

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError, BackendError, LegalityError, PlanError
from autofuse.targets.cpu.decisions import UNROLL

X = np.linspace(-2, 2, 64, dtype=np.float32).reshape(8, 8)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def named(plan, op):
    """The name of the only node of an op."""
    (name,) = [node.name for node in plan.document.graph.nodes if node.op == op]
    return name


@pytest.fixture(scope="module")
def space():
    return af.candidates(softmax, X)


def test_the_space_shows_what_the_search_chooses_among(space):
    assert len(space) == len(list(space)) > 5
    whole = max(space, key=lambda option: len(option.nodes))
    assert whole.kind == "stitch"
    assert whole.predicted_us >= whole.floor_us > 0
    assert space.find(*whole.nodes) is whole
    assert af.compile(softmax, X, partition=[whole.nodes])(X) == pytest.approx(softmax(X), rel=1e-5)


@pytest.mark.usefixtures("on_server")
def test_the_space_counts_what_the_solver_leaves_out():
    def two_products(x, w):
        return np.tanh(x @ w) @ w

    large = np.ones((256, 256), np.float32)
    space = af.candidates(two_products, large, large)
    assert space.dominated == 1
    assert len(space) > 2


def test_a_candidate_can_be_measured(space):
    single = min(space, key=lambda option: len(option.nodes))
    time = af.measure(single)
    assert time.status == "ok"
    assert time.us > 0


def test_a_measurement_is_kept_and_given_back(space, tmp_path):
    single = min(space, key=lambda option: len(option.nodes))
    first = af.measure(single, {"unroll": 2}, db=tmp_path / "kernels.db")
    again = af.measure(single, {"unroll": 2}, db=tmp_path / "kernels.db")
    assert (first.replayed, again.replayed) == (False, True)
    assert again.us == pytest.approx(first.us)


def test_an_unknown_schedule_is_refused(space):
    with pytest.raises(PlanError, match="unknown schedule key 'unrol'"):
        af.measure(next(iter(space)), {"unrol": 2})
    elementwise = min(space, key=lambda option: len(option.nodes))
    with pytest.raises(PlanError, match=r"schedule\.panel_rows: .*for this kernel, got 2"):
        af.measure(elementwise, {"panel_rows": 2})


def test_what_was_not_tried_is_no_candidate(space):
    with pytest.raises(ArgumentError, match="no candidate has exactly these nodes"):
        space.find("nothing")


def test_a_partition_may_be_given():
    unfused = af.compile(softmax, X, policy="unfused")
    names = [kernel.nodes for kernel in unfused.kernels]
    plan = af.compile(softmax, X, partition=[[*names[0], *names[1]], *names[2:]])
    assert len(plan.kernels) == len(names) - 1
    np.testing.assert_allclose(plan(X), softmax(X), rtol=1e-5)


@pytest.mark.parametrize("policy", ["unfused", "analytical", "greedy", "beam"])
def test_every_policy_keeps_rules(policy):
    apart = af.compile(softmax, X, policy=policy, rules=[af.Forbid("exp", "divide")])
    for kernel in apart.kernels:
        ops = {apart.document.graph.node_by_name[name].op for name in kernel.nodes}
        assert not {"exp", "divide"} <= ops
    joined = af.compile(softmax, X, policy=policy, rules=[af.Force("exp", "divide")])
    assert any({named(joined, "exp"), named(joined, "divide")} <= set(kernel.nodes) for kernel in joined.kernels)
    for plan in (apart, joined):
        np.testing.assert_allclose(plan(X), softmax(X), rtol=1e-5)


def test_a_pinned_kernel_has_its_schedule():
    plan = af.compile(softmax, X, rules=[af.Pin("exp", schedule={"unroll": 2})])
    (kernel,) = [kernel for kernel in plan.document.kernels if named(plan, "exp") in kernel.nodes]
    assert kernel.schedule[UNROLL] == 2
    with pytest.raises(ArgumentError, match=r"rules: Pin: unknown schedule key 'unrol'"):
        af.compile(softmax, X, rules=[af.Pin("exp", schedule={"unrol": 2})])
    with pytest.raises(
        ArgumentError, match=r"rules: Pin: schedule: there is no panel_rows to decide in the kernel of e$"
    ):
        af.compile(softmax, X, rules=[af.Pin("exp", schedule={"panel_rows": 2})])


def test_a_rule_that_cannot_be_kept_is_refused_with_the_reason():
    def crossed(x):
        e = np.exp(x)
        return e.sum(0), e.sum(1)

    plan = af.compile(crossed, X, policy="unfused")
    sums = [node.name for node in plan.document.graph.nodes if node.op == "reduce"]
    with pytest.raises(LegalityError, match=r"rules: Force\(.*nested inside another reduction"):
        af.compile(crossed, X, policy="unfused", rules=[af.Force(*(f"%{name}" for name in sums))])


def test_tuning_keeps_rules():
    plan = af.tune(softmax, X, budget=2.0, progress=False, rules=[af.Pin("exp")])
    (kernel,) = [kernel for kernel in plan.document.kernels if named(plan, "exp") in kernel.nodes]
    ops = [plan.document.graph.node_by_name[name].op for name in kernel.nodes]
    assert "reduce" not in ops
    assert "divide" not in ops


def test_the_space_of_another_device_is_shown_and_not_measured_here():
    space = af.candidates(softmax, X, backend="cuda", device="h200")
    assert all(option.predicted_us > 0 for option in space)
    with pytest.raises(BackendError, match="no such GPU here"):
        af.measure(space.options[0])


def test_the_space_of_a_target_that_counts_is_measured_by_its_clock():
    space = af.candidates(softmax, X, backend="counted")
    assert af.measure(space.options[0]).us == af.measure(space.options[0]).us > 0
