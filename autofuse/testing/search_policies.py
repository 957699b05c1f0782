"""The contract of `autofuse.search.policies.policy.SearchPolicy`, as tests that every policy passes.

class TestMyPolicy(SearchPolicyContract):
    def policy(self):
        return MyPolicy(...)
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

from autofuse.errors import ArgumentError, LegalityError, SearchError
from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.userrules import Forbid, Force, Pin, Rule, bind
from autofuse.ir.graph import Graph
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import values_of
from autofuse.lazydataclass import replace
from autofuse.plan.verify import verify
from autofuse.search.policies.context import Context
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.policy import Partition, SearchPolicy
from autofuse.search.policies.pricedkernels import kernels_of
from autofuse.testing.fusions import check_plan
from autofuse.testing.graphs import random_graph, random_inputs
from autofuse.testing.partitions import context_of, identity_here
from autofuse.testing.sketches import attention_graph, diamond_graph, layers_graph, softmax_graph


@cache
def sample_graphs() -> tuple[Graph, ...]:
    """Programs that fuse whole, in parts, and not at all."""
    drawn = [random_graph(np.random.default_rng(seed), 14) for seed in range(4)]
    return (softmax_graph(16, 16), attention_graph(16, 8), layers_graph(2, 8, 16), diamond_graph(1024), *drawn)


def sample_context(graph: Graph, rules: Sequence[Rule] = ()) -> Context:
    """A new context for a sample graph. Its kernels were lowered and priced before, for whatever policy."""
    known = _first_context(graph)
    problem = replace(known.problem, control=bind(rules, graph))
    return replace(known, problem=problem, kernels=kernels_of(problem, known.kernels.prices, known=known.kernels.known))


@cache
def _first_context(graph: Graph) -> Context:
    context = context_of(graph)
    context.prices(context.space)
    return context


def sample_rules(graph: Graph) -> list[Rule]:
    """Of two operations, of which one reads the other: together, apart, and the first alone."""
    real = AtomGraph(graph, contract=False).atom_of
    pairs = [
        (maker.name, reader.name)
        for reader in real
        for value in reader.inputs
        if (maker := graph.producers.get(value)) in real and maker is not None
    ]
    return [rule for a, b in pairs[:: max(1, len(pairs) // 3)] for rule in (Force(a, b), Forbid(a, b), Pin(a))]


def decisions(partition: Partition) -> list[tuple[list[str], list[str]]]:
    """What a partition decides, by name: nodes and outputs of each kernel, in running order."""
    return [
        (
            [node.name for atom in sorted(c.candidate.atoms, key=lambda a: a.number) for node in atom.nodes],
            [value.name for value in c.outputs],
        )
        for c in partition.kernels
    ]


class SearchPolicyContract:
    """Inherit, and give a `policy`."""

    def policy(self) -> SearchPolicy:
        """A new policy, ready to decide."""
        raise AssertionError("a contract suite needs the policy under test")

    def partition(self, graph: Graph, context: Context | None = None) -> Partition:
        return self.policy().partition(context or sample_context(graph))

    def test_it_has_a_name(self) -> None:
        """Users type it, plans record it."""
        name = self.policy().name
        assert name
        assert name == name.strip()

    def test_kernels_cover_the_outputs_in_an_order_in_which_each_can_run(self) -> None:
        """Every value a kernel reads was written before it, and every output is written once."""
        for graph in sample_graphs():
            partition = self.partition(graph)
            there = {*graph.inputs, *values_of(graph, Role.CONSTANT)}
            written: list[object] = []
            for chosen in partition.kernels:
                kernel = partition.atoms.candidate(chosen.candidate.atoms, chosen.outputs)
                assert there.issuperset(kernel.inputs)
                assert chosen.outputs
                there.update(chosen.outputs)
                written += chosen.outputs
            assert there.issuperset(graph.outputs)
            assert len(written) == len(set(written))

    def test_its_plans_compute_what_the_interpreter_does(self) -> None:
        """Each partition becomes a sound plan whose answer is right."""
        for graph in sample_graphs():
            context = sample_context(graph)
            document = document_of(context, self.partition(graph, context), identity_here())
            verify(document)
            check_plan(document, random_inputs(graph, np.random.default_rng(0)))

    def test_it_keeps_the_rules_of_users(self) -> None:
        """They hold for every kernel, or there is an error that says what cannot be."""
        for graph in sample_graphs():
            for rule in sample_rules(graph):
                try:
                    context = sample_context(graph, [rule])
                    kernels = self.partition(graph, context).kernels
                except (ArgumentError, LegalityError, SearchError):
                    continue
                for chosen in kernels:
                    nodes = frozenset(node for atom in chosen.candidate.atoms for node in atom.nodes)
                    assert context.control.refusal(nodes) is None

    def test_known_prices_belong_to_its_kernels(self) -> None:
        """What it says of kernels goes by the digests of those it chose."""
        for graph in sample_graphs():
            partition = self.partition(graph)
            assert partition.known.keys() <= {chosen.candidate.digest for chosen in partition.kernels}
            assert partition.price_us >= 0

    def test_the_same_context_gives_the_same_partition(self) -> None:
        """Twice with one context, with a fresh one, and by another object of the policy."""
        for graph in sample_graphs():
            context = sample_context(graph)
            first = decisions(self.partition(graph, context))
            assert decisions(self.partition(graph, context)) == first
            assert decisions(self.partition(graph)) == first

    def test_threads_may_decide_at_once(self) -> None:
        """One policy object, several programs at the same time."""
        policy = self.policy()
        graphs = sample_graphs()[:4]
        expected = [decisions(policy.partition(sample_context(graph))) for graph in graphs]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda graph: decisions(policy.partition(sample_context(graph))), graphs))
        assert found == expected

    def test_it_neither_keeps_nor_changes_its_context(self) -> None:
        """Programs and devices come and go; a policy stays."""
        graph = attention_graph(16, 8)
        context, policy = context_of(graph), self.policy()
        before = context.program, context.model, context.limits, context.deadline_s
        count = len(context.space.candidates)
        prices = dict(context.prices(context.space))
        policy.partition(context)
        assert (context.program, context.model, context.limits, context.deadline_s) == before
        assert len(context.space.candidates) == count
        assert {digest: context.prices(context.space)[digest] for digest in prices} == prices
        assert not any(holder is policy or holder is getattr(policy, "__dict__", None) for holder in _holders(context))


def _holders(thing: object) -> list[object]:
    gc.collect()
    return gc.get_referrers(thing)
