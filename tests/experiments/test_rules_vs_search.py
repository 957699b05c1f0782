"""The study of rules against search: which programs are marked, cells, oracles, figures and report from records."""

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autofuse.cost_models.base import CostModel, KernelFacts
from autofuse.fusion.candidate import KernelCandidate
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.measurement.workloads import discover
from autofuse.search.plugins.registry import policy_by_name
from autofuse.search.policies.analytical import Analytical
from autofuse.testing.partitions import context_of
from autofuse.testing.sketches import Sketch, attention_graph, layers_graph, softmax_graph
from tests.fixtures.benches import CountedBench, failing
from tests.fixtures.tuning import COUNTED, counted, tuned, tuner_of

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "experiments" / "rules_vs_search"
MODULES = (
    "cells",
    "journal",
    "marks",
    "oracles",
    "rivals_figures",
    "rivals_picture",
    "rivals_report",
    "rivals_settings",
    "settings",
    "switches",
    "twins",
)


def settings(study: dict[str, ModuleType], quick: bool = True) -> Any:
    return study["settings"].read(STUDY / "study.toml", study["rivals_settings"].Study, quick)


# ---- parameters and cells --------------------------------------------------------------------------------------------


def test_the_parameters_of_the_study_name_what_there_is(study: dict[str, ModuleType]) -> None:
    full, quick = settings(study, quick=False), settings(study)
    assert set(full.programs) == {program.name for program in discover()}
    assert [policy_by_name(rule).name for rule in full.rules] == list(full.rules)
    assert quick.size == "small"
    assert set(full.ablations) == set(study["cells"].OFF)


def test_everything_but_the_model_is_a_switch_of_the_search(study: dict[str, ModuleType]) -> None:
    for name in set(study["cells"].OFF) - {"model"}:
        assert name in study["switches"].PARTS


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ('"horizontal", "model"]', '"luck"]', "ablations: must be among recompute, stitch"),
        ("budget_s = 60.0", "budget_s = 0", "budget_s: must be above zero, got 0"),
        ("max_trials = 64", "max_trials = 0", "max_trials: must be above zero, got 0"),
    ],
)
def test_what_is_wrong_with_the_parameters_is_named(
    fault_of: Callable[..., str], study: dict[str, ModuleType], before: str, after: str, fault: str
) -> None:
    assert fault_of(study["rivals_settings"].Study, before, after).startswith(fault)


def test_every_cell_has_a_name_of_its_own(study: dict[str, ModuleType]) -> None:
    cells = settings(study, quick=False).cells
    assert len({cell.name for cell in cells}) == len(cells) == 1 + 5 + 1 + 6 + 2 + 5
    assert {(cell.space, cell.oracle) for cell in cells if cell.choice == "search" and not cell.off} == {
        (space, oracle) for space in ("rule-reachable", "full") for oracle in ("analytical", "residual", "measured")
    }


# ---- marks -----------------------------------------------------------------------------------------------------------


def marks_of(study: dict[str, ModuleType], graph: Any) -> list[str]:
    return study["marks"].marks(study["marks"].facts(graph), settings(study, quick=False))


def test_softmax_is_marked_for_its_exponentials_and_its_two_folds(study: dict[str, ModuleType]) -> None:
    assert marks_of(study, softmax_graph(64, 64)) == ["several users", "chain of reductions"]


def test_small_results_with_several_users_do_not_count(study: dict[str, ModuleType]) -> None:
    assert marks_of(study, softmax_graph(8, 8)) == ["chain of reductions"]


def test_a_concatenation_marks_a_program(study: dict[str, ModuleType]) -> None:
    sketch = Sketch("join")
    x = sketch.arg("f32[64,64]")
    joined = sketch.op("concatenate", x, sketch.op("tanh", x), dimension=0)
    assert marks_of(study, sketch.finish([joined])) == ["concatenation"]


def test_cheap_values_of_several_users_and_loops_alone_mark_nothing(study: dict[str, ModuleType]) -> None:
    sketch = Sketch("cheap")
    x = sketch.arg("f32[512,512]")
    y = sketch.op("add", x, x)
    graph = sketch.finish([sketch.op("multiply", y, x), sketch.op("subtract", y, x)])
    assert marks_of(study, graph) == []


def test_many_small_operations_mark_a_program(study: dict[str, ModuleType]) -> None:
    assert "many small kernels" in marks_of(study, layers_graph(4, 8, 16))
    assert "many small kernels" not in marks_of(study, layers_graph(4, 256, 256))


# ---- oracles ---------------------------------------------------------------------------------------------------------


