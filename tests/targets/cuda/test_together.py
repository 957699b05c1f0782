"""Kernels that are launched together: their code, which ones they are, and what they do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autofuse as af
from autofuse.errors import BackendError
from autofuse.lower.tile import Space, TileProgram
from autofuse.measurement.workloads import load
from autofuse.search.plans.planning import in_groups_apart
from autofuse.targets.cuda import horizontal, nvrtc
from autofuse.targets.cuda.codegen import CudaKernel, generate
from autofuse.targets.cuda.codegen.together import Copies, generate_together
from autofuse.targets.cuda.driver import CudaCode
from autofuse.targets.cuda.gpus import H200
from autofuse.targets.cuda.horizontal import most_parameter_bytes, starts_of
from autofuse.targets.cuda.nvrtc import compile_source
from autofuse.testing.simt import run_simt
from autofuse.testing.simt.device import SimulatedDriver
from tests.fixtures import handbuilt


def filled(kernel: CudaKernel, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Values for its inputs, poison in its outputs."""
    rng = np.random.default_rng(seed)
    return {
        b.name: rng.standard_normal(b.type.shape).astype(b.type.dtype.numpy)
        if b.space is Space.INPUT
        else np.full(b.type.shape, np.nan, b.type.dtype.numpy)
        for b in kernel.parameters
        if b.space is not Space.WORKSPACE
    }


PROGRAMS = (
    handbuilt.binary("add", "add", 1000),
    handbuilt.softmax("softmax", 37, 300),
    handbuilt.split_sum("sum", 5000, 8),
    handbuilt.matmul("product", 33, 20, 50),
)


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("threads", [256, 512])
def test_each_copy_of_each_program_computes_what_it_does_alone(order: Any, threads: int) -> None:
    """Also those with two launches, beside those with one; blocks may be wider than alone."""
    made = generate_together("all", [Copies(program, 3) for program in PROGRAMS], "sm_90", threads)
    assert [launch.function for launch in made.launches] == ["all_0", "all_1"]
    arrays = filled(made)
    run_simt(made, arrays, order=order)
    member = 0
    for program in PROGRAMS:
        alone = generate(program, "sm_90")
        for _ in range(3):
            own = {name.partition(".")[2]: a for name, a in arrays.items() if name.startswith(f"m{member}.")}
            right = {b.name: own[b.name].copy() for b in alone.parameters if b.space is Space.INPUT}
            right |= {b.name: np.empty_like(own[b.name]) for b in alone.parameters if b.space is Space.OUTPUT}
            run_simt(alone, right)
            for name, array in right.items():
                np.testing.assert_allclose(own[name], array, rtol=2e-5, atol=1e-5)
            member += 1


def test_copies_share_their_code() -> None:
    one, hundred = (generate_together("k", [Copies(PROGRAMS[0], count)], "sm_90", 256) for count in (2, 100))
    assert one.source.count("__device__") == hundred.source.count("__device__")
    assert len(hundred.source.splitlines()) == len(one.source.splitlines())
    assert hundred.launches[0].grid[0] == 50 * one.launches[0].grid[0]
    assert hundred.members == (3,) * 100


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC: pip install 'autofuse[cuda]'")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_addresses_stay_where_the_launch_put_them(arch: str) -> None:
    """Nothing is copied to local memory to be indexed."""
    made = generate_together("k", [Copies(program, 5) for program in PROGRAMS[:2]], arch, 256)
    used = compile_source(made.source, arch).resources["k"]
    assert (used.stack_bytes, used.spill_bytes) == (0, 0)


# ---- which ones ------------------------------------------------------------------------------------------------------


def steps(*arrays: Any) -> tuple[Any, ...]:
    """Independent kernels, one for each array."""
    return tuple(np.tanh(x) * 2 for x in arrays)


def given(count: int, *shapes: tuple[int, ...]) -> list[NDArray[Any]]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for _ in range(count) for shape in shapes]


def started(plan: af.Plan) -> list[int]:
    """Kernels of each start."""
    found: Any = plan.executable
    return [len(start.kernels) for start in found.starts]


