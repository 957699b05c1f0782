"""The study of cost models on a small data set of made-up times: every table, resuming, and a model that is trained."""

import json
from pathlib import Path

import numpy as np
import pytest

from autofuse.cost_models.learned import training
from autofuse.cost_models.learned.model import learned_model
from autofuse.cost_models.learned.trained import load, save
from autofuse.errors import ModelError
from autofuse.fusion.candidate import work_of
from autofuse.ir.graphtext import print_graph
from autofuse.lazydataclass import replace
from autofuse.lower.schedule import Schedule
from autofuse.measurement.columns import write_columns
from autofuse.measurement.exported import Exported
from autofuse.measurement.kernelrecords import source_of
from autofuse.measurement.observations import pass_policy
from autofuse.measurement.records import Measurement, stamped
from autofuse.measurement.sources import ProgramSource, text_hash
from autofuse.plan.identity import identity_hash
from autofuse.search.space.candidates import Bounds
from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel
from autofuse.targets.cpu.cost.extract import features
from autofuse.targets.cpu.cost.floor import floor_us
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.device.defaults import default_calibration
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.counted.target import CountedTarget
from autofuse.testing.devices import server
from autofuse.testing.graphs import random_graph
from autofuse.testing.partitions import context_of
from autofuse.testing.sketches import softmax_graph

STUDY = Path(__file__).resolve().parents[2] / "experiments" / "cost_model_eval"
MODULES = ("run", "samples", "train")
TARGET = CpuTarget(server(2))
DESCRIPTION = TARGET.fingerprint()
SCHEDULES = (Schedule(), *(cpu_schedule(unroll=n) for n in (1, 2, 8)))


