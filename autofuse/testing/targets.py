"""The contract of `autofuse.targets.base`, as tests that every target passes.

class TestMyTarget(TargetContract):
    name = "mine"

A backend that no device is for here, and that says so, inherits `BackendContract` alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autofuse.cost_models.base import KernelFacts
from autofuse.cost_models.compiled import facts_from, facts_to_json
from autofuse.errors import ArgumentError, AutofuseError, MeasureError, PlanError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.graph import Graph
from autofuse.ir.interpreter import interpret
from autofuse.lazydataclass import replace
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.limits import Limits, as_it_is
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Space, TileProgram
from autofuse.measurement.checks import check, poisoned
from autofuse.measurement.errorbounds import bounds_of
from autofuse.plan.document import PlanDocument
from autofuse.plan.identity import compare, identity_from, identity_hash, identity_to_json
from autofuse.runtime.planlowering import lower_plan
from autofuse.strictjson import Item, parse
from autofuse.targets.base import Backend, Runner, Target, find_backend
from autofuse.testing.cost_models import CostModelContract
from autofuse.testing.fusions import kernel_inputs, whole_kernel
from autofuse.testing.graphs import random_inputs
from autofuse.testing.partitions import unfused_plan
from autofuse.testing.sketches import Sketch, attention_graph, diamond_graph, softmax_graph

Array = NDArray[Any]


def sample_kernels() -> list[KernelCandidate]:
    """A loop, a reduction, a stitched kernel, a kernel of products, and one that the interpreter does."""
    graphs = [_loop(), _sums(), softmax_graph(6, 10), attention_graph(8, 6), _sorted()]
    return [whole_kernel(graph) for graph in graphs]


def _loop() -> Graph:
    sketch = Sketch("loop")
    x = sketch.arg("f32[7,9]")
    return sketch.finish([sketch.op("multiply", sketch.op("exp", x), sketch.transpose(sketch.arg("f32[9,7]", "y")))])


def _sums() -> Graph:
    sketch = Sketch("sums")
    return sketch.finish([sketch.reduce(sketch.arg("f32[5,33]"), 1)])


def _sorted() -> Graph:
    sketch = Sketch("sorted")
    return sketch.finish([sketch.op("sort", sketch.arg("f32[4,6]"), dimension=1, descending=False, stable=True)])


def _no_kernel() -> KernelCandidate:
    """Sums over either axis of what a product made: legal apart, not together."""
    return whole_kernel(diamond_graph(4096))


def _written_back() -> Graph:
    """`x + y` for a result, and `x * 2`, the new value of `x`."""
    sketch = Sketch("written")
    x, y = sketch.arg("f32[16,4]"), sketch.arg("f32[16,4]", "y")
    return sketch.finish([sketch.op("add", x, y), sketch.op("multiply", x, sketch.splat(2, x))])


class BackendContract:
    """Inherit, and give a `name`."""

    name: str

    @property
    def backend(self) -> Backend:
        return find_backend(self.name)

    def test_it_is_found_by_its_name(self) -> None:
        """Which its identities have too."""
        assert self.backend.name == self.name
        assert self.backend.identity_type.backend == self.name
        assert find_backend(self.name) is self.backend

    def test_defaults_and_tried_values_are_in_range(self) -> None:
        """Each decision has a name of its own, says what it changes, and is left out of a schedule by default."""
        decisions = self.backend.decisions
        assert len(decisions.by_name) == len(decisions.rules)
        for rule in decisions.rules:
            assert rule.decision.allowed.holds(rule.decision.default)
            assert rule.decision.effect
            assert decisions.read({rule.decision.name: rule.decision.default}) == Schedule()
        with pytest.raises(PlanError, match="unknown schedule key 'no_such'"):
            decisions.read({"no_such": 1})

    def test_what_needs_no_device_works_without_one(self) -> None:
        """Looking around, and asking for what nobody kept."""
        self.backend.prepare()
        assert self.backend.ready(b"a plan that nobody kept") is None
        found = self.backend.diagnosis(ask_driver=False)
        assert json.loads(json.dumps(found.facts)) == found.facts
        assert found.lines
        assert all(word and text for word, text in found.lines)


class TargetContract(BackendContract, CostModelContract):
    """Inherit, and give a `name`: of a backend with a device here."""

    def target(self) -> Target:
        """The device, anew."""
        return self.backend.target()

    def model(self) -> Any:
        return self.target().cost_model()

    def programs(self) -> list[TileProgram]:
        """The sample kernels of generated code, as the passes left them."""
        lowered = [lower(kernel, Schedule(), "kernel", self.target().limits) for kernel in sample_kernels()]
        return [program for program in lowered if isinstance(program, TileProgram)]

    def document(self, graph: Graph, writebacks: tuple[int, ...] = ()) -> PlanDocument:
        """A plan with a kernel for each operation."""
        return unfused_plan(graph, writebacks, self.target())

    # ---- what it is ----------------------------------------------------------------------------------------------

    def test_processes_can_have_devices_of_their_own(self) -> None:
        """As many as are asked for, if there are so many; variables of their environment say which."""
        for most in (1, 3):
            found = self.backend.apart(most)
            assert 1 <= len(found) <= most
            assert all(isinstance(text, str) for one in found for item in one.items() for text in item)

    def test_it_says_what_it_is(self) -> None:
        """The same each time: what is equal must run the same plans."""
        one, other = self.target(), self.target()
        assert one.backend == self.name
        assert one.threads >= 1
        assert one.identity == other.identity
        assert one.fingerprint() == other.fingerprint() != ""
        assert self.backend.target_of(one.identity).identity == one.identity

    def test_threads_that_it_has_not_are_refused(self) -> None:
        """By name, and not only where a plan runs."""
        for threads in (0, -1, 1 << 20):
            with pytest.raises(ArgumentError, match="threads"):
                self.backend.target(threads)

    def test_its_identity_survives_json(self) -> None:
        """And goes by a digest that does too."""
        identity = self.target().identity
        assert isinstance(identity, self.backend.identity_type)
        assert identity.product
        assert identity.generator
        text = json.dumps(identity_to_json(identity))
        read = identity_from(Item(json.loads(text), "identity", PlanError, "plan"))
        assert read == identity
        assert compare(read, identity) == []
        assert identity_hash(read) == identity_hash(identity)

    # ---- kernels -------------------------------------------------------------------------------------------------

    def test_tried_values_are_allowed_and_the_default_is_among_them(self) -> None:
        """Whatever the kernel; and a search may choose each of them."""
        limits = self.target().limits
        assert limits.decisions.by_name.keys() == self.backend.decisions.by_name.keys()
        for program in self.programs():
            for decision, values in limits.decisions.choices(program).items():
                assert decision.default in values
                for value in values:
                    assert decision.allowed.holds(value)
                    assert limits.decisions.refusal(Schedule.of({decision: value}), program) is None

    def test_passes_change_no_answer_and_change_nothing_twice(self) -> None:
        """Each program means what it meant, also where it is passed through them again."""
        passes = self.target().limits.passes
        for kernel, program in zip(sample_kernels(), self.programs(), strict=False):
            inputs = _arguments(kernel)
            names = [buffer.name for buffer in program.buffers if buffer.space is Space.INPUT]
            given = dict(zip(names, inputs, strict=True))
            plain = lower(kernel, Schedule(), "kernel", _without_passes(self.target()))
            assert isinstance(plain, TileProgram)
            answers = [evaluate_program(p, given) for p in (plain, program, passes(program))]
            for name, right in answers[0].items():
                for answer in answers[1:]:
                    np.testing.assert_allclose(answer[name], right, rtol=1e-5, atol=1e-6)  # sums in another order

    def test_features_are_counts(self) -> None:
        """The same each time, never negative, and of buffers that the kernel has."""
        target = self.target()
        for program in self.programs():
            found = target.features(program)
            assert found == target.features(program)
            assert found.launches == len(program.launches)
            assert {buffer.name for buffer in found.buffers} == {buffer.name for buffer in program.parameters()}
            for buffer in found.buffers:
                assert 0 <= buffer.floor_read_bytes <= buffer.read_bytes
                assert 0 <= buffer.floor_written_bytes <= buffer.written_bytes

    def test_runners_give_the_interpreters_answers(self) -> None:
        """Under every schedule that may be chosen one decision at a time; no poison is left."""
        for kernel in sample_kernels():
            inputs = _arguments(kernel)
            graph = Graph("kernel", kernel.inputs, kernel.nodes, kernel.outputs)
            right, bounds = interpret(graph, *inputs), bounds_of(graph, inputs)
            schedules = self.schedules(kernel)
            runners = self.target().runners(kernel, schedules)
            assert len(runners) == len(schedules)
            for runner in runners:
                for out, expected, bound in zip(_ran(runner, kernel, inputs), right, bounds, strict=True):
                    check(kernel.outputs[0].name, out, expected, bound)

    def schedules(self, kernel: KernelCandidate) -> list[Schedule]:
        """The default, and each decision at its first and its last other value."""
        limits = self.target().limits
        choices = limits.decisions.choices(lower(kernel, Schedule(), "kernel", limits))
        ends = [(decision, value) for decision, values in choices.items() for value in (values[0], values[-1])]
        return list(dict.fromkeys([Schedule(), *(Schedule.of({decision: value}) for decision, value in ends)]))

    def test_a_runner_refuses_arrays_that_do_not_fit(self) -> None:
        """And touches nothing."""
        kernel = sample_kernels()[0]
        (runner,) = self.target().runners(kernel, [Schedule()])
        assert not isinstance(runner, AutofuseError)
        outs = _poisoned(kernel)
        before = outs[0].copy()
        assert not runner.run_into([array[:2] for array in _arguments(kernel)], outs)
        np.testing.assert_array_equal(outs[0], before)

    def test_a_runner_says_what_its_compiler_knows_or_nothing(self) -> None:
        """As data that can be kept, the same each time."""
        kernel = sample_kernels()[0]
        (runner,) = self.target().runners(kernel, [Schedule()])
        assert not isinstance(runner, AutofuseError)
        facts = runner.compiled()
        assert facts == runner.compiled()
        if facts is not None:
            written = json.dumps(facts_to_json(facts))
            assert facts_from(parse(written, MeasureError, "facts")) == facts

    def test_what_is_no_kernel_is_an_error_returned_and_not_raised(self) -> None:
        """The others of the batch are not lost with it."""
        (refused,) = self.target().runners(_no_kernel(), [Schedule()])
        assert isinstance(refused, AutofuseError)
        assert str(refused)

    def test_the_clock_moves_with_the_work(self) -> None:
        """It is a whole number that never goes back, and a bound call moves it."""
        target = self.target()
        kernel = sample_kernels()[2]
        (runner,) = target.runners(kernel, [Schedule()])
        assert not isinstance(runner, AutofuseError)
        call = runner.bound(_arguments(kernel), _poisoned(kernel))
        read = [target.clock()]
        for _ in range(5):
            call()
            read.append(target.clock())
        assert all(type(time) is int for time in read)
        assert all(before < after for before, after in pairwise(read))

    def test_it_says_what_times_depend_on(self) -> None:
        """The size of its caches, 0 if it has none, and its state in words, if it matters."""
        target = self.target()
        assert type(target.computes_references) is bool
        assert type(target.cache_bytes) is int
        assert target.cache_bytes >= 0
        state = target.conditions()
        assert state is None or (type(state) is str and state)

    def test_what_a_call_takes_beside_its_kernel_is_no_negative_time(self) -> None:
        """And it does not fall with the number of arrays."""
        times = [self.target().entry_us(arrays) for arrays in (1, 4, 16)]
        assert 0.0 <= times[0] <= times[1] <= times[2] < 1e3

    def test_kernels_that_are_started_together_take_no_longer_than_alone(self) -> None:
        """By the target's model, if it says anything of that; none take nothing."""
        target = self.target()
        kernels = [KernelFacts(program) for program in self.programs()]
        each = [target.joined_us([facts]) for facts in kernels]
        together = target.joined_us([*kernels, *kernels])
        if together is None:
            assert {*each, target.joined_us(())} == {None}
            return
        assert target.joined_us(()) == 0
        alone = [us for us in each if us is not None]
        assert len(alone) == len(kernels)
        assert max(alone) <= together <= 2 * sum(alone) * (1 + 1e-9)

    # ---- plans ---------------------------------------------------------------------------------------------------

    def test_a_plan_gives_the_interpreters_answers(self) -> None:
        """As fresh results, and in memory that is given."""
        for kernel in sample_kernels():
            graph = kernel.graph
            inputs = random_inputs(graph, np.random.default_rng(0))
            executable = self.target().executable(self.document(graph))
            right, bounds = interpret(graph, *inputs), bounds_of(graph, inputs)
            outs = [poisoned(value.type.shape, value.type.dtype) for value in graph.outputs]
            assert executable.run_into(inputs, outs)
            for results in (executable.run(inputs), outs):
                for value, out, expected, bound in zip(graph.outputs, results, right, bounds, strict=True):
                    check(value.name, out, expected, bound)

    def test_what_is_written_back_is_where_the_plan_says(self) -> None:
        """In the argument itself if it is aliased, else in the result for it; the other arguments stay as they were."""
        graph = _written_back()
        inputs = list(random_inputs(graph, np.random.default_rng(0)))
        given = [array.copy() for array in inputs]
        executable = self.target().executable(self.document(graph, (0,)))
        results = executable.run(inputs)
        np.testing.assert_array_equal(results[0], given[0] + given[1])
        np.testing.assert_array_equal(results[1], given[0] * 2)
        assert executable.aliased <= {1}
        assert executable.aliased == {output for output, _ in executable.memory.aliases}
        np.testing.assert_array_equal(inputs[0], given[0] * 2 if executable.aliased else given[0])
        np.testing.assert_array_equal(inputs[1], given[1])

    def test_an_executable_says_what_it_is(self) -> None:
        """Kernels in running order, their memory, their times and their text."""
        target, graph = self.target(), softmax_graph(6, 10)
        document = self.document(graph)
        inputs = random_inputs(graph, np.random.default_rng(0))
        executable = target.executable(document, lower_plan(document, target.limits))
        names = [document.kernels[launch.kernel].name for launch in document.order]
        assert [kernel.planned.name for kernel in executable.kernels] == names
        assert executable.memory.argument_bytes == 240
        assert executable.memory.result_bytes == 240
        assert executable.memory.arena_bytes > 0
        times = executable.profile(inputs)
        assert len(times) == len(names)
        assert all(time >= 0 for time in times)
        assert set(executable.source()) <= set(names)
        assert all(executable.source().values())
        assert all(executable.listings().values())
        assert executable.program.constant_bytes == executable.memory.constant_bytes

    def test_arguments_that_do_not_fit_are_left_to_the_caller(self) -> None:
        """Types, layouts, counts: NotImplemented and False, and errors in words where there is nobody else."""
        graph = softmax_graph(6, 10)
        executable = self.target().executable(self.document(graph))
        (x,) = random_inputs(graph, np.random.default_rng(0))
        for unfit in ([x[:3]], [x.astype(np.float64)], [np.asfortranarray(x)], [x, x], []):
            assert executable.run(unfit) is NotImplemented
        assert not executable.run_into([x], [np.empty((6, 9), np.float32)])
        with pytest.raises(ArgumentError):
            executable.profile([x[:3]])

    def test_what_is_kept_is_found_or_nothing_is(self) -> None:
        """What is found under a name computes what was kept under it."""
        graph = softmax_graph(6, 10)
        executable = self.target().executable(self.document(graph))
        name = f"contract of {self.name}".encode()
        executable.keep(name)
        found = self.backend.ready(name)
        if found is not None and found.direct is not None:
            (x,) = random_inputs(graph, np.random.default_rng(0))
            np.testing.assert_array_equal(_only(found.direct(x)), _only(executable.run([x])))


def _only(result: Any) -> Array:
    return result[0] if isinstance(result, tuple) else result


def _without_passes(target: Target) -> Limits:
    return replace(target.limits, passes=as_it_is)


def _arguments(kernel: KernelCandidate) -> list[Array]:
    return kernel_inputs(kernel, random_inputs(kernel.graph, np.random.default_rng(0)))


def _poisoned(kernel: KernelCandidate) -> list[Array]:
    return [poisoned(value.type.shape, value.type.dtype) for value in kernel.outputs]


def _ran(runner: Runner | AutofuseError, kernel: KernelCandidate, inputs: Sequence[Array]) -> list[Array]:
    """What a runner writes. Bound, it runs too, wherever it writes then."""
    if isinstance(runner, AutofuseError):
        raise runner
    outs = _poisoned(kernel)
    assert runner.run_into(inputs, outs), "the kernel refuses its own inputs"
    runner.bound(inputs, _poisoned(kernel))()
    return outs