def test_small_kernels_of_a_plan_become_one_launch():
    arrays = given(6, (30, 20), (7,), (100,))
    plan = af.compile(steps, *arrays, backend="simulated", policy="unfused")
    assert started(plan) == [18, 18]
    for found, right in zip(plan(*arrays), steps(*arrays), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5)


def corrected(step: Any, *arrays: Any) -> tuple[Any, ...]:
    """As Adam does: independent kernels, which all read what is computed of one number."""
    first, second = 1.0 - np.float32(0.9) ** step, np.sqrt(1.0 - np.float32(0.999) ** step)
    return tuple(x / first * second for x in arrays)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["small", "full"])
def test_adam_is_one_launch(size: str) -> None:
    """Each kernel computes the two numbers that all need."""
    adam = load("adam")
    plan = af.compile(adam.function, *adam.inputs(size, 0), backend="cuda", device="h200", deadline=None)
    assert started(plan) == [28 if size == "small" else 100]
    assert any(note.startswith("kernels that compute for themselves") for note in plan.document.notes)


@pytest.mark.filterwarnings("ignore::autofuse.errors.SlowerThanNumpyWarning")
@pytest.mark.parametrize("make", ["compile", pytest.param("tune", marks=pytest.mark.slow)])
def test_kernels_compute_small_values_so_that_none_waits(make: str) -> None:
    arrays = [np.float32(3), *given(1, (31, 20), (7,), (100,), (65,))]
    if make == "tune":
        plan = af.tune(corrected, *arrays, backend="simulated", max_trials=2, progress=False)
    else:
        plan = af.compile(corrected, *arrays, backend="simulated")
    assert started(plan) == [4]
    for found, right in zip(plan(*arrays), corrected(*arrays), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5)


def test_a_plan_may_keep_them_apart(tmp_path: Any) -> None:
    """As tuning does where they were slower together; they may run in streams then."""
    arrays = given(6, (30, 20))
    plan = af.compile(steps, *arrays, backend="simulated", policy="unfused")
    apart = af.load(af.Plan(in_groups_apart(plan.document)).save(tmp_path / "p.json"))
    assert started(plan) == [6, 6]
    assert started(apart) == [1] * 12
    assert [launch.group_place for launch in apart.document.order] == [*range(6), *range(6)]
    for found, right in zip(apart(*arrays), steps(*arrays), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5)


def test_explain_and_source_show_it():
    plan = af.compile(steps, *given(3, (30, 20)), backend="cuda", device="h200", policy="unfused")
    assert "together with 2 more:" in plan.explain()
    assert f"together with {plan.kernels[0].name}\n" in plan.explain()
    first = plan.source()[plan.kernels[0].name]
    assert "__grid_constant__ Given given" in first
    assert set(plan.source()) == {plan.kernels[0].name, plan.kernels[3].name}


def test_a_profile_gives_each_kernel_its_share():
    arrays = given(3, (30, 20))
    plan = af.compile(steps, *arrays, backend="simulated", policy="unfused")
    times = [us for _, us in plan.profile(*arrays)]
    assert len(times) == 6
    assert min(times) > 0


def test_kernels_that_wait_for_each_other_are_not_together():
    plan = af.compile(lambda x: np.tanh(np.tanh(x) * 2), X, backend="simulated", policy="unfused")
    assert started(plan) == [1, 1, 1]


X = np.random.default_rng(0).standard_normal((30, 20)).astype(np.float32)


def test_temporaries_of_a_launch_lie_apart():
    """Each branch is a chain: what one member reads, no other writes, in any launch."""

    def chains(*arrays: Any) -> Any:
        return sum(np.tanh(np.exp(np.tanh(x))).sum() for x in arrays)

    arrays = given(5, (30, 20), (50,))
    plan = af.compile(chains, *arrays, backend="simulated", policy="unfused")
    assert max(started(plan)) == 10
    np.testing.assert_allclose(plan(*arrays), chains(*arrays), rtol=1e-4)


