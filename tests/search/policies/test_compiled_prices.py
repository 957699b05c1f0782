"""What only a compiler knows of kernels decides partitions: the chosen ones are compiled, and chosen among anew."""

import pytest

from autofuse.cost_models.compiled import CompiledFacts, LaunchFacts
from autofuse.ir.graph import Graph
from autofuse.lower.statements import Map
from autofuse.lower.tile import RowGroup, TileProgram
from autofuse.search.policies.analytical import ROUNDS, Analytical
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.unfused import Unfused
from autofuse.testing.counted.target import CountedTarget
from autofuse.testing.partitions import context_of
from autofuse.testing.sketches import Sketch

SPILLED = 4_000_000
"""Bytes: at 20 ns each, more than any of these programs takes without."""


def chain(length: int, size: int = 1000) -> Graph:
    """`exp(exp(...x))`, and tanh from the seventh on, each value returned: one kernel, where nothing spills."""
    sketch = Sketch("chain")
    values = [sketch.arg(f"f32[{size}]")]
    for number in range(length):
        values.append(sketch.op("exp" if number < 6 else "tanh", values[-1]))
    return sketch.finish(values[1:])


def arithmetic(program: TileProgram) -> int:
    """Operations in the code of a kernel."""
    steps = [step for phase in program.phases() for step in phase.steps if isinstance(step, RowGroup)]
    return sum(isinstance(s, Map) for step in steps for stage in step.stages for s in stage.body)


class Compiler:
    """Kernels of more than `most` operations spill; each that is asked for is written down."""

    def __init__(self, most: float) -> None:
        self.most, self.asked = most, []

    def __call__(self, program):
        self.asked.append(arithmetic(program))
        spills = SPILLED if arithmetic(program) > self.most else 0
        return CompiledFacts((LaunchFacts(registers=32, spill_bytes=spills, private_bytes=spills, shared_bytes=0),))


def chosen(graph: Graph, compiler: Compiler, policy=None, **options):
    context = context_of(graph, target=CountedTarget(compiler=compiler), **options)
    return context, (policy or Analytical()).partition(context)


def sizes(partition) -> list[int]:
    return sorted(arithmetic(kernel.candidate.program) for kernel in partition.kernels)


def test_without_spills_everything_is_one_kernel_that_is_compiled_once():
    compiler = Compiler(most=100)
    _, partition = chosen(chain(6), compiler)
    assert sizes(partition) == [6]
    assert compiler.asked == [6]


def test_a_kernel_that_spills_is_split_where_it_does_not():
    compiler = Compiler(most=3)
    _, partition = chosen(chain(6), compiler)
    assert sizes(partition) == [3, 3]  # two launches, none of which spills
    assert partition.solution.optimal
    assert partition.notes == ()


def test_spills_that_cost_less_than_a_launch_are_borne():
    context = context_of(chain(6), target=CountedTarget(compiler=lambda _: CompiledFacts((LaunchFacts(255, 8, 8, 0),))))
    assert sizes(Analytical().partition(context)) == [6]


def test_all_that_is_chosen_was_compiled_and_none_twice():
    compiler = Compiler(most=3)
    context, partition = chosen(chain(6), compiler)
    before = list(compiler.asked)
    assert {6, 3} <= set(before)
    assert len(before) == len(set(before))  # kernels of so many operations are equal here
    again = Analytical().partition(context)
    assert again.kernels == partition.kernels
    assert compiler.asked == before


def test_the_plans_prices_are_those_of_compiled_kernels():
    context, partition = chosen(chain(2), Compiler(most=0), Unfused())
    document = document_of(context, partition, context.problem.target.identity)
    alone = context_of(chain(2), target=CountedTarget())
    usual = document_of(alone, Unfused().partition(alone), alone.problem.target.identity)
    more = [a.predicted_us - b.predicted_us for a, b in zip(document.kernels, usual.kernels, strict=True)]
    assert more == [SPILLED * 20 / 1e3] * 2


def test_rounds_are_limited_and_the_plan_says_so():
    class Worse(Compiler):
        """Whatever is compiled spills, all the more the later: another kernel always looks better."""

        def __call__(self, program):
            self.most = 0
            told = super().__call__(program)
            return CompiledFacts((LaunchFacts(32, SPILLED * len(self.asked), 0, 0),)) if told else None

    compiler = Worse(most=0)
    _, partition = chosen(chain(12), compiler)
    assert f"in each of {ROUNDS} rounds" in partition.notes[0]
    assert not partition.solution.optimal
    assert partition.solution.bound_us <= partition.price_us


def test_a_deadline_holds_for_all_rounds():
    now = iter(range(0, 1000, 40))
    context = context_of(chain(6), target=CountedTarget(compiler=Compiler(most=3)))  # 60 s for one solve
    partition = Analytical(clock=lambda: next(now)).partition(context)
    assert partition.notes == ("there was no time to choose anew after kernels were compiled",)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_the_rounds_end_where_the_cheapest_plan_of_true_prices_is(most: int):
    _, partition = chosen(chain(6), Compiler(most))
    assert max(sizes(partition)) <= most
    assert len(partition.kernels) == -(-6 // most)
