"""What explain says of plans: facts as data, then as text; why things are not fused; what dumps hold."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.api.plan import Plan
from autofuse.cost_models.base import KernelFacts
from autofuse.errors import ArgumentError
from autofuse.fusion.userrules import Pin, bind
from autofuse.lower.schedule import Schedule
from autofuse.plan.document import Certificate, PlanDocument
from autofuse.report.dump import dump_candidates
from autofuse.report.explanation import build_report, kernel_named, render
from autofuse.report.summary import render as render_summary
from autofuse.report.summary import summarise
from autofuse.report.whynot import Apart, WhyNot, all_apart, render_apart, why_not
from autofuse.report.whynot import render as render_answer
from autofuse.runtime.planlowering import lower_kernel
from autofuse.search.budget.budget import Budget
from autofuse.search.policies.unfused import Unfused
from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.counted.device import BATCH
from autofuse.testing.devices import SERVER
from autofuse.testing.sketches import softmax_graph
from tests.fixtures.benches import CountedBench
from tests.fixtures.tuning import counted, tuned

CERTIFICATE = Certificate(
    policy="measured",
    seed=3,
    budget="20 s",
    candidates=40,
    classes=20,
    measured=10,
    schedules_tried=32,
    rounds=4,
    space_digest="ab" * 8,
    k=1.0,
    epsilon=0.05,
    floor_bound_us=1.0,
    headroom=2.0,
    statistical_bound_us=8.0,
    sum_us=10.0,
    e2e_us=9.0,
    holdout_us=9.1,
    unfused_us=27.0,
    rule="rule:xla",
    rule_us=18.0,
    noise_floor_us=0.2,
    refused=7,
    dominated=5,
    cut_off=0,
)


def twice(x: Any, y: Any) -> Any:
    """The same chain on two arrays: two kernels that can share their code."""
    a = np.exp(x) * 2
    b = np.exp(y) * 2
    return a, b


def chain(x: Any, w: Any) -> Any:
    h = np.tanh(x @ w)
    total = h.sum()
    return h / total


def report_of(plan: Plan) -> Any:
    return build_report(plan.document, plan.lowered)


def ask(plan: Plan, first: str, second: str) -> WhyNot:
    return why_not(plan.document, first, second, CpuTarget(SERVER).limits, AnalyticalCpuModel(SERVER))


def test_equal_kernels_are_said_to_share_code() -> None:
    plan = af.compile(twice, af.spec("f32[64]"), af.spec("f32[64]"), policy="unfused")
    report = report_of(plan)
    shared = [kernel.shares_code_with for kernel in report.kernels if kernel.shares_code_with]
    assert shared
    assert f"shared with {shared[0]}" in render(report)
    assert len(plan.source()) == len(report.kernels) - len(shared)


def test_loops_that_look_alike_are_said_once() -> None:
    text = af.compile(lambda *rows: np.concatenate([row * 2 for row in rows]), *[af.spec("f32[999]")] * 30).explain()
    assert text.count(" phase ") == 1
    assert "(30 times)" in text


def test_roles_bytes_and_source_lines() -> None:
    plan = af.compile(chain, af.spec("f32[32,16]"), af.spec("f32[16,8]"), policy="unfused")
    report = report_of(plan)
    roles = {operand.name: operand.role for kernel in report.kernels for operand in (*kernel.reads, *kernel.writes)}
    assert roles["x"] == "argument"
    assert "temporary" in roles.values()
    assert "result" in roles.values()
    assert report.arguments[0].bytes == 32 * 16 * 4
    assert report.arena_bytes > 0
    sources = [operation.source for kernel in report.kernels for operation in kernel.operations]
    assert all(f"{Path(__file__).name}:" in source and source.endswith(" in chain") for source in sources)
    assert json.loads(json.dumps(report.to_json()))["kernels"][0]["name"] == report.kernels[0].name


def test_certificates_are_put_in_words() -> None:
    plan = af.compile(chain, af.spec("f32[8,4]"), af.spec("f32[4,4]"))
    text = render(build_report(replace(plan.document, certificate=CERTIFICATE), plan.lowered))
    assert "optimal under these costs (policy measured, seed 3, budget 20 s)" in text
    assert "40 candidates in 20 classes (7 sets refused, 5 dominated, 0 sets not grown further), 10 measured" in text
    assert "whole call 9.00 us, measured again 9.10 us (noise floor 0.200 us)" in text
    assert "unfused    27.0 us, 3.00 times as long" in text
    assert "rules      18.0 us, 2.00 times as long: rule:xla" in text
    assert "the whole call takes 0.90 of that" in text
    assert (
        "bounds     floors 1.00 us at 2 times the calibrated rates, statistical 8.00 us (k = 1, search stops within 5%)"
        in text
    )


def test_fixed_partitions_do_not_claim_to_be_optimal() -> None:
    plan = af.compile(chain, af.spec("f32[8,4]"), af.spec("f32[4,4]"))
    document = replace(plan.document, certificate=replace(CERTIFICATE, policy="unfused", unfused_us=None))
    assert "optimal" not in render_summary(document)
    assert summarise(document)["certificate"]["additivity"] == pytest.approx(0.9)


def test_unknown_kernels_get_a_suggestion() -> None:
    report = report_of(af.compile(chain, af.spec("f32[8,4]"), af.spec("f32[4,4]")))
    with pytest.raises(ArgumentError, match="did you mean"):
        kernel_named(report, report.kernels[0].name[:-1])


def test_why_not_gives_the_price_of_a_legal_fusion() -> None:
    plan = af.compile(twice, af.spec("f32[64]"), af.spec("f32[64]"), policy="unfused")
    first, second = plan.document.graph.outputs
    answer = ask(plan, first.name, second.name)
    assert answer.together_in == ()
    (attempt, *_) = [attempt for attempt in answer.attempts if attempt.apart_us is not None]
    assert attempt.together_us is not None
    assert "joining would" in render_answer(answer)


def test_why_not_names_the_rule_and_what_lies_between() -> None:
    def detour(x: Any) -> Any:
        a = np.cumsum(x)
        s = np.sort(a)
        return a + s

    plan = af.compile(detour, af.spec("f32[64]"), policy="unfused")
    answer = ask(plan, "a", plan.document.graph.outputs[0].name)
    assert not answer.attempts[0].legal
    assert not answer.attempts[0].reason.startswith("with")  # the rule comes first
    assert "with s, which lie between, the larger kernel is not" in answer.attempts[0].reason
    assert "not legal either" in answer.attempts[0].reason


def test_why_not_of_a_plan_whose_kernels_cut_what_usually_stays_together() -> None:
    def chain(x: Any) -> Any:
        e = np.exp(x)
        t = np.tanh(e)
        return np.sin(t)

    plan = af.compile(chain, af.spec("f32[4096]"), partition=[["e", "t"], ["sin"]])
    assert ask(plan, "e", "t").together_in == (plan.kernels[0].name,)
    answer = ask(plan, "t", "sin")
    assert answer.together_in == ()
    (attempt, *_) = answer.attempts
    assert set(attempt.nodes) == {"e", "t", "sin"}
    assert attempt.apart_us is not None


def test_every_two_kernels_that_read_one_another_are_explained() -> None:
    def apart(document: PlanDocument) -> list[Apart]:
        return all_apart(document, CpuTarget(SERVER).limits, AnalyticalCpuModel(SERVER))

    plan = af.compile(chain, af.spec("f32[16,8]"), af.spec("f32[8,8]"), policy="unfused")
    found = apart(plan.document)
    names = [kernel.name for kernel in plan.kernels]
    assert {pair.maker for pair in found} | {pair.reader for pair in found} == set(names)
    assert all(names.index(pair.maker) < names.index(pair.reader) for pair in found)
    assert all("test_explanation.py" in pair.source for pair in found)
    assert any(pair.attempt.legal and pair.attempt.apart_us is not None for pair in found)
    text = render_apart(found)
    assert all(f"{pair.maker} -> {pair.reader} ({', '.join(pair.values)}" in text for pair in found)
    timed = replace(plan.document, kernels=tuple(replace(k, measured_us=2.0) for k in plan.document.kernels))
    assert all(pair.measured_us == 4.0 for pair in apart(timed))
    assert "(measured: 4" in render_apart(apart(timed))
    assert apart(af.compile(np.exp, af.spec("f32[64]")).document) == []
    assert render_apart([]) == "no kernel reads what another one writes\n"


def test_why_not_prices_kernels_as_they_are_in_the_plan() -> None:
    def softmax(x: Any) -> Any:
        peak = np.max(x, axis=1, keepdims=True)
        grown = np.exp(x - peak)
        total = np.sum(grown, axis=1, keepdims=True)
        return grown / total

    # the first kernel writes two values a row, the second computes all others again
    first, second = ["reduce", "subtract", "grown", "reduce_1"], ["subtract", "grown", "divide"]
    plan = af.compile(softmax, af.spec("f32[4096,512]"), partition=[first, second])
    model, limits = AnalyticalCpuModel(SERVER), CpuTarget(SERVER).limits
    assert [set(kernel.outputs) for kernel in plan.document.kernels] == [{"reduce", "reduce_1"}, {"divide"}]
    kernels = [lower_kernel(plan.document.graph, kernel, limits) for kernel in plan.document.kernels]
    separate = sum(model.price([KernelFacts(kernel.program) for kernel in kernels]).us)
    (attempt, *_) = ask(plan, "reduce", "divide").attempts
    assert attempt.apart_us == pytest.approx(separate)
    (pair,) = all_apart(plan.document, limits, model)
    assert pair.attempt.apart_us == pytest.approx(separate)


def test_why_not_of_a_kernel_whose_work_another_one_does_again() -> None:
    """All that the smaller kernel computes is in the larger one too."""

    def both(x: Any) -> Any:
        grown = np.exp(x)
        return grown, np.cumsum(grown)

    plan = af.compile(both, af.spec("f32[4096]"), partition=[["grown"], ["grown", "cumulative"]])
    first, second = (kernel.name for kernel in plan.document.kernels)
    for left, right in ((first, second), (second, first)):
        answer = ask(plan, left, right)
        if answer.attempts:
            assert answer.attempts[0].apart_us is not None
            assert answer.attempts[0].apart_us > answer.attempts[0].together_us


def test_why_not_knows_what_the_body_of_a_loop_reads() -> None:
    def grow(x: Any, s: Any) -> Any:
        y = np.exp(x)
        return af.while_loop(lambda s: np.sum(s) < 100.0, lambda s: s + y, s)

    plan = af.compile(grow, af.spec("f32[128]"), af.spec("f32[128]"))
    pairs = list(all_apart(plan.document, CpuTarget(SERVER).limits, AnalyticalCpuModel(SERVER)))
    assert "y" in {value for pair in pairs for value in pair.values}


def test_why_not_of_things_that_are_together() -> None:
    def pair(x: Any) -> Any:
        a = np.exp(x)
        return a * a + 1

    plan = af.compile(pair, af.spec("f32[4096]"))
    answer = ask(plan, "a", plan.document.graph.outputs[0].name)
    assert answer.together_in == (plan.kernels[0].name,)
    assert "are in one kernel" in render_answer(answer)


def test_dumps_hold_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFUSE_DUMP", str(tmp_path))
    plan = af.compile(chain, af.spec("f32[32,16]"), af.spec("f32[16,8]"))
    plan(np.ones((32, 16), np.float32), np.ones((16, 8), np.float32))
    (program,) = tmp_path.iterdir()
    assert program.name == f"chain-{plan.document.graph_digest[:12]}"
    assert (program / "traced.txt").read_text().startswith('graph "chain"')
    assert (program / "graph.txt").is_file()
    (decisions,) = (path for path in program.iterdir() if path.is_dir())
    name = plan.kernels[0].name
    assert (decisions / f"{name}.tile").read_text().startswith(f"kernel {name}\n")
    assert "define" in (decisions / f"{name}.ll").read_text()
    assert (decisions / f"{name}.s").stat().st_size > 0
    assert af.load(decisions / "plan.json").document.kernels == plan.document.kernels
    with (decisions / "candidates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["digest"] for row in rows if row["chosen"] == "1"} == {kernel.digest for kernel in plan.kernels}
    assert all(float(row["predicted_us"]) > 0 for row in rows)


def test_a_dump_tells_the_time_under_the_schedule_that_a_user_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFUSE_DUMP", str(tmp_path))
    graph = softmax_graph(64, 64)
    context = counted(graph, control=bind([Pin("grown", schedule={"batch": 2})], graph))
    bench = CountedBench(graph)
    document = tuned(graph, bench, context=context, budget=Budget(1000.0, 20))
    dump_candidates(context, document, bench)
    (table,) = tmp_path.rglob("candidates.csv")
    with table.open() as file:
        rows = {row["digest"]: row for row in csv.DictReader(file)}
    (pinned,) = [chosen for chosen in Unfused().partition(context).kernels if chosen.outputs[0].name == "grown"]
    us = bench.records[pinned.candidate.digest, Schedule.of({BATCH: 2})]
    assert float(rows[pinned.candidate.digest]["measured_us"]) == pytest.approx(us, rel=1e-3)


def test_without_the_variable_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOFUSE_DUMP", raising=False)
    monkeypatch.chdir(tmp_path)
    af.compile(chain, af.spec("f32[8,4]"), af.spec("f32[4,4]")).executable  # noqa: B018 - builds the plan
    assert list(tmp_path.iterdir()) == []
