"""The policies that need no measurements."""

from dataclasses import replace

import pytest

from autofuse.errors import SearchError
from autofuse.ir.dtypes import F32
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import TensorType
from autofuse.search.plugins.registry import MEASURED, policy_by_name, policy_names
from autofuse.search.policies.analytical import Analytical, dominated_at, solve_at
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.greedy import Beam, Greedy
from autofuse.search.policies.unfused import Unfused
from autofuse.search.space.candidates import Bounds
from autofuse.testing.partitions import context_of, identity_here
from autofuse.testing.search_policies import SearchPolicyContract, decisions
from autofuse.testing.sketches import attention_graph, diamond_graph, softmax_graph


class TestUnfused(SearchPolicyContract):
    def policy(self):
        return Unfused()


class TestGreedy(SearchPolicyContract):
    def policy(self):
        return Greedy()


class TestBeam(SearchPolicyContract):
    def policy(self):
        return Beam()


class TestAnalytical(SearchPolicyContract):
    def policy(self):
        return Analytical()


def test_unfused_runs_one_kernel_per_operation():
    partition = Unfused().partition(context_of(softmax_graph(16, 16)))
    assert [nodes for nodes, _ in decisions(partition)] == [["peak"], ["shifted"], ["grown"], ["total"], ["share"]]


def test_analytical_is_never_dearer_than_unfused_by_its_own_prices():
    for graph in (softmax_graph(256, 256), attention_graph(64, 32), diamond_graph(1 << 16)):
        context = context_of(graph)
        assert Analytical().partition(context).price_us <= Unfused().partition(context).price_us * (1 + 1e-9)


def test_a_wider_search_finds_no_dearer_partition():
    for graph in (softmax_graph(256, 256), attention_graph(64, 32), diamond_graph(1 << 16)):
        context = context_of(graph)
        prices = context.prices(context.space)
        apart = sum(prices[c.digest].predicted_us for c in context.space.candidates if len(c.atoms) == 1)
        exact, beam, greedy = (policy.partition(context).price_us for policy in (Analytical(), Beam(), Greedy()))
        assert exact <= beam * (1 + 1e-9)
        assert beam <= greedy * (1 + 1e-9)
        assert greedy <= apart * (1 + 1e-9)


@pytest.mark.parametrize("policy", [Greedy(), Beam()])
def test_a_search_that_ended_with_the_time_says_so(policy):
    context = context_of(attention_graph(64, 32), bounds=Bounds(sets_per_atom=1))
    notes = document_of(context, policy.partition(context), identity_here()).notes
    assert sum(note.startswith("searched among") for note in notes) == 1
    assert not any("ended with the time" in note for note in notes)
    found = policy.partition(replace(context, deadline_s=0.0))
    assert len(found.kernels) == len(context.space.atom_graph.atoms)
    assert "merging ended with the time, after 0 s" in document_of(context, found, identity_here()).notes


def test_classes_of_infinite_price_are_left_out():
    context = context_of(softmax_graph(16, 16))
    space = context.space
    whole = next(c for c in space.candidates if len(c.atoms) == 4)
    prices = dict.fromkeys(space.classes, 1.0)
    assert [c.candidate for c in solve_at(context, space, prices).kernels] == [whole]
    without = solve_at(context, space, prices | {whole.digest: float("inf")})
    assert len(without.kernels) == 2


def test_what_two_smaller_kernels_replace_is_counted_at_the_prices_asked_for():
    context = context_of(softmax_graph(16, 16))
    space = context.space
    several = [c for c in space.candidates if len(c.atoms) > 1]
    equal = dict.fromkeys(space.classes, 1.0)
    assert dominated_at(context, space, equal) == 0
    dear = {c.digest: 10.0 ** len(c.atoms) for c in space.candidates}
    assert dominated_at(context, space, dear) == len(several)
    assert dominated_at(context, space, dear | {c.digest: float("inf") for c in several}) == 0


def test_a_value_is_computed_twice_where_writing_it_costs_more():
    # `grown` is read by a sum over rows and by what uses that sum: two kernels, each with a `grown` of its own
    context = context_of(diamond_graph(1 << 16))
    solution = solve_at(context, context.space, dict.fromkeys(context.space.classes, 10.0))
    computing = [c for c in solution.kernels if any(n.name == "grown" for a in c.candidate.atoms for n in a.nodes)]
    assert len(solution.kernels) == len(computing) == 2
    assert all(value.name != "grown" for chosen in solution.kernels for value in chosen.outputs)
    assert solution.price_us < 20.0


@pytest.mark.parametrize(("times", "least", "most"), [(1, 0.1, 0.9), (12, 0.0, 0.02)])
def test_leaving_an_output_out_saves_what_the_computation_does_not_hide(times, least, most):
    """A kernel of one cheap operation is its memory traffic; a long computation hides a write."""
    build = GraphBuilder("shared")
    x = build.input(TensorType((1 << 22,), F32), "x")
    for _ in range(times):
        x = build.emit("abs", [x]) if times == 1 else build.emit("tan", [x])
    kept = build.emit("negate", [x])
    context = context_of(build.finish([kept, build.emit("reduce", [x], dimensions=(0,), combiner="maximum")]))
    saved = context.kernels.prices.saved(context.space)
    assert saved
    assert all(least <= share <= most for share in saved.values())


def test_policies_are_found_by_name():
    assert policy_by_name("unfused").name == "unfused"
    assert policy_by_name("analytical").name == "analytical"
    assert set(policy_names()) >= {"unfused", "analytical", "measured"}


@pytest.mark.parametrize("name", [name for name in policy_names() if name != MEASURED])
def test_every_policy_that_is_named_decides(name):
    policy = policy_by_name(name)
    assert policy.name == name
    assert policy.partition(context_of(softmax_graph(64, 64))).kernels


def test_an_unknown_policy_is_answered_with_the_list():
    with pytest.raises(SearchError, match=r"policy='analytic' is unknown; did you mean analytical\?"):
        policy_by_name("analytic")
    with pytest.raises(SearchError, match="choose one of: unfused, analytical"):
        policy_by_name("best")


def test_a_policy_may_be_a_class_of_any_module():
    assert policy_by_name("autofuse.search.policies.unfused:Unfused") == Unfused()


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("no_such_module:Policy", "ModuleNotFoundError"),
        ("autofuse.search.policies.policy:NoSuch", "AttributeError"),
        ("collections:OrderedDict", "gives a OrderedDict, which has no name and partition"),
    ],
)
def test_what_is_no_policy_is_refused(path, complaint):
    with pytest.raises(SearchError, match=complaint):
        policy_by_name(path)