def test_cells_that_choose_the_same_kernels_share_a_plan(study: dict[str, ModuleType], tmp_path: Path) -> None:
    twins, context = study["twins"], context_of(softmax_graph(64, 64))
    chosen = Analytical().partition(context)
    mark = twins.mark_of_partition(chosen)
    assert mark == twins.mark_of_partition(study["oracles"].Decided("again", chosen).partition(context))
    assert mark != twins.mark_of_partition(policy_by_name("unfused").partition(context))
    for name in ("tuned", "default"):
        (tmp_path / f"a-{name}.json").write_text(name)
    record = {entry: entry for entry in twins.COPIED} | {
        "cell": "a",
        "files": {"a-tuned.json": "", "a-default.json": ""},
    }
    outcome = twins.shared(record, {"tuned": "b-tuned.json", "default": "b-default.json"}, tmp_path, ["of its own"])
    assert (outcome["notes"], outcome["space_notes"]) == ("notes", ["of its own"])
    assert (outcome["same_as"], outcome["paths"]) == ("a", ["b-tuned.json", "b-default.json"])
    assert [(tmp_path / path).read_text() for path in outcome["paths"]] == ["tuned", "default"]


def test_searches_among_the_same_kernels_share_a_plan(study: dict[str, ModuleType]) -> None:
    twins, graph = study["twins"], softmax_graph(64, 64)
    cells = {cell.name: cell for cell in settings(study, quick=False).cells}

    def mark(name: str) -> str | None:
        cell, context = cells[name], context_of(graph)
        if cell.off in ("stitch", "multi_output"):
            context = study["switches"].PARTS[cell.off](context)
        return twins.mark_of_space(cell, context)

    assert mark("measured") is not None
    assert mark("measured without stitching") != mark("measured")
    assert mark("tune") is mark("tune, graph variants") is None
    assert mark("analytical") is mark("measured without a model") is None
    assert mark("measured without recomputation") is None


def test_without_a_model_the_search_still_finds_a_plan_by_measuring(study: dict[str, ModuleType]) -> None:
    graph = attention_graph(64, 32)
    context = counted(graph, model=study["oracles"].Uniform())
    bench = CountedBench(graph)
    plan = tuned(graph, bench, context=context)
    fixed = tuner_of(graph, CountedBench(graph), context=context)
    assert bench.plan_us(plan) <= bench.plan_us(fixed.fixed_plan(policy_by_name("unfused")))


def model_us(model: CostModel, kernel: KernelCandidate) -> float:
    program = lower(kernel, Schedule(), "kernel", COUNTED.limits)
    return float(model.price([KernelFacts(program)]).us[0])


def test_a_correction_by_one_factor_for_all_changes_no_choice(study: dict[str, ModuleType]) -> None:
    graph = attention_graph(64, 32)
    context = counted(graph)
    model = context.model
    bench = CountedBench(graph, lambda kernel, schedule, ns: 3e3 * model_us(model, kernel))
    found = study["oracles"].Corrected(bench, math.inf).partition(context)
    expected = Analytical().partition(counted(graph))
    assert [len(kernel.candidate.atoms) for kernel in found.kernels] == [
        len(kernel.candidate.atoms) for kernel in expected.kernels
    ]
    assert found.price_us == pytest.approx(3.0 * expected.price_us, rel=0.1)


def test_a_kernel_that_fails_is_not_chosen(study: dict[str, ModuleType]) -> None:
    graph = softmax_graph(64, 64)
    first = Analytical().partition(counted(graph))
    bad = {kernel.candidate.digest for kernel in first.kernels}
    bench = CountedBench(graph, failing(bad))
    found = study["oracles"].Corrected(bench, math.inf).partition(counted(graph))
    assert bad.isdisjoint(kernel.candidate.digest for kernel in found.kernels)


# ---- figures and report ----------------------------------------------------------------------------------------------

US = {
    "unfused": 400.0,
    "rule:xla-cpu": 300.0,
    "rule:inductor": 260.0,
    "greedy": 220.0,
    "reachable, analytical": 250.0,
    "reachable, residual": 250.0,
    "reachable, measured": 240.0,
    "analytical": 210.0,
    "residual": 205.0,
    "measured": 200.0,
    "tune": 200.0,
    "tune, graph variants": 100.0,
    "measured without recomputation": 230.0,
    "measured without a model": 200.0,
}
"""By cell, with tuned schedules."""


