"""Random graphs on the simulated device, under two policies and in two orders of threads, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.fusion.userrules import NO_RULES
from autofuse.ir.interpreter import interpret
from autofuse.lazydataclass import replace
from autofuse.lower.tile import TileProgram
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.passes.pipeline import Numerics, clean
from autofuse.runtime.planlowering import canonical
from autofuse.search.plans.planning import Tuned, plan_document
from autofuse.search.plugins.registry import policy_by_name
from autofuse.search.policies.context import Context
from autofuse.search.policies.problem import Problem
from autofuse.targets.cuda.gpus import A100, H200
from autofuse.targets.cuda.horizontal import Start
from autofuse.testing.graphs import random_graph, random_inputs
from autofuse.testing.partitions import program_of
from autofuse.testing.rareops import ALL_FAMILIES
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget

MIXES = {
    "everything": {"families": ALL_FAMILIES, "max_rank": 4},
    "tiny": {"families": ALL_FAMILIES, "extents": (0, 1, 1, 2, 3)},
    "longer": {"families": ALL_FAMILIES, "extents": (3, 17, 33, 70), "max_rank": 2},
}
_MOST_ELEMENTS = 60_000
_US = 1000.0


ORDERS = ("forward", "reverse")


def compare(mix: str, seed: int, numerics: Numerics = "strict") -> None:
    """Plans of the graph of a seed, run on devices whose threads run in one order and in the other.

    Kernels are said to take long, so that those that may run at the same time do, in streams. The second call of a plan
    replays graphs, on half of the devices. Under fast numerics what is computed is the cleaned-up graph.
    """
    rng = np.random.default_rng(seed)
    original = random_graph(rng, int(rng.integers(2, 20)), **MIXES[mix])
    if sum(value.type.size for value in original.values()) > _MOST_ELEMENTS:
        return
    given = random_inputs(original, rng)
    gpu = (A100, H200)[seed % 2]
    driver = SimulatedDriver(gpu, seed, graphs=bool(seed % 3))
    target = SimulatedTarget(gpu, driver, "simulated")
    program = program_of(clean(original, numerics))
    judged = original if numerics == "strict" else program.graph
    expected, bounds = interpret(judged, *given), bounds_of(judged, given)
    for policy in ("unfused", "analytical"):
        context = Context.of(Problem(program, target, NO_RULES, None), target.cost_model())
        partition = policy_by_name(policy).partition(context)
        known = [Tuned(predicted_us=_US)] * len(partition.kernels)
        document = plan_document(program, partition.atoms, partition.kernels, known, target.identity, target.limits)
        executable = target.executable(document)
        if seed % 4 < 2:  # streams, in place of kernels that are launched together
            alone = (canonical(k.program) if isinstance(k.program, TileProgram) else None for k in executable.kernels)
            starts = tuple(Start((number,), executable.codes.get(key)) for number, key in enumerate(alone))
            executable = replace(executable, starts=starts)
        for driver.order in ORDERS:
            found = executable.run(given)
            for value, actual, right, bound in zip(judged.outputs, found, expected, bounds, strict=True):
                check(f"seed {seed}, {mix}, {policy}, {driver.order}: %{value.name}", actual, right, bound)


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 8), marks=pytest.mark.slow)])
@pytest.mark.parametrize("mix", MIXES)
def test_random_graphs(mix: str, seeds: range) -> None:
    for seed in seeds:
        compare(mix, seed)


@pytest.mark.parametrize("seeds", [range(100, 102), pytest.param(range(102, 104), marks=pytest.mark.slow)])
@pytest.mark.parametrize("mix", MIXES)
def test_random_graphs_under_fast_numerics(mix: str, seeds: range) -> None:
    for seed in seeds:
        compare(mix, seed, "fast")


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("block", range(10))
def test_many_random_graphs(mix: str, block: int) -> None:
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        compare(mix, seed)


def test_logic_on_conditions_has_a_price() -> None:
    """Masks are booleans that no graph node makes: they are priced as such."""
    compare("longer", 1014)


def test_products_of_no_columns_have_no_tiles() -> None:
    """There is nothing to number them by: dividing by their count would be a division by zero."""
    compare("tiny", 1086)
