"""tune, run, explain, repro and compare on a small program."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.api import tunedplans
from autofuse.api.plan import Plan
from autofuse.cli import compare as compare_command
from autofuse.cli import run as run_command
from autofuse.cli import tune as tune_command
from autofuse.errors import MeasureError, SearchError
from autofuse.measurement.database import Database

DENSE = ("--arg", "f32[16,8]", "--arg", "f32[8,24]", "--arg", "f32[24]")


def test_tune_saves_a_plan_that_runs(cli: Any, model: Path, tmp_path: Path, arrays: tuple[Any, ...]) -> None:
    saved, records = tmp_path / "p.json", tmp_path / "tune.db"
    done = cli("tune", f"{model}:dense", *DENSE, "--max-trials", "12", "-o", saved, "--db", records)
    assert done.code == 0, done.err
    assert "optimal under these costs (policy measured" in done.out  # proved or not, as the plans are timed
    assert f"saved {saved}" in done.out
    x, w, b = arrays
    h = np.tanh(x @ w + b)
    np.testing.assert_allclose(af.load(saved)(*arrays), h - h.mean(-1, keepdims=True), rtol=1e-4, atol=1e-5)
    with Database(records) as base:
        assert len(base.records(all_devices=True)) > 0

    again = cli(
        "tune", f"{model}:dense", *DENSE, "--budget", "2", "--max-trials", "12", "--db", records, "--json", "-o", saved
    )
    assert again.code == 0
    report = json.loads(again.out)
    assert report["plan"] == str(saved)
    assert report["certificate"]["policy"] == "measured"


def test_times_of_cold_operands_are_asked_for_by_a_flag(cli: Any, model: Path, tmp_path: Path) -> None:
    place = tmp_path / "cold.json"
    few = ("--max-trials", "1", "--policy", "unfused", "--cold", "-o", place)
    done = cli("tune", f"{model}:dense", *DENSE, *few)
    assert (done.code, json.loads(place.read_text())["certificate"]["timing"]) == (0, "cold-fastest/2")
    assert "operands in memory" in done.out


def test_a_choice_that_there_is_not_is_named(cli: Any, model: Path) -> None:
    done = cli("tune", f"{model}:dense", *DENSE, "--variants", "colums=joined")
    assert done.code == 2
    assert "did you mean columns?" in done.err


def test_a_target_is_asked_for_by_its_name(cli: Any, model: Path, tmp_path: Path) -> None:
    place = tmp_path / "counted.json"
    few = ("--max-trials", "6", "--backend", "counted", "-o", place)
    done = cli("tune", f"{model}:dense", *DENSE, *few)
    assert (done.code, json.loads(place.read_text())["backend"]) == (0, "counted")
    refused = cli("tune", f"{model}:dense", *DENSE, "--backend", "cuad", "-o", place)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "backend='cuad' is unknown: must be 'cpu' or 'cuda'; did you mean 'cuda'?" in refused.err


@pytest.mark.parametrize(
    ("given", "cluster"), [((), None), (("--scheduler", "tcp://h:8786"), "tcp://h:8786"), (("--workers", "2"), 2)]
)
def test_where_kernels_are_measured_is_an_option(
    cli: Any, model: Path, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any, cluster: Any
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(tune_command, "tune", lambda *_, **options: asked.append(options["cluster"]) or af.load(plan))
    assert cli("tune", f"{model}:dense", *DENSE, *given, "-o", tmp_path / "p.json").code == 0
    assert asked == [cluster]


def test_workers_here_and_a_scheduler_elsewhere_exclude_each_other(cli: Any, model: Path) -> None:
    done = cli("tune", f"{model}:dense", *DENSE, "--workers", "2", "--scheduler", "tcp://h:8786")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "not allowed with argument" in done.err


def test_an_interrupted_tune_saves_and_says_how_to_resume(
    cli: Any, model: Path, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    best = af.load(plan).document
    noted = Plan(replace(best, notes=("tuning was interrupted; give db= to be able to resume",)))
    monkeypatch.setattr(tune_command, "tune", lambda *_, **__: noted)
    done = cli("tune", f"{model}:dense", *DENSE, "-o", tmp_path / "p.json", "--db", tmp_path / "t.db")
    assert done.code == 130
    assert "the same command resumes" in done.err
    assert af.load(tmp_path / "p.json").document.graph_digest == best.graph_digest


def test_a_tune_that_an_error_ends_saves_the_best_plan_so_far(
    cli: Any, model: Path, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Plan:
        failure = MeasureError("t.db: the disk is full")
        failure.best = af.load(plan)
        raise failure

    monkeypatch.setattr(tune_command, "tune", full)
    done = cli("tune", f"{model}:dense", *DENSE, "-o", tmp_path / "p.json")
    assert done.code == 2
    assert f"t.db: the disk is full; the best plan so far is saved in {tmp_path / 'p.json'}" in done.err
    assert (tmp_path / "p.json").read_text() == plan.read_text()


def test_run_checks_and_times(cli: Any, plan: Path, tmp_path: Path) -> None:
    done = cli("run", plan, "--check", "--repeat", "3", "-o", tmp_path / "out.npz")
    assert done.code == 0, done.err
    assert "checked: agrees with the interpreter" in done.out
    assert re.search(r"[um]s per call \(median of 3, .* to .*\); the fastest .* [um]s$", done.out, re.MULTILINE)
    with np.load(tmp_path / "out.npz") as archive:
        assert archive["out0"].shape == (16, 24)


def test_run_times_when_threads_of_the_check_have_gone_to_sleep(
    cli: Any, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    timed = run_command.measure
    monkeypatch.setattr(run_command, "rest", lambda target: happened.append("rest"))
    monkeypatch.setattr(run_command, "measure", lambda *args: happened.append("measure") or timed(*args))
    assert cli("run", plan, "--check", "--repeat", "1").code == 0
    assert happened == ["rest", "measure"]


def test_run_takes_arguments_of_files(cli: Any, plan: Path, tmp_path: Path, arrays: tuple[Any, ...]) -> None:
    x, w, b = arrays
    np.savez(tmp_path / "in.npz", x=x, arg1=w)
    np.save(tmp_path / "b.npy", b)
    one = cli("run", plan, "--inputs", tmp_path / "in.npz", "--repeat", "1", "--json")
    assert json.loads(one.out)["outputs"][0]["type"] == "f32[16,24]"
    texts = ("--arg", f"@{tmp_path}/in.npz:x", "--arg", f"@{tmp_path}/in.npz:arg1", "--arg", f"@{tmp_path}/b.npy")
    two = cli("run", plan, *texts, "--repeat", "1", "-o", tmp_path / "out.npz")
    assert two.code == 0
    with np.load(tmp_path / "out.npz") as archive:
        np.testing.assert_array_equal(archive["out0"], af.load(plan)(x, w, b))


def test_run_takes_arguments_by_name(cli: Any, plan: Path, tmp_path: Path, arrays: tuple[Any, ...]) -> None:
    x, w, b = arrays
    np.savez(tmp_path / "in.npz", x=x, w=w, b=b)
    np.savez(tmp_path / "w.npz", w=w)
    called = ("--arg", f"b=@{tmp_path}/in.npz:b", "--arg", f"x=@{tmp_path}/in.npz:x")
    for rest in (("--inputs", tmp_path / "w.npz"), ("--arg", f"w=@{tmp_path}/in.npz:w")):
        assert cli("run", plan, *called, *rest, "--check", "--repeat", "1", "-o", tmp_path / "out.npz").code == 0
        with np.load(tmp_path / "out.npz") as archive:
            np.testing.assert_array_equal(archive["out0"], af.load(plan)(x, w, b))
    assert cli("run", plan, *called, "--repeat", "1").code == 0  # w is random
    refused = cli("run", plan, "--arg", "weights=3")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "--arg weights: dense(x, w, b) has no such argument" in refused.err


def test_run_refuses_what_does_not_fit(cli: Any, plan: Path, tmp_path: Path) -> None:
    assert "takes 3 arguments, got 1" in cli("run", plan, "--arg", "f32[16,8]").err
    wrong = cli("run", plan, "--arg", "f32[16,9]", "--arg", "f32[8,24]", "--arg", "f32[24]")
    assert wrong.code == 2
    assert "x: needs shape (16, 8), got (16, 9)" in wrong.err
    np.savez(tmp_path / "in.npz", z=np.zeros(3))
    assert "'z' is no argument" in cli("run", plan, "--inputs", tmp_path / "in.npz").err
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 no zip")
    np.save(tmp_path / "x.npy", np.zeros(3))
    for name in ("broken.npz", "x.npy", "none.npz"):
        refused = cli("run", plan, "--inputs", tmp_path / name)
        assert refused.code == 2, name
        assert f"--inputs {tmp_path / name}: " in refused.err
    assert "'-1' is not a whole number from 0" in cli("run", plan, "--seed", "-1").err


def test_a_wrong_answer_exits_with_1(cli: Any, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_command, "faults_of", lambda *_: ["output 0 (%y): is off"])
    done = cli("run", plan, "--check", "--repeat", "1")
    assert done.code == 1
    assert "WRONG: output 0 (%y): is off" in done.out


def test_functions_that_write_into_their_arguments(cli: Any, model: Path, tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    exec(model.read_text(), namespace)
    af.compile(namespace["shift"], af.spec("f32[40]")).save(tmp_path / "shift.json")
    assert cli("run", tmp_path / "shift.json", "--check", "--repeat", "2").code == 0


def test_texts_of_a_plan_do_not_drive_the_terminal(cli: Any, plan: Path, tmp_path: Path) -> None:
    data = json.loads(plan.read_text())
    data["notes"] = ["\x1b[2Jcleared", "turned \u202e", "rewritten\r", "tab\tstays"]
    strange = tmp_path / "strange.json"
    strange.write_text(json.dumps(data))
    for said in (cli("explain", strange).out, af.load(strange).explain()):
        assert r"\x1b[2Jcleared" in said
        assert r"turned \u202e" in said
        assert r"rewritten\r" in said
        assert "tab\tstays" in said
        assert not {"\x1b", "\u202e", "\r"} & set(said)
    data["backend"] = "\x1b]0;title\x07"
    strange.write_text(json.dumps(data))
    refused = cli("explain", strange)
    assert refused.code == 2
    assert "\x1b" not in refused.err


def test_explain_gives_kernels_sources_and_bytes(cli: Any, plan: Path, model: Path) -> None:
    done = cli("explain", plan)
    assert done.code == 0
    assert "no certificate: nothing was measured" in done.out
    assert f"{model.name}:5 in dense" in done.out
    assert "x: f32[16,8] (512 B)" in done.out
    report = json.loads(cli("explain", plan, "--json").out)
    assert len(report["kernels"]) > 1
    name = report["kernels"][0]["name"]
    only = cli("explain", plan, "--kernel", name)
    assert only.out.startswith(f"[0] {name}")
    assert "did you mean" in cli("explain", plan, "--kernel", name[:-1]).err


def test_why_not_prices_a_legal_fusion(cli: Any, plan: Path) -> None:
    done = cli("explain", plan, "--why-not", "h", "reduce")
    assert done.code == 0, done.err
    assert "h and reduce are in different kernels" in done.out
    assert "the model prices it at" in done.out
    assert "is an argument of the program" in cli("explain", plan, "--why-not", "x", "h").err
    assert "is no node, value or kernel" in cli("explain", plan, "--why-not", "nothing_like_it", "h").err


def test_why_not_without_names_goes_through_all_kernels(cli: Any, model: Path, tmp_path: Path) -> None:
    done = cli(
        "compare",
        f"{model}:dense",
        *DENSE,
        "--policies",
        "unfused",
        "--untuned",
        "unfused",
        "--blocks",
        "1",
        "--save",
        tmp_path,
    )
    assert done.code == 0, done.err
    asked = cli("explain", tmp_path / "dense-unfused.json", "--why-not")
    assert asked.code == 0, asked.err
    assert " -> " in asked.out
    found = json.loads(cli("explain", tmp_path / "dense-unfused.json", "--why-not", "--json").out)
    assert {pair["maker"] for pair in found} <= {
        kernel.name for kernel in af.load(tmp_path / "dense-unfused.json").kernels
    }
    assert "takes two names, or none; got h" in cli("explain", tmp_path / "dense-unfused.json", "--why-not", "h").err


def test_why_not_knows_of_rules(cli: Any, model: Path, tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    exec(compile(model.read_text(), str(model), "exec"), namespace)
    specs = [af.spec(text) for text in ("f32[16,8]", "f32[8,24]", "f32[24]")]
    plan, rules = tmp_path / "ruled.json", tmp_path / "rules.toml"
    rules.write_text('[[forbid]]\nnodes = ["h", "reduce"]\n')
    af.compile(namespace["dense"], *specs, policy="unfused", rules=rules).save(plan)
    asked = cli("explain", plan, "--why-not", "h", "reduce").out
    assert "the model prices it at" in asked
    assert "kept rule: Forbid('h', 'reduce')" in asked
    ruled = cli("explain", plan, "--why-not", "h", "reduce", "--rules", rules).out
    assert "Forbid('h', 'reduce') keeps" in ruled
    assert "kept rule" not in ruled


def test_tune_finds_out_first_whether_it_can_write(cli: Any, model: Path, tmp_path: Path) -> None:
    for output in (tmp_path / "nowhere" / "p.json", tmp_path):
        done = cli("tune", f"{model}:dense", *DENSE, "--budget", "1000", "-o", output)
        assert done.code == 2
        assert f"--output {output}: " in done.err


def test_compare_does_not_go_on_with_a_plan_that_was_interrupted(
    cli: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any, **options: Any) -> Plan:
        plan = af.compile(*args, policy="unfused")
        return Plan(tunedplans._interrupted(plan.document, None))

    monkeypatch.setattr(compare_command, "tune", interrupted)
    done = cli("compare", f"{model}:dense", *DENSE, "--policies", "measured", "--save", tmp_path / "plans")
    assert done.code == 130
    assert list((tmp_path / "plans").iterdir()) == []


def test_repro_makes_a_bundle_that_checks_itself(cli: Any, plan: Path, tmp_path: Path) -> None:
    name = af.load(plan).kernels[-1].name
    done = cli("repro", plan, name, "-o", tmp_path / "bundle")
    assert done.code == 0, done.err
    files = {path.name for path in (tmp_path / "bundle").iterdir()}
    arrays = {"inputs.npz", "expected.npz", "bounds.npz"}
    assert files == arrays | {"kernel.json", "kernel.tile", "kernel.ll", "kernel.s", "repro.py"}
    script = [sys.executable, str(tmp_path / "bundle" / "repro.py")]
    ran = subprocess.run(script, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "agrees with the interpreter" in ran.stdout
    with np.load(tmp_path / "bundle" / "expected.npz") as archive:
        wrong = archive["a0"] + 1
    np.savez(tmp_path / "bundle" / "expected.npz", a0=wrong)
    assert subprocess.run(script, capture_output=True, check=False).returncode == 1


def test_compare_prints_policies_side_by_side(cli: Any, model: Path, tmp_path: Path) -> None:
    policies = ("--policies", "unfused,analytical", "--untuned", "unfused,analytical", "--blocks", "2")
    done = cli("compare", f"{model}:dense", *DENSE, *policies, "--save", tmp_path / "plans", "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert [row["name"] for row in report["rows"]] == ["numpy", "unfused", "analytical"]
    assert report["faults"] == {}
    assert report["rows"][1]["kernels"] > report["rows"][2]["kernels"]
    assert {path.name for path in (tmp_path / "plans").iterdir()} == {"dense-unfused.json", "dense-analytical.json"}
    assert "is no policy here; did you mean unfused?" in cli("compare", f"{model}:dense", "--policies", "unfusd").err
    assert (
        "'nope' is no policy here; there is analytical, " in cli("compare", f"{model}:dense", "--policies", "nope").err
    )


def test_what_compare_is_asked_for_reaches_its_plans(cli: Any, model: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[forbid]]\nnodes = ["h", "reduce"]\n')
    asked = ("--backend", "cpu", "--numerics", "fast", "--rules", rules, "--save", tmp_path / "plans")
    policies = ("--policies", "analytical", "--untuned", "analytical", "--blocks", "2")
    done = cli("compare", f"{model}:dense", *DENSE, *policies, *asked)
    assert done.code == 0, done.err
    plan = json.loads((tmp_path / "plans" / "dense-analytical.json").read_text())
    assert (plan["backend"], plan["numerics"]) == ("cpu", "fast")
    assert not any({"h", "reduce"} <= set(kernel["nodes"]) for kernel in plan["kernels"])


@pytest.mark.slow
def test_compare_goes_on_without_a_policy_that_gives_no_plan(
    cli: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = compare_command.compile_plan

    def failing(*args: Any, policy: str, **options: Any) -> Plan:
        if policy == "unfused":
            raise SearchError("it will not")
        return real(*args, policy=policy, **options)

    monkeypatch.setattr(compare_command, "compile_plan", failing)
    policies = ("--policies", "unfused,analytical", "--untuned", "unfused,analytical", "--blocks", "2")
    done = cli("compare", f"{model}:dense", *DENSE, *policies)
    assert done.code == 1
    assert "unfused: it will not" in done.out
    assert "analytical" in done.out


def test_a_tuned_plan_that_cannot_be_saved_is_kept_elsewhere(
    cli: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def removing(*args: Any, **options: Any) -> Plan:
        (tmp_path / "gone").rmdir()
        names = ("budget", "seed", "progress", "max_trials", "db", "inputs", "cold", "cluster")
        return af.compile(*args, **{k: v for k, v in options.items() if k not in names} | {"policy": "unfused"})

    (tmp_path / "gone").mkdir()
    monkeypatch.setattr(tune_command, "tune", removing)
    monkeypatch.setattr(tune_command.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    done = cli("tune", f"{model}:dense", *DENSE, "-o", tmp_path / "gone" / "p.json")
    assert done.code != 0
    assert f"the plan is in {tmp_path / 'p.json'}" in done.err
    assert af.load(tmp_path / "p.json").kernels


@pytest.mark.parametrize("with_a_plan", [True, False], ids=["a plan", "no plan yet"])
def test_sigterm_saves_the_best_plan_so_far_and_exits_with_143(
    cli: Any, model: Path, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_a_plan: bool
) -> None:
    from dataclasses import replace

    best = af.load(plan).document
    noted = Plan(replace(best, notes=("tuning was interrupted; give db= to be able to resume",)))

    def terminated(*_: Any, **__: Any) -> Plan:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.sigtimedwait([], 10)  # the handler runs here
        except KeyboardInterrupt:
            if with_a_plan:
                return noted
            raise
        raise AssertionError("no signal came")

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(tune_command, "tune", terminated)
    done = cli("tune", f"{model}:dense", *DENSE, "-o", tmp_path / "p.json", "--db", tmp_path / "t.db")
    assert done.code == 143
    assert (tmp_path / "p.json").exists() == with_a_plan
    assert ("the same command resumes" in done.err) == with_a_plan
    assert signal.getsignal(signal.SIGTERM) is before