def record_study(study: dict[str, ModuleType], path: Path, us: dict[str, float]) -> Any:
    """A journal of one marked program with these times; default schedules take twice as long."""
    journal = study["journal"].Journal(path)
    form = settings(study)
    kept = ("size", "budget_s", "max_trials", "trials_per_operation", "tuning_seed", "blocks", "block_ms")
    machine = {"model": "a CPU", "cores": 1, "threads": 2, "system": "Linux", "python": "3", "numpy": "2"}
    run = {"kind": "run", "settings": {name: getattr(form, name) for name in kept}, "machine": machine}
    journal.append({**run, "command": "run", "begun": "today", "commit": "abc"})
    what = {"program": "softmax", "status": "ok", "files": {}}
    counts = {"operations": 5, "joins": 0, "shared": 1, "folds": 2, "result_bytes": [4096] * 5}
    journal.append({**what, "kind": "facts", **counts})
    samples: dict[str, Any] = {}
    for cell in form.cells:
        works = {"tuned": f"t {cell.name}", "default": f"d {cell.name}"}
        record = {"kernels": 2, "seconds": 1.5, "works": works, "failed": [], "notes": ["accepted partition: x"]}
        journal.append({**what, "kind": "plan", "cell": cell.name, **record})
        for name, factor in (("tuned", 1.0), ("default", 2.0)):
            samples[works[name]] = [[us[cell.name] * factor] * 3] * 5
    samples["again"] = samples["t measured"]
    what["again"] = "t measured"
    journal.append({**what, "kind": "round", "round": 0, "of": {}, "samples": samples, "faults": {"t x": "wrong"}})
    return journal


def report_of(study: dict[str, ModuleType], path: Path, us: dict[str, float]) -> str:
    journal, form = record_study(study, path, us), settings(study)
    rows = study["rivals_figures"].build_rows(["softmax", "not_measured"], journal, form)
    return study["rivals_report"].render(rows, study["settings"].recorded(journal), form)


def lines_with(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


def test_the_fastest_rule_is_what_the_search_is_held_against(study: dict[str, ModuleType], tmp_path: Path) -> None:
    text = report_of(study, tmp_path / "raw.jsonl", US)
    (never,) = lines_with(text, "| the search is never slower")
    assert "slower in 0 of 1 | **met** |" in never
    everywhere, with_variants = lines_with(text, "at least 1.2 over all")
    assert "| fastest rule / measured at least" in everywhere
    assert "1.30 [1.30, 1.30] over 1 | **met** |" in everywhere
    assert "| fastest rule / tune with graph variants at least" in with_variants
    assert "2.60 [2.60, 2.60] over 1 | **met** |" in with_variants
    of_marked, _ = lines_with(text, "at least 1.5 over the marked")
    assert "1.30 [1.30, 1.30] over 1 | **missed** |" in of_marked


def test_a_program_where_a_rule_is_faster_is_named(study: dict[str, ModuleType], tmp_path: Path) -> None:
    text = report_of(study, tmp_path / "raw.jsonl", {**US, "rule:xla-cpu": 180.0, "tune": 180.0})
    (never,) = lines_with(text, "| the search is never slower")
    assert "slower in 1 of 1: `softmax` (rule:xla-cpu, 0.90) | **missed** |" in never
    (tune,) = lines_with(text, "| `tune`, which")
    assert "slower in 0 of 1 | **met** |" in tune


def test_every_cell_has_its_gain_over_the_unfused_plan(study: dict[str, ModuleType], tmp_path: Path) -> None:
    text = report_of(study, tmp_path / "raw.jsonl", US)
    (row,) = lines_with(text, "| search | full | measured | `measured` |")
    assert "| 2.00 [2.00, 2.00] | 4.00 [4.00, 4.00] | 4.00 [4.00, 4.00] |" in row
    assert lines_with(text, "- a rule over the full space: ")
    (ablation,) = lines_with(text, "| measured without recomputation |")
    assert "1.15 [1.15, 1.15] | 1.15 [1.15, 1.15] | 1 | 0 | 0 | `softmax` 1.15 |" in ablation
    (program,) = lines_with(text, "| `softmax`* |")
    assert "| 0.2 | 1.30 [1.30, 1.30] rule:inductor |" in program
    assert "- `softmax`: several users, chain of reductions" in text
    assert "- `softmax`, plan t x: wrong" in text
    assert "accepted partition" not in text


def test_nothing_is_claimed_of_nothing(study: dict[str, ModuleType], tmp_path: Path) -> None:
    journal, form = record_study(study, tmp_path / "raw.jsonl", US), settings(study)
    rows = study["rivals_figures"].build_rows(["not_measured"], journal, form)
    found = study["rivals_figures"].verdicts(rows, form)
    assert [verdict.met for verdict in found] == [None] * 7
    assert not study["rivals_picture"].draw(rows, form, tmp_path / "none.png")


def test_the_picture_is_drawn_from_the_records(study: dict[str, ModuleType], tmp_path: Path) -> None:
    form = settings(study)
    rows = study["rivals_figures"].build_rows(["softmax"], record_study(study, tmp_path / "raw.jsonl", US), form)
    assert study["rivals_picture"].draw(rows, form, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_the_mean_of_ratios_comes_with_an_interval_over_programs(study: dict[str, ModuleType]) -> None:
    mean = study["rivals_figures"].mean
    found = mean([1.0, 4.0])
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 1.0, 4.0))
    assert mean([]) is None


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(STUDY / "run.py"), "--report", "--out", str(tmp_path / "report.md")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "holds no run to report" in done.stderr
