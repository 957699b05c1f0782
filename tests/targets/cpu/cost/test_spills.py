"""Expected spills beside those that LLVM makes: by hand, function by function, on programs not fitted to."""

import numpy as np
import pytest

from autofuse.cost_models.base import KernelFacts
from autofuse.cost_models.features import COLUMNS, matrix
from autofuse.host.objectcache import ObjectCache
from autofuse.lazydataclass import replace
from autofuse.lower.lowering import lower
from autofuse.lower.tile import TileProgram
from autofuse.passes.pipeline import clean
from autofuse.search.policies.context import Context
from autofuse.search.policies.problem import Problem
from autofuse.search.space.candidates import Bounds
from autofuse.targets.cpu.codegen.kernel import generate
from autofuse.targets.cpu.cost.spills import FLIGHTS, FUNCTIONS, spills
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.device.calibrationstore import described_cpu
from autofuse.targets.cpu.machine import host_machine
from autofuse.targets.cpu.native.driver import kernel_unit
from autofuse.targets.cpu.native.engine import Engine
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.fusions import whole_kernel
from autofuse.testing.graphs import random_graph
from autofuse.testing.partitions import program_of
from autofuse.testing.sketches import Sketch

BINARY = ("power", "atan2", "remainder")
ISAS = {32: "native", 16: "avx2"}


def mapped(*ops: str, dtype: str = "f32", extent: int = 65536):
    """Ops one after another on each element."""
    sketch = Sketch("mapped")
    value = sketch.arg(f"{dtype}[{extent}]")
    other = sketch.arg(f"{dtype}[{extent}]") if {*ops} & {*BINARY} else value
    for number, op in enumerate(ops):
        value = sketch.op(op, value, *([other] if op in BINARY else []), name=f"v{number}")
    return sketch.finish([value])


def reduced(op: str, dtype: str):
    sketch = Sketch("reduced")
    value = sketch.op(op, sketch.arg(f"{dtype}[64, 4096]"), name="v")
    return sketch.finish([sketch.reduce(value, 1, name="total")])


def lowered(graph, **schedule):
    return lower(whole_kernel(graph), cpu_schedule(**schedule), "kernel", CpuTarget(described_cpu(1)).limits)


@pytest.mark.parametrize(
    ("graph", "unroll", "spilled"),
    [
        (mapped("exp"), 8, False),  # 14 constants and 8 values
        (mapped("exp", "negate", "sqrt"), 8, False),
        (mapped("sin"), 1, True),  # its slow path is a call
        (mapped("erf"), 4, False),
        (mapped("erf"), 8, True),
        (mapped("log1p", dtype="f64"), 4, False),
        (mapped("log1p", dtype="f64"), 8, True),
        (reduced("tanh", "f64"), 1, False),
        (reduced("tanh", "f64"), 8, True),  # 23 constants, 8 values and 8 sums
        (mapped("negate"), 8, False),
    ],
)
def test_what_is_expected_of_32_registers(graph, unroll, spilled):
    assert spills(lowered(graph, unroll=unroll), 512) == (spilled,)


def test_the_analytical_model_prices_them():
    """Each vector beyond the registers is stored and loaded once a round: of 23 + 8 + 8 values, 34 find a place."""
    model = CpuTarget(described_cpu(1)).cost_model()
    kernel = model.features(KernelFacts(lowered(reduced("tanh", "f64"), unroll=8)))
    (phase,) = kernel.phases
    crowded = phase.stages[0]
    assert crowded.spilled == 5
    # 64 rows of 64 rounds of 8 vectors of 8 elements
    assert matrix([kernel])[0, COLUMNS.index("spilled")] == pytest.approx(np.log1p(5 * 64 * 64))
    light = replace(kernel, phases=(replace(phase, stages=(replace(crowded, spilled=0.0), *phase.stages[1:])),))
    assert model.breakdown(kernel).compute > model.breakdown(light).compute


def test_a_narrower_machine_has_half_the_registers():
    graph = mapped("exp")
    assert spills(lowered(graph, unroll=8), 512) == (False,)
    assert spills(lowered(graph, unroll=8), 256) == (True,)


def test_a_function_of_what_all_lanes_share_fills_no_vector_registers():
    """The error function of a row's value, taken once for the row."""
    sketch = Sketch("shared")
    x, y = sketch.arg("f32[64, 4096]"), sketch.arg("f32[64]")
    row = sketch.broadcast(sketch.op("erf", y, name="s"), x, 0)
    graph = sketch.finish([sketch.op("add", x, row, name="z")])
    assert spills(lowered(graph, unroll=8), 512) == (False,)


def has(registers: int) -> bool:
    machine = host_machine()
    return machine.architecture == "x86_64" and machine.vector_bits >= (512 if registers == 32 else 256)


def told(program, machine):
    """Of each phase, whether LLVM spills vectors."""
    code = generate(program, machine)
    functions = Engine(machine, cache=ObjectCache(None)).functions(kernel_unit(code))
    assert functions is not None
    return [sum(functions[phase.symbol].vector_spills) > 0 for phases in code.launches for phase in phases]


@pytest.mark.slow
@pytest.mark.parametrize("registers", ISAS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_the_table_says_what_llvm_does(registers, dtype):
    if not has(registers):
        pytest.skip(f"needs a CPU with {registers} vector registers")
    machine = host_machine(ISAS[registers])
    engine = Engine(machine, cache=ObjectCache(None))
    for op, (constants, first) in FUNCTIONS[registers, dtype].items():
        found = {}
        for vectors in FLIGHTS:
            functions = engine.functions(
                kernel_unit(generate(lowered(mapped(op, dtype=dtype), unroll=vectors), machine))
            )
            found[vectors] = functions["kernel"]
        assert found[1].vector_registers - 1 == constants, op
        kept = [vectors for vectors in FLIGHTS if not found[vectors].vector_spills]
        assert first == next((vectors for vectors in FLIGHTS if vectors > max(kept, default=0)), None), op


@pytest.mark.slow
@pytest.mark.skipif(not has(32), reason="needs a CPU with 32 vector registers")
def test_spills_are_expected_where_llvm_makes_them():
    """On random programs other than those that the rules were found on: recall and precision."""
    machine, target = host_machine(), CpuTarget(described_cpu(1))
    found: list[tuple[bool, bool]] = []
    for seed in range(40):
        rng = np.random.default_rng([77, seed])
        graph = random_graph(rng, int(rng.integers(6, 16)), extents=(7, 32, 100, 512), max_rank=3)
        problem = Problem(program_of(clean(graph, "strict")), target)
        space = Context.of(problem, target.cost_model(), Bounds(classes=40)).space
        kernels = [candidate.kernel for candidate in space.candidates if isinstance(candidate.program, TileProgram)]
        for number in rng.permutation(len(kernels))[:12]:
            program = lower(
                kernels[number], cpu_schedule(unroll=int(rng.choice([1, 2, 4, 8]))), "kernel", target.limits
            )
            assert isinstance(program, TileProgram)
            found += zip(spills(program, 512), told(program, machine), strict=True)
    right = found.count((True, True))
    recall = right / max(right + found.count((False, True)), 1)
    precision = right / max(right + found.count((True, False)), 1)
    assert right >= 10
    assert min(recall, precision) >= 0.8, (recall, precision)
