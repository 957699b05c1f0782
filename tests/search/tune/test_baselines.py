"""Rules of other compilers as baselines: their kernels join the space, and a tuned plan does not lose to their best."""

from dataclasses import dataclass

import pytest

from autofuse.errors import SearchError
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.fixed import Fixed
from autofuse.search.policies.policy import Partition
from autofuse.search.policies.unfused import Unfused
from autofuse.search.tune.baselines import adopt, decide_by_rules, kernels_of, rule_policies
from autofuse.testing.partitions import context_of
from autofuse.testing.sketches import Sketch, attention_graph, diamond_graph, softmax_graph

APART = Fixed((("peak",), ("shifted",), ("grown", "total"), ("share",)), "made")


@dataclass(frozen=True)
class Refusing:
    name: str = "refusing"

    def partition(self, context) -> Partition:
        raise SearchError("it cannot")


def nodes_of(space):
    return {frozenset(node.name for atom in c.atoms for node in atom.nodes) for c in space.candidates}


def test_the_rules_that_are_tried_decide():
    context = context_of(attention_graph(64, 32))
    found = decide_by_rules(context, rule_policies())
    assert found.left_out == ()
    named = ", ".join(name for name, _ in found.partitions).split(", ")
    assert sorted(named) == sorted(policy.name for policy in rule_policies())


def test_policies_that_agree_are_one_baseline():
    again = Fixed(APART.kernels, "again")
    found = decide_by_rules(context_of(softmax_graph(16, 16)), [APART, Unfused(), again])
    assert [name for name, _ in found.partitions] == ["made, again", "unfused"]


def test_a_policy_that_fails_is_left_out_with_its_reason():
    found = decide_by_rules(context_of(softmax_graph(16, 16)), [Refusing(), APART])
    assert [name for name, _ in found.partitions] == ["made"]
    assert found.left_out == ("refusing: it cannot",)


def test_policies_are_asked_while_there_is_time():
    times = iter([True, False])
    found = decide_by_rules(context_of(softmax_graph(16, 16)), [APART, Unfused()], lambda: next(times))
    assert [name for name, _ in found.partitions] == ["made"]
    assert found.left_out == ("unfused: no time was left for it",)


def test_kernels_that_the_space_lacks_join_it():
    context = context_of(diamond_graph(1 << 12))
    space = context.space
    whole = frozenset(name for nodes in nodes_of(space) for name in nodes)
    apart = frozenset(("grown", "rows"))
    assert apart in nodes_of(space)
    space.candidates[:] = [c for c in space.candidates if len(c.atoms) == 1]
    builder = context.kernels.known
    builder._by_set = {key: c for key, c in builder._by_set.items() if len(key[0]) == 1}
    partition = Fixed((tuple(apart), *((name,) for name in whole - apart))).partition(context)
    assert adopt(context, partition) == len(partition.kernels)
    assert apart in nodes_of(space)


def test_a_kernel_that_writes_less_joins_the_space_as_it_is():
    """Both kernels of the rule compute `first`, which neither writes."""
    sketch = Sketch("two_users")
    x = sketch.arg("f32[64]")
    first = sketch.op("exp", x, name="first")
    graph = sketch.finish([sketch.op("tanh", first, name="second"), sketch.op("sin", first, name="third")])
    context = context_of(graph)
    rule = Fixed((("first", "second"), ("first", "third")), "made").partition(context)
    assert [kernel.outputs for kernel in rule.kernels] == [(value,) for value in graph.outputs]
    assert adopt(context, rule) == 2
    written = {candidate.outputs for candidate in context.space.candidates if len(candidate.atoms) == 2}
    assert {kernel.outputs for kernel in rule.kernels} <= written


def test_a_kernel_that_takes_an_atom_apart_is_not_of_the_space():
    context = context_of(softmax_graph(16, 16))
    before = list(context.space.candidates)
    apart = Unfused().partition(context)
    whole = {node for atom in context.space.atom_graph.atoms if len(atom.nodes) == 1 for node in atom.nodes}
    assert adopt(context, apart) == sum(
        all(node in whole for atom in chosen.candidate.atoms for node in atom.nodes) for chosen in apart.kernels
    )
    assert context.space.candidates == before


@pytest.mark.parametrize("policy", [Unfused(), Analytical(), APART])
def test_partitions_are_compared_by_what_their_kernels_do(policy):
    context = context_of(softmax_graph(16, 16))
    work, eager = kernels_of(policy.partition(context)), kernels_of(Unfused().partition(context))
    assert work == kernels_of(policy.partition(context))
    assert (work == eager) == (policy == Unfused())
