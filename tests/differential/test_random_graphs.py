"""Random graphs, cut into kernels at random or by a policy: fused, unfused and interpreted agree.

A failure names the seed and the family mix: `graph_of(MIXES[mix], seed)` is the graph.
"""

import numpy as np
import pytest

from autofuse.api.partitioning import make_context
from autofuse.errors import LegalityError
from autofuse.ir.interpreter import interpret
from autofuse.ir.tree import Branch, Leaf
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.passes.pipeline import clean
from autofuse.search.plans.planning import Program, plan_document
from autofuse.search.plugins.registry import policy_by_name
from autofuse.targets.base import find_target
from autofuse.targets.cpu.identity import host_cpu_identity
from autofuse.testing.devices import server
from autofuse.testing.fusions import check_plan, kernel_inputs, whole_kernel
from autofuse.testing.graphs import random_graph, random_inputs
from autofuse.testing.rareops import ALL_FAMILIES, families
from tests.fixtures.kernelchecks import check_kernel
from tests.fixtures.randomplans import random_plan, random_schedule

pytestmark = pytest.mark.usefixtures("on_server")  # with two threads, wherever this is

EXACT = families("elementwise", "broadcast", "index", "integer", "run-time index")
MIXES = {
    "everything": {"families": ALL_FAMILIES, "max_rank": 4},
    "tiny": {"families": ALL_FAMILIES, "extents": (0, 1, 1, 2, 3)},
    "longer": {"families": ALL_FAMILIES, "extents": (3, 17, 33, 70), "max_rank": 2},
    "windows": {
        "families": families("window", "contraction", "run-time index", "elementwise", "dtypes"),
        "max_rank": 4,
    },
    "exact": {"families": EXACT},
}
_MOST_ELEMENTS = 300_000


def graph_of(mix, seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(2, 20)), **mix)
    if sum(value.type.size for value in graph.values()) > _MOST_ELEMENTS:
        pytest.skip("too large to be quick")
    return graph, random_inputs(graph, rng), rng


def compiled(graph, policy):
    arguments, results = (tuple(Leaf() for _ in values) for values in (graph.inputs, graph.outputs))
    program = Program(
        name="random",
        graph=graph,
        in_tree=Branch("tuple", tuple(range(len(arguments))), arguments),
        out_tree=Branch("tuple", tuple(range(len(results))), results),
        parameters=tuple(value.name for value in graph.inputs),
        writebacks=(),
    )
    context = make_context(program, find_target(threads=2))
    partition = policy_by_name(policy).partition(context)
    return plan_document(program, partition.atoms, partition.kernels, (), host_cpu_identity(server(2)))


def as_one_kernel(mix, seeds):
    """Whole graphs as one kernel, by the reference executor; how many were legal."""
    legal = 0
    for seed in seeds:
        graph, arrays, rng = graph_of(mix, seed)
        kernel = whole_kernel(graph, contract=bool(rng.integers(2)))
        try:
            check_kernel(kernel, kernel_inputs(kernel, arrays), random_schedule(rng), native=False)
            legal += 1
        except LegalityError:
            continue
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    return legal


def in_random_kernels(mix, seed):
    graph, arrays, rng = graph_of(mix, seed)
    check_plan(random_plan(graph, rng), arrays)


def under_policies(mix, seed):
    original, arrays, _ = graph_of(mix, seed)
    graph = clean(original)
    expected = interpret(original, *arrays)
    bounds = bounds_of(original, arrays)
    found = {policy: check_plan(compiled(graph, policy), arrays) for policy in ("unfused", "analytical")}
    for results in found.values():
        for value, result, right, bound in zip(original.outputs, results, expected, bounds, strict=True):
            check(f"%{value.name}", result, right, bound)
    return graph, found


@pytest.mark.parametrize("mix", ["everything", "tiny", "windows"])
def test_whole_graphs_as_one_kernel(mix):
    assert as_one_kernel(MIXES[mix], range(120)) > 20


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("seed", range(12))
def test_random_kernels_agree_with_the_interpreter(mix, seed):
    in_random_kernels(MIXES[mix], seed)


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("seed", range(100, 105))
def test_policies_agree_with_the_interpreter(mix, seed):
    under_policies(MIXES[mix], seed)


@pytest.mark.parametrize("seed", range(200, 212))
def test_fusing_never_changes_a_bit_of_elementwise_work(seed):
    graph, found = under_policies(MIXES["exact"], seed)
    exact = folds_nothing(graph)
    for value, unfused, fused in zip(graph.outputs, found["unfused"], found["analytical"], strict=True):
        if value in exact:
            assert unfused.tobytes() == fused.tobytes(), f"%{value.name}"


def folds_nothing(graph):
    """Values with no sum before them, whose order a fusion may change."""
    exact = set(graph.inputs)
    for node in graph.nodes:
        if node.op != "reduce" and exact.issuperset(node.inputs):
            exact.update(node.outputs)
    return exact


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("block", range(10))
def test_many_random_graphs(mix, block):
    as_one_kernel(MIXES[mix], range(10_000 + block * 500, 10_500 + block * 500))
    for seed in range(1000 + block * 30, 1030 + block * 30):
        in_random_kernels(MIXES[mix], seed)
        under_policies(MIXES[mix], seed)
