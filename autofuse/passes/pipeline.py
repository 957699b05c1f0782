"""The clean-up pipeline: a fixed list of passes, run until none of them changes the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import cycle, islice
from typing import ClassVar, Literal, Protocol

from autofuse.errors import GraphError
from autofuse.ir.graph import Graph
from autofuse.ir.verifier import verify
from autofuse.passes.approximation import MarkApproximations
from autofuse.passes.arithmetic import SimplifyArithmetic
from autofuse.passes.channelslast import StoreLayouts, TurnConvolutions
from autofuse.passes.choices import DEFAULT, Choices
from autofuse.passes.common_subexpressions import MergeCommon
from autofuse.passes.complexparts import split_complex
from autofuse.passes.constant_folding import LARGE_BYTES, FoldConstants
from autofuse.passes.convolutionphases import SplitPhases
from autofuse.passes.convolutions import MultiplyPatches, ShiftResults, SplitGroups
from autofuse.passes.distribution import DistributeLoops
from autofuse.passes.joinedproducts import JoinColumns, JoinSteps
from autofuse.passes.loops import SimplifyLoops
from autofuse.passes.movement import SimplifyMovement
from autofuse.passes.multiplyadd import ContractProducts
from autofuse.passes.outputs import MaterialiseOutputs
from autofuse.passes.overwriting import MarkOverwrites
from autofuse.passes.parts import SplitConcatenations
from autofuse.passes.productrules import FoldDots, SplitDepths
from autofuse.passes.raggedmasks import WidenMasks
from autofuse.passes.raggedproducts import SumRaggedProducts
from autofuse.passes.recomputing import Recompute
from autofuse.passes.reductionrules import SimplifyReductions
from autofuse.passes.regionconstants import LiftConstants
from autofuse.passes.sinking import SinkViews
from autofuse.passes.splitting import SplitColumns
from autofuse.passes.transposedcopies import StoreTransposes
from autofuse.passes.unrolling import UnrollLoops
from autofuse.passes.wholeunrolling import UnrollWhole

Numerics = Literal["strict", "fast"]

_MOST_ROUNDS = 16


class Pass(Protocol):
    """One clean-up step: a frozen dataclass whose docstring is its contract.

    A pass keeps the number, order and types of inputs and outputs, the names of values that survive, locations, and
    what the graph computes under its numerics. It is deterministic, and returns the graph it was given if it changes
    nothing.
    """

    name: ClassVar[str]

    def apply(self, graph: Graph) -> Graph:
        """The rewritten graph. Raises GraphError for a graph that breaks the rules of the IR."""
        ...


_LAST: Sequence[Pass] = (SumRaggedProducts(), WidenMasks(), MarkOverwrites())
"""How a graph is finished."""


def passes_for(numerics: Numerics, choices: Choices = DEFAULT) -> Sequence[Pass]:
    """The passes of one round, in order."""
    usual: Sequence[Pass] = (
        SimplifyMovement(),
        FoldDots(joins_depths=choices.depths == "joined"),
        SinkViews(),
        SimplifyArithmetic(numerics),
        SimplifyReductions(numerics),
        LiftConstants(),
        SimplifyLoops(),
    )
    folding = () if choices.tables == "large" else (FoldConstants(),)
    return (*usual, *folding, MergeCommon(), *_chosen_passes(choices))


def clean(graph: Graph, numerics: Numerics = "strict", choices: Choices = DEFAULT) -> Graph:
    """`graph` simplified for fusion, its outputs distinct computed values.

    Under "strict" results are equal bit for bit, but for the order of sums and NaN payloads; "fast" also reassociates
    and ignores NaN, infinities and the sign of zero where a simpler form is won, contracts sums with products, and
    marks what targets may approximate. Cleaning twice changes no more.
    `choices` other than the defaults are made on the graph that the defaults give. Complex inputs and outputs become
    real ones, their parts along a last axis (`autofuse.passes.complexparts`).
    """
    after = _cleaned(graph, numerics, choices, _applied)
    if after is not graph:
        try:
            verify(after)
        except GraphError:  # which pass it was is found by verifying each, which takes longer than they do
            _cleaned(graph, numerics, choices, _checked)
            raise
    return after


_Apply = Callable[[Pass, Graph], Graph]
"""Gives a graph after a pass."""


def _cleaned(graph: Graph, numerics: Numerics, choices: Choices, apply: _Apply) -> Graph:
    graph = _settled(_convolved(split_complex(graph), apply), passes_for(numerics), apply)
    if choices != DEFAULT:
        graph = _settled(graph, passes_for(numerics, choices), apply)
    if choices.unrolled != DEFAULT.unrolled:
        graph = _settled(apply(_unrolling(choices), graph), passes_for(numerics, choices), apply)
    if choices.transposes == "stored":
        graph = apply(StoreTransposes(), graph)
    if choices.convolutions == "last":
        graph = apply(StoreLayouts(), graph)
    if choices.kept != DEFAULT.kept:
        graph = apply(Recompute(choices.kept), graph)
    if numerics == "fast":
        graph = apply(ContractProducts(), graph)
        graph = apply(MarkApproximations(), graph)
    return apply(MaterialiseOutputs(), graph)


def _convolved(graph: Graph, apply: _Apply) -> Graph:
    """Convolutions as kernels are made of them."""
    for step in (SplitPhases(), SplitGroups(), ShiftResults()):
        graph = apply(step, graph)
    return graph


def can_change(graph: Graph, choices: Choices) -> bool:
    """Whether there is anything in a cleaned-up graph that these choices are about. Much cheaper than making them."""
    last: list[Pass] = [StoreTransposes()] if choices.transposes == "stored" else []
    if choices.unrolled != DEFAULT.unrolled:
        last.append(_unrolling(choices))
    if choices.kept != DEFAULT.kept:
        last.append(Recompute(choices.kept))
    return any(step.apply(graph) is not graph for step in (*_chosen_passes(choices), *last))


def _unrolling(choices: Choices) -> Pass:
    return UnrollWhole() if choices.unrolled == "all" else UnrollLoops(int(choices.unrolled))


def finished(graph: Graph) -> Graph:
    """A cleaned-up graph as kernels are made of it. Bits are equal, but for the order of sums.

    It is not to be cleaned up again: what it repeats would be merged, and products are sums that choices are about.
    """
    return reduce(lambda after, step: _checked(step, after), _LAST, graph)


def _chosen_passes(choices: Choices) -> Sequence[Pass]:
    """What choices other than the defaults add to every round."""
    wanted: Sequence[tuple[bool, Pass]] = (
        (choices.tables == "large", FoldConstants(LARGE_BYTES)),
        (choices.depths == "apart", SplitDepths()),
        (choices.convolutions == "products", MultiplyPatches()),
        (choices.convolutions == "last", TurnConvolutions()),
        (choices.concatenations == "parts", SplitConcatenations()),
        (choices.loops == "distributed", DistributeLoops()),
        (choices.steps == "joined", JoinSteps()),
        (choices.columns == "joined", JoinColumns()),
        (choices.columns == "split", SplitColumns()),
    )
    return [step for is_chosen, step in wanted if is_chosen]


def _settled(graph: Graph, passes: Sequence[Pass], apply: _Apply) -> Graph:
    """The graph after the passes, until none of them changes it."""
    idle = 0
    for step in islice(cycle(passes), _MOST_ROUNDS * len(passes)):
        before, graph = graph, apply(step, graph)
        idle = idle + 1 if graph is before else 0
        if idle == len(passes):
            break
    return graph


def _applied(step: Pass, graph: Graph) -> Graph:
    """The graph after a pass."""
    return step.apply(graph)


def _checked(step: Pass, graph: Graph) -> Graph:
    """The graph after a pass. Raises GraphError, which names the pass, if what it made of the graph is none."""
    after = step.apply(graph)
    if after is not graph:
        try:
            verify(after)
        except GraphError as error:
            raise GraphError(f"after {step.name}: {error}") from error
    return after
