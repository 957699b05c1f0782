"""What kernels of all workloads ask of a GPU is no worse than what is committed: gpu-counts.json beside its table."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import autofuse as af
from autofuse.measurement.workloads import Workload, discover
from autofuse.targets.cuda import nvrtc
from autofuse.testing.simt.gates import GATES, PROGRAM_BYTES, Gate, compared, exemption, is_asked, standing
from autofuse.testing.simt.planned import count_plan

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
BASELINE = json.loads((EXPERIMENTS / "results" / "gpu-counts.json").read_text())
WORKLOADS = (*discover(), *discover(EXPERIMENTS / "gpu_counts" / "programs"))
QUICK = ("attention", "black_scholes", "cumulative", "softmax")
"""They take few seconds together, and have one of each: products, a loop, a scan, rows."""


def plan_and_arguments(workload: Workload, size: str, device: str) -> tuple[af.Plan, Any]:
    arguments = workload.inputs(size, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = af.compile(workload.function, *arguments, backend="cuda", device=device, deadline=None)
    return plan, arguments


def compare_with_baseline(workload: Workload) -> None:
    """Fails for what got worse; says what got better, which is to be committed."""
    known = BASELINE["programs"].get(workload.name)
    assert known is not None, (
        f"{workload.name} is not in gpu-counts.json: run make gpu-counts and commit what it writes"
    )
    plan, arguments = plan_and_arguments(workload, BASELINE["size"], BASELINE["device"])
    now = standing(count_plan(plan, arguments, BASELINE["most_blocks"]))
    found = compared(workload.name, known, now, same_compiler=BASELINE["nvrtc"] == nvrtc.version_text())
    if found.better:
        warnings.warn("\n".join(("better than gpu-counts.json (run make gpu-counts):", *found.better)), stacklevel=1)
    assert not found.worse, "\n".join(("worse than gpu-counts.json:", *found.worse))


@pytest.mark.parametrize("workload", [w for w in WORKLOADS if w.name in QUICK], ids=lambda w: w.name)
def test_some_workloads_ask_for_no_more_than_before(workload: Workload) -> None:
    compare_with_baseline(workload)


@pytest.mark.slow
@pytest.mark.parametrize("workload", [w for w in WORKLOADS if w.name not in QUICK], ids=lambda w: w.name)
def test_no_workload_asks_for_more_than_before(workload: Workload) -> None:
    compare_with_baseline(workload)


def test_all_workloads_are_in_the_table() -> None:
    assert set(BASELINE["programs"]) == {workload.name for workload in WORKLOADS}


@pytest.mark.slow
@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC: pip install 'autofuse[cuda]'")
@pytest.mark.parametrize("device", ["a100", "h200"])
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_kernels_of_all_workloads_compile(workload: Workload, device: str) -> None:
    """For sm_80 and sm_90, as they are chosen."""
    plan, _ = plan_and_arguments(workload, "full", device)
    for text in plan.source().values():
        nvrtc.compile_source(text, plan.target.device.arch)


LAUNCH = {
    "function": "f",
    "times": 1,
    "blocks": 1056,
    "grid": 1056,
    "ran": 16,
    "threads": 256,
    "needed_read_bytes": 1 << 20,
    "needed_written_bytes": 0,
    "read_bytes": 1 << 20,
    "fetched_bytes": 1 << 20,
    "written_bytes": 0,
    "sectors": 1 << 15,
    "ideal_sectors": 1 << 15,
    "wide_bytes": 1 << 20,
    "wavefronts": 0,
    "ideal_wavefronts": 0,
    "spill_bytes": 0,
    "stack_bytes": 0,
    "resident_blocks": 8,
    "flight_bytes": 32,
    "code_instructions": 100,
    "code_bytes": 32,
    "bound": "memory",
    "narrow_products": True,
    "matrix_instructions": 8,
    "chained": {"reads": 16.0, "rows": 2048, "products": 16},
}
BAD = {
    "bytes asked over needed": {"fetched_bytes": 2 << 20},
    "sectors over ideal": {"sectors": 1 << 16},
    "by wide accesses": {"wide_bytes": 1 << 19},
    "KiB in flight": {"flight_bytes": 16},
    "last wave loses": {"blocks": 1057, "grid": 1057},
    "local memory, bytes": {"stack_bytes": 8},
    "instructions per byte": {"code_instructions": 300},
    "shared wavefronts over ideal": {"wavefronts": 2, "ideal_wavefronts": 1},
    "16-bit products on matrix units": {"matrix_instructions": 0},
    "reads of chained operands over fewest": {"chained": {"reads": 32.0, "rows": 2048, "products": 16}},
}
MULTIPROCESSORS = 132


def result(**changed: Any) -> dict[str, Any]:
    return standing({"launches": [LAUNCH | changed], "replay_calls": 1, "multiprocessors": MULTIPROCESSORS})


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_each_gate_notices_what_it_is_for(gate: Gate) -> None:
    assert gate.passes(gate.value(LAUNCH, MULTIPROCESSORS))
    assert not gate.passes(gate.value(LAUNCH | BAD[gate.name], MULTIPROCESSORS))


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_what_got_worse_is_named_with_its_gate_and_what_got_better_too(gate: Gate) -> None:
    good, bad = result(), result(**BAD[gate.name])
    (line,) = compared("program", good, bad, same_compiler=True).worse
    assert line.startswith(f"program: f: {gate.name} ({gate.wish}): ")
    (line,) = compared("program", bad, good, same_compiler=True).better
    assert line.startswith(f"program: f: {gate.name}")


def test_what_stays_as_bad_as_it_was_is_neither() -> None:
    bad = result(sectors=1 << 16)
    assert compared("program", bad, bad, same_compiler=True) == ([], [])


def test_another_compiler_is_not_blamed_on_kernels() -> None:
    found = compared("program", result(), result(stack_bytes=8, sectors=1 << 16), same_compiler=False)
    assert [line.split(":")[2] for line in found.worse] == [" sectors over ideal (at most 1.05)"]


def test_a_kernel_of_a_new_name_is_compared_with_the_worst_of_its_program() -> None:
    known, now = result(sectors=1 << 16), result(sectors=1 << 16, function="g")
    assert compared("program", known, now, same_compiler=True) == ([], [])
    worse = compared("program", known, result(sectors=1 << 17, function="g"), same_compiler=True).worse
    assert worse == ["program: g: sectors over ideal (at most 1.05): 2.0 -> 4.0"]


def test_more_launches_are_worse() -> None:
    assert compared("program", result(), result(times=3), same_compiler=True).worse == ["program: launches: 1 -> 3"]


def test_a_small_launch_loses_no_last_wave_and_has_nothing_to_be_in_flight() -> None:
    values = standing({"launches": [LAUNCH | {"blocks": 16, "grid": 16}], "replay_calls": 1, "multiprocessors": 132})[
        "kernels"
    ]["f"]
    assert values["last wave loses"] == 0.0
    assert "KiB in flight" not in values


@pytest.mark.parametrize(
    ("rows", "products", "blocks", "passes"),
    [
        (2048, 16, 16, True),  # of 128 rows
        (2048, 16, 17, False),
        (384, 24, 5, True),  # of 80 rows: 120 blocks for 132 multiprocessors
        (384, 24, 6, False),
        (128, 12, 8, True),
        (65536, 1, 1024, False),
    ],
)
def test_operands_are_read_again_where_taller_blocks_would_leave_multiprocessors_idle(
    rows: int, products: int, blocks: int, passes: bool
) -> None:
    gate = next(gate for gate in GATES if gate.name == "reads of chained operands over fewest")
    value = gate.value(LAUNCH | {"chained": {"reads": blocks, "rows": rows, "products": products}}, MULTIPROCESSORS)
    assert value is not None
    assert gate.passes(value) == passes


def test_what_arithmetic_limits_is_not_asked_for_bytes_in_flight() -> None:
    values = result(bound="compute")["kernels"]["f"]
    assert "KiB in flight" not in values
    assert "instructions per byte" not in values


def test_blocks_that_take_tasks_in_turn_lose_what_their_last_turn_loses() -> None:
    lost = next(gate for gate in GATES if gate.name == "last wave loses")
    assert lost.value(LAUNCH | {"blocks": 2000, "grid": 1000}, MULTIPROCESSORS) == 0.0
    assert lost.value(LAUNCH | {"blocks": 1100, "grid": 1000}, MULTIPROCESSORS) == pytest.approx(0.45)


def test_blocks_that_compute_share_their_multiprocessor() -> None:
    """Three of 384 blocks are a multiprocessor's, of which one is alone at last and takes longer: 2.91 in 3.2."""
    lost = next(gate for gate in GATES if gate.name == "last wave loses")
    given = LAUNCH | {"bound": "compute", "resident_blocks": 2}
    assert lost.value(given | {"blocks": 384, "grid": 384}, 132) == pytest.approx(1 - 384 / 132 / 3.2)
    assert lost.value(given | {"blocks": 528, "grid": 528}, 132) == 0.0
    assert lost.value(given | {"blocks": 200, "grid": 200}, 132) == 0.0  # one wave


