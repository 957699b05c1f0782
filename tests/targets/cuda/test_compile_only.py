"""Plans for a GPU that is not here: made, explained, saved and read, and refused where they would have to run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.cost_models.base import KernelFacts
from autofuse.cost_models.compiled import CompiledFacts, LaunchFacts
from autofuse.errors import ArgumentError, BackendError, MeasureError
from autofuse.ir.dtypes import F16
from autofuse.lazydataclass import replace
from autofuse.targets.base import find_target
from autofuse.targets.cuda import launch, machinecode, nvrtc, resources
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.nvrtc import Resources
from autofuse.testing.cost_models import elementwise_kernel
from tests.fixtures import handbuilt

X = np.ones((64, 300), np.float32)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without one."""
    monkeypatch.setattr(launch, "_has_driver", lambda: False)
    launch.gpu_problem.cache_clear()
    yield
    launch.gpu_problem.cache_clear()


def softmax(x: Any) -> Any:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


@pytest.fixture
def plan() -> af.Plan:
    return af.compile(softmax, X, backend="cuda", device="h200")


def test_a_plan_for_a_named_device_has_source_and_kernels(plan: af.Plan) -> None:
    assert len(plan.kernels) == 1
    assert all("__global__" in text for text in plan.source().values())
    assert "H200" in repr(plan.target)


def test_explain_has_grid_and_block(plan: af.Plan) -> None:
    text = plan.explain()
    assert "for cuda (H200)" in text
    assert "blocks of" in text


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC: pip install 'autofuse[cuda]'")
def test_explain_has_registers_and_what_limits_occupancy(plan: af.Plan) -> None:
    (lines,) = plan.remarks.values()
    assert all("registers a thread" in line and "occupancy, limited by" in line for line in lines[::2])


def test_explain_says_in_how_many_parts_loops_are_cut() -> None:
    plan = af.compile(lambda x: x.sum(0), np.zeros((4096, 1024), np.float32), backend="cuda", device="h200")
    (lines,) = plan.remarks.values()
    assert lines[0].startswith("512 blocks of 256 threads, loops in 64 parts; ")
    assert "parts" not in lines[2]


def test_explain_has_what_each_launch_costs_term_by_term(plan: af.Plan) -> None:
    (lines,) = plan.remarks.values()
    assert all(line.startswith("by the model, us: memory") for line in lines[1::2])


def test_without_nvrtc_explain_says_what_is_missing(plan: af.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "is_available", lambda: False)
    assert "registers estimated: NVRTC is not installed" in plan.explain()


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC: pip install 'autofuse[cuda]'")
def test_what_is_chosen_is_priced_with_the_registers_that_nvrtc_gives_it() -> None:
    target = find_target("cuda", device="h200")
    plan = af.compile(softmax, X, backend="cuda", device="h200", deadline=None)
    program = plan.lowered[0].program
    (facts,) = target.compiled([program])
    assert facts.launches[0].registers > 8
    assert plan.kernels[0].predicted_us == target.cost_model().price([KernelFacts(program, facts)]).us[0]


def test_kernels_of_the_host_are_not_compiled_and_equal_ones_are_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def compiled(source: str, arch: str, name: str) -> Any:
        asked.append(name)
        return SimpleNamespace(resources={"kernel": Resources(40, 8, 16, 32)}, cubin=b"")

    monkeypatch.setattr(machinecode, "machine_code", compiled)
    monkeypatch.setattr(nvrtc, "is_available", lambda: True)
    monkeypatch.setattr(nvrtc, "can_compile", lambda source, arch: True)
    one, other = elementwise_kernel(100, name="one"), elementwise_kernel(100, name="other")
    found = resources.compiled_facts([one, other], "sm_90")
    assert asked == ["kernel"]
    assert found == [CompiledFacts((LaunchFacts(40, 8, 16, 32),))] * 2


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC: pip install 'autofuse[cuda]'")
def test_code_that_nvrtc_refuses_is_in_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(program: Any, arch: str) -> Any:
        kernel = generate(program, arch)
        return replace(kernel, source=f"{kernel.source}\nnonsense;\n")

    monkeypatch.setattr(resources, "generate", wrong)
    with pytest.raises(BackendError, match=r"NVRTC rejects kernel\.cu for sm_90"):
        af.compile(softmax, X, backend="cuda", device="h200")


def test_code_that_cannot_be_compiled_here_is_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """An NVRTC that does not know the architecture yet, and one without the headers of 16-bit floats."""
    monkeypatch.setattr(nvrtc, "is_available", lambda: True)
    monkeypatch.setattr(nvrtc, "architectures", lambda: frozenset({"sm_80"}))
    assert resources.compiled_facts([elementwise_kernel(100)], "sm_90") == [None]
    monkeypatch.setattr(nvrtc, "_header_folders", lambda: ())
    halves = handbuilt.unary("opposite", "negate", 64, F16, F16)
    assert resources.compiled_facts([halves], "sm_80") == [None]


def test_it_is_saved_and_read_where_there_is_no_gpu_either(plan: af.Plan, tmp_path) -> None:
    read = af.load(plan.save(tmp_path / "plan.json"))
    assert read.source() == plan.source()


def test_a_call_says_that_there_is_no_such_gpu(plan: af.Plan) -> None:
    with pytest.raises(BackendError, match="for H200, and there is no such GPU here"):
        plan(X)


def test_nothing_is_tuned_for_a_device_that_is_not_here() -> None:
    with pytest.raises(
        MeasureError, match="nothing can be measured for H200: there is no such GPU here; compile makes"
    ):
        af.tune(softmax, X, backend="cuda", device="h200", budget=2, progress=False)


def test_without_a_name_the_gpu_must_be_here() -> None:
    with pytest.raises(BackendError, match="no NVIDIA driver on this machine; name a GPU"):
        af.compile(softmax, X, backend="cuda")


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"backend": "cuda", "device": "h300"}, "unknown GPU 'h300'; known: h100"),
        ({"device": "h200"}, "device='h200': must be None for backend='cpu'"),
        ({"backend": "counted", "device": "h200"}, "must be None for backend='counted'"),
        ({"backend": "cuda", "device": "h200", "threads": 2}, "threads=2: must be None for backend='cuda'"),
    ],
)
def test_what_makes_no_sense_is_refused(wish: dict[str, Any], message: str) -> None:
    with pytest.raises((ArgumentError, BackendError), match=message):
        af.compile(softmax, X, **wish)