@pytest.fixture(scope="module", autouse=True)
def few_trees():
    """Models learn in fewer and longer steps than usual: the study fits hundreds of them."""
    boosted = training._boosted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            training,
            "_boosted",
            lambda options, *rest: boosted({**options, "max_iter": 12, "learning_rate": 0.4}, *rest),
        )
        yield


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Kernels of twelve programs; those with an exponential take three times what is predicted."""
    graphs = {f"random {n}": random_graph(np.random.default_rng(n), 8) for n in range(18)}
    graphs["softmax"] = softmax_graph(512, 512)
    found = [record for name, graph in graphs.items() for record in _records(name, graph)]
    path = tmp_path_factory.mktemp("records") / "cpu.npz"
    write_columns(path, found)
    return path


def _records(name, graph):
    context = context_of(graph, target=TARGET)
    text = print_graph(graph)[0] if name == "softmax" else ""
    program = ProgramSource(
        f"{name}/full", name, "random" if text == "" else "workload", text, {"classes": Bounds().classes}
    )
    for digest, members in context.space.classes.items():
        price = context.prices(context.space)[digest]
        slow = 3.0 if any(node.op == "exp" for node in members[0].kernel.nodes) else 1.0
        for number, schedule in enumerate(SCHEDULES if name == "softmax" else SCHEDULES[:1]):
            for made in (1, 2):
                us = (2.0 + price.predicted_us) * slow * (1 + 0.05 * number + 0.01 * made)
                yield _exported(digest, members[0].kernel, schedule, us, made, program)


def _exported(digest, kernel, schedule, us, number, program):
    measurement = Measurement(
        kernel=work_of(digest),
        schedule=schedule,
        signature="",
        policy=pass_policy(number),
        code_version="cpu/0",
        status="ok",
        samples_us=(us,),
        described=text_hash(DESCRIPTION),
    )
    record = stamped(measurement, identity_hash(TARGET.identity), number)
    source = source_of(work_of(digest), kernel, program.name)
    return Exported(record, TARGET.identity, None, source, program, DESCRIPTION)


@pytest.fixture(scope="module")
def evaluated(study, records, tmp_path_factory):
    """A report, with its journal beside it."""
    out = tmp_path_factory.mktemp("evaluated") / "eval.md"
    assert study["run"].main([str(records), "--quick", "--jobs", "1", "--out", str(out)]) == 0
    return out


@pytest.mark.slow
def test_the_study_fills_every_table(evaluated):
    text = evaluated.read_text()
    for title in (
        "Programs held out",
        "Single records",
        "Without a group",
        "Learning curve",
        "Choices in 1 whole spaces",
    ):
        assert title in text
    assert "nan" not in text
    assert evaluated.with_suffix(".png").stat().st_size > 0


@pytest.mark.slow
def test_a_study_that_was_stopped_carries_on(study, records, evaluated, tmp_path, capsys):
    out, journal = tmp_path / "eval.md", tmp_path / "eval.jsonl"
    lines = evaluated.with_suffix(".jsonl").read_text().splitlines()
    journal.write_text("\n".join(lines[:-3]) + "\n" + lines[-3][:20])  # killed while writing
    assert study["run"].main([str(records), "--quick", "--jobs", "1", "--out", str(out)]) == 0
    assert out.read_text() == evaluated.read_text()
    assert study["run"].main(["--report", "--out", str(out)]) == 0
    assert out.read_text() == evaluated.read_text()
    assert study["run"].main([str(records), "--quick", "--fresh", "--out", str(out)]) == 0  # in two processes
    assert out.read_text() == evaluated.read_text()
    assert study["run"].main([str(records), "--out", str(out)]) == 2
    assert "begun with another settings" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_learned_is_better_where_kernels_are_alike(evaluated):
    found = [json.loads(line) for line in evaluated.with_suffix(".jsonl").read_text().splitlines()]
    held = {r["model"]: r["figures"] for r in found if r.get("split") == "record" and r["share"] == 1.0}
    assert held["learned"]["mape"] < held["analytical"]["mape"]
    (choice,) = (r["figures"] for r in found if r["kind"] == "choice" and r["model"] == "analytical")
    assert choice["regret"] >= 0
    assert choice["loop_regret"] <= 0.05
    assert 0 < choice["measured"] <= 1


def test_features_are_derived_again_from_the_records(study, records):
    samples = study["samples"].samples_of(records)
    assert samples.faults == ()
    default = [
        n for n, one in enumerate(samples.seen) if one.schedule == Schedule() and one.program.grouped == "softmax"
    ]
    alone = AnalyticalCpuModel(TARGET.device, alone=True)  # as kernels are measured
    context = context_of(softmax_graph(512, 512), target=TARGET, model=alone)
    prices = context.prices(context.space)
    for number in default:
        price = prices[samples.seen[number].kernel]
        assert samples.us[number] == pytest.approx(price.predicted_us)
        assert samples.features[number].tolist() == price.features.tolist()


@pytest.mark.slow
def test_no_kernel_of_the_data_set_was_faster_than_its_floor(study):
    """With the calibration that the records carry, and with none."""
    samples = study["samples"].samples_of(study["run"].RECORDS)
    assert len(samples.seen) > 9000
    for number in np.flatnonzero(samples.measured_us < samples.floor_us):
        pytest.fail(f"{samples.seen[number].kernel}: {samples.measured_us[number]} < {samples.floor_us[number]}")
    for one, us in zip(samples.seen, samples.measured_us, strict=True):
        device = study["samples"].target_of(one).device
        plain = default_calibration(device.vector_bits, device.cores, device.l3_bytes)
        target = CpuTarget(device.with_calibration(plain))
        told = features(study["samples"].lowered(one, target), device.vector_bits)
        assert us >= floor_us(told, target.device), one.kernel


@pytest.mark.slow
def test_a_second_pass_is_what_no_model_beats(evaluated):
    found = [json.loads(line) for line in evaluated.with_suffix(".jsonl").read_text().splitlines()]
    (again,) = (r["figures"] for r in found if r["kind"] == "measured again")
    assert again["mape"] == pytest.approx(0.01, abs=0.01)  # passes are 1 % apart or less
    assert again["pairs"] > 0.95


def test_a_model_is_trained_and_can_be_loaded(study, records, tmp_path, capsys):
    assert study["train"].main([str(records), "--out", str(tmp_path)]) == 0
    assert "held out" in capsys.readouterr().out
    card = load(tmp_path / "cpu.json").card
    assert card.base == "analytical-cpu"
    assert card.programs >= 10
    assert card.metrics.keys() == {"mape", "sigma", "pairs"}


def test_a_model_of_records_of_two_machines_is_for_both(study, records, tmp_path):
    samples = study["samples"].samples_of(records)
    machine, other = TARGET.identity, replace(TARGET.identity, l3_bytes=1)
    seen = [replace(one, identity=other) for one in samples.seen[:3]]
    trained = study["train"].trained_on(replaced(samples, seen=[*seen, *samples.seen[3:]]), "")
    assert [one.l3_bytes for one in trained.card.machines] == [machine.l3_bytes, 1]
    save(trained, tmp_path / "cpu.json")
    base = AnalyticalCpuModel(TARGET.device)
    for known in (machine, other):
        assert learned_model(base, known, tmp_path).note is None
    assert "(different: l2_bytes)" in learned_model(base, replace(other, l2_bytes=1), tmp_path).note


def test_records_of_two_backends_are_not_mixed(study, records):
    samples = study["samples"].samples_of(records)
    other = replace(samples.seen[0], identity=CountedTarget().identity)
    with pytest.raises(ModelError, match="several backends \\(counted, cpu\\)"):
        study["train"].trained_on(replaced(samples, seen=[other, *samples.seen[1:]]), "")


def replaced(samples, **fields):
    """Samples with other fields, and nothing of what was derived from them."""
    return type(samples)(**{f: fields.get(f, getattr(samples, f)) for f in samples.__dataclass_fields__})


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more"])
def test_a_file_that_holds_no_records_is_one_error(study, tmp_path, capsys, content):
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    assert study["run"].main([str(path), "--out", str(tmp_path / "eval.md")]) == 2
    assert "bad.npz" in capsys.readouterr().err