COUNTED = {"program_bytes": PROGRAM_BYTES, "starting_bytes": 1 << 20}
PLENTY = {"needed_read_bytes": 1 << 20}  # in 16 of 1,056 blocks


@pytest.mark.parametrize(
    ("launch", "counted", "exempt"),
    [
        ({}, {}, "product"),
        ({"bound": "compute"}, {}, "compute"),
        ({}, {"program_bytes": PROGRAM_BYTES - 1}, "small"),
        ({"bound": "compute"}, {"program_bytes": PROGRAM_BYTES - 1}, "small"),
        ({"blocks": 16, "grid": 16}, {}, "small"),
        ({"blocks": 17, "grid": 17}, {}, "product"),
    ],
)
def test_limits_are_for_large_programs_and_some_for_some_launches(
    launch: dict[str, Any], counted: dict[str, int], exempt: str | None
) -> None:
    assert exemption(LAUNCH | PLENTY | launch, COUNTED | counted) == exempt


def test_what_moves_data_only_is_asked_for_all() -> None:
    launch = {name: value for name, value in LAUNCH.items() if name != "narrow_products"} | PLENTY
    assert exemption(launch, COUNTED) is None
    assert exemption(launch | {"bound": "compute"}, COUNTED) == "compute"


@pytest.mark.parametrize(
    ("exempt", "left_out"),
    [
        (None, set()),
        ("product", {"bytes asked over needed", "instructions per byte"}),
        ("compute", {"bytes asked over needed", "instructions per byte", "KiB in flight"}),
        ("small", {gate.name for gate in GATES}),
    ],
)
def test_exemptions_leave_out_gates(exempt: str | None, left_out: set[str]) -> None:
    assert {gate.name for gate in GATES if not is_asked(gate, exempt)} == left_out