def test_members_that_share_memory_are_caught():
    driver = SimulatedDriver(H200)
    program = handbuilt.binary("add", "add", 8)
    made = generate_together("k", [Copies(program, 2)], "sm_90", 32)
    (function,) = driver.load([CudaCode(program, made, 1.0)])
    arrays = [driver.array(np.ones(8, np.float32)) for _ in range(4)]
    x, y, z, w = map(driver.pointer, arrays)
    function([x, y, z, x, y, w])
    with pytest.raises(BackendError, match="members that run at the same time share memory"):
        function([x, y, z, x, y, z])
    with pytest.raises(BackendError, match="share memory"):
        function([x, y, z, x, z, w])


class Group:
    """Kernels of one concurrent group, and their codes."""

    def __init__(self, programs: list[TileProgram]) -> None:
        self.kernels: Any = [Kernel(program, number) for number, program in enumerate(programs)]
        self.codes: Any = {
            horizontal.code_key(program): CudaCode(program, generate(program, "sm_90")) for program in programs
        }

    def starts(self, most_bytes: int = 32764) -> list[tuple[int, ...]]:
        return [start.kernels for start in starts_of(self.kernels, self.codes, H200, most_bytes)]


class Kernel:
    """What of a lowered kernel decides."""

    reads = writes = ()
    apart = False

    def __init__(self, program: TileProgram, place: int) -> None:
        self.program, self.group_place = program, place


def test_what_does_not_fit_one_launch_becomes_several():
    """A kernel has three addresses: ten of them are 240 bytes."""
    group = Group([handbuilt.binary("add", "add", 100)] * 10)
    assert [len(start) for start in group.starts()] == [10]
    assert [len(start) for start in group.starts(100)] == [4, 4, 2]
    assert [len(start) for start in group.starts(10)] == [1] * 10


def test_a_launch_has_few_codes():
    """Compiling a function of hundreds of bodies would take minutes."""
    group = Group([handbuilt.binary("add", "add", 100 + n) for n in range(70)])
    assert sorted(map(len, group.starts())) == [6, 32, 32]
    assert sorted(number for start in group.starts() for number in start) == list(range(70))


def test_one_that_wants_much_shared_memory_does_not_spoil_the_others():
    """Many blocks that a multiprocessor holds eight of are kept from those of which it holds one."""
    small = [handbuilt.binary("add", "add", 1 << 22), handbuilt.binary("multiply", "multiply", 1 << 22)]
    large = handbuilt.softmax("softmax", 64, 50000)
    kernel = generate(large, "sm_90")
    assert kernel.launches[0].shared_bytes > 100_000
    group = Group([*small, large, large])
    found = group.starts()
    assert all(not ({0, 1} & set(start) and {2, 3} & set(start)) for start in found)


def test_large_kernels_gain_nothing_and_small_ones_do():
    members = [
        horizontal._Member(CudaCode(p, generate(p, "sm_90")), (0,), us, 0.0, blocks, 2048 * 132)
        for p, us, blocks in ((PROGRAMS[0], 1.0, 4), (PROGRAMS[0], 100.0, 100_000))
    ]
    tiny, large = (replace(member, kernels=(0, 1)) for member in members)
    assert horizontal.together_us([tiny], H200) < 0.6 * tiny.alone_us
    assert horizontal.together_us([large], H200) > 0.98 * large.alone_us


@pytest.mark.parametrize(
    ("nvrtc_version", "driver_version", "most"),
    [((13, 0), "13.0", 32764), ((12, 1), "12.1", 32764), ((12, 0), "13.0", 4096), ((13, 0), "11.8", 4096)],
)
def test_the_older_of_compiler_and_driver_limits_parameters(
    nvrtc_version: tuple[int, int], driver_version: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Driver:
        def version(self) -> str:
            return driver_version

    monkeypatch.setattr(nvrtc, "is_available", lambda: True)
    monkeypatch.setattr(nvrtc, "version", lambda: nvrtc_version)
    driver: Any = Driver()
    assert most_parameter_bytes(driver) == most
    monkeypatch.setattr(nvrtc, "is_available", lambda: False)
    assert most_parameter_bytes(None) == 4096
