"""Plans that are saved, read by another process, and looked into."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError, PlanError
from autofuse.measurement.workloads import arrays, load

ROOT = Path(__file__).parents[2]
SAVED = ["attention", "black_scholes", "adam", "cumulative", "lstm_sequence", "jacobi_2d"]
SELDOM = {"adam", "lstm_sequence", "black_scholes"}
"""What the whole suite runs alone."""

RUN = """
import sys
import numpy as np
import autofuse as af

plan_path, inputs_path, results_path = sys.argv[1:]
inputs = np.load(inputs_path)
plan = af.load(plan_path)
leaves = [inputs[f"arr_{number}"] for number in range(len(inputs.files))]
outputs = plan.executable.run(leaves)
assert outputs is not NotImplemented
np.savez(results_path, *outputs)
libraries = {"sklearn", "optuna", "cupy", "matplotlib", "distributed", "dask"}
heavy = {*libraries, "autofuse.search.tune.tuner"} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SELDOM else n for n in SAVED])
def test_a_saved_plan_gives_the_same_bits_in_another_process(name, tmp_path):
    workload = load(name)
    args = workload.inputs("small", 0)
    plan = af.compile(workload.function, *args, policy="analytical")
    leaves = [np.ascontiguousarray(a).reshape(a.shape) for a in arrays(args)]
    path = plan.save(tmp_path / "plan.json")
    np.savez(tmp_path / "inputs.npz", *leaves)
    ours = plan.executable.run([leaf.copy() for leaf in leaves])
    command = [sys.executable, "-c", RUN, path, tmp_path / "inputs.npz", tmp_path / "results.npz"]
    subprocess.run([str(part) for part in command], check=True, timeout=600, cwd=ROOT)
    with np.load(tmp_path / "results.npz") as theirs:
        assert len(theirs.files) == len(ours)
        for number, right in enumerate(ours):
            assert theirs[f"arr_{number}"].tobytes() == right.tobytes()


@pytest.fixture
def plan():
    return af.compile(lambda x: np.tanh(x).sum(-1), np.ones((4, 6), np.float32))


def test_loading_and_saving_again_writes_the_same_text(plan, tmp_path):
    first = plan.save(tmp_path / "p.json")
    again = af.load(first).save(tmp_path / "q.json")
    assert again.read_text() == first.read_text()


def test_constants_of_any_size_survive(tmp_path):
    table = np.random.default_rng(0).standard_normal((64, 6))
    plan = af.compile(lambda x: x @ table.T + 3, np.ones((4, 6)))
    x = np.random.default_rng(1).standard_normal((4, 6))
    again = af.load(plan.save(tmp_path / "p.json"))
    assert again(x).tobytes() == plan(x).tobytes()


def test_a_plan_for_another_machine_says_what_differs(plan, tmp_path):
    path = plan.save(tmp_path / "p.json")
    data = json.loads(path.read_text())
    data["identity"]["llvm"] = "1.0"
    path.write_text(json.dumps(data))
    with pytest.raises(PlanError, match="llvm"):
        af.load(path)
    x = np.ones((4, 6), np.float32)
    for way in ("run", "retune"):
        np.testing.assert_array_equal(af.load(path, on_mismatch=way)(x), plan(x))
    with pytest.raises(ArgumentError, match="on_mismatch"):
        af.load(path, on_mismatch="maybe")


def test_a_plan_that_is_decided_anew_does_not_claim_what_the_old_one_kept(tmp_path):
    x = np.ones((4, 6), np.float32)
    old = af.compile(lambda x: np.exp(x) / np.exp(x).sum(), x, rules=[af.Pin("exp", schedule={"unroll": 2})])
    assert any(note.startswith("kept rule") for note in old.document.notes)
    path = old.save(tmp_path / "p.json")
    data = json.loads(path.read_text())
    data["identity"]["llvm"] = "1.0"
    path.write_text(json.dumps(data))
    (note,) = af.load(path, on_mismatch="retune").document.notes
    assert note == "decided anew for this machine by the cost model, without rules and limits of users"


def test_an_illegal_fusion_in_a_file_is_refused(tmp_path):
    plan = af.compile(lambda x: np.exp(x.sum(1)).sum(0), np.ones((4, 6), np.float32), policy="unfused")
    path = plan.save(tmp_path / "p.json")
    data = json.loads(path.read_text())
    first = data["kernels"][0]
    for kernel in data["kernels"][1:]:
        first["nodes"] += [name for name in kernel["nodes"] if name not in first["nodes"]]
    first["outputs"] = data["kernels"][-1]["outputs"]
    data["kernels"], data["order"] = [first], data["order"][:1]
    path.write_text(json.dumps(data))
    with pytest.raises(PlanError, match="not a legal fusion"):
        af.load(path)


def test_profiling_leaves_arguments_alone():
    def double(x):
        x *= 2

    x = np.ones((4, 6), np.float32)
    plan = af.compile(double, x)
    times = plan.profile(x)
    assert [name for name, _ in times] == [kernel.name for kernel in plan.kernels]
    assert (x == 1).all()


def test_source_and_explain_name_every_kernel(plan):
    assert plan.source()
    text = plan.explain()
    assert all(kernel.name in text for kernel in plan.kernels)


def test_a_plan_says_why_things_are_not_one_kernel():
    apart = af.compile(lambda x: np.tanh(x).sum(-1), np.ones((4, 6), np.float32), policy="unfused")
    everything = apart.why_not()
    assert everything.count(" -> ") == 1
    assert "legal; the model prices it at" in everything
    first, second = (kernel.nodes[-1] for kernel in apart.kernels)
    assert "joining would" in apart.why_not(first, second)
    ruled = apart.why_not(first, second, rules=[af.Forbid("tanh", "reduce")])
    assert "not one kernel: Forbid('tanh', 'reduce') keeps" in ruled
    assert "legality 'never': never" in apart.why_not(first, second, legality=never)
    with pytest.raises(ArgumentError, match="why_not: takes two names, or none; got 'tanh'"):
        apart.why_not("tanh")
    with pytest.raises(ArgumentError, match="'nothing' is no node, value or kernel of the plan"):
        apart.why_not("tanh", "nothing")


def never(nodes):
    """A legality."""
    return "never"


@pytest.mark.parametrize(
    "decisions",
    [{"vector_bits": 2048, "panel_rows": 100000, "split": 7}, {"panel_rows": 64}, {"unroll": 3}],
)
def test_a_schedule_that_no_search_chooses_is_refused_when_a_plan_is_loaded(tmp_path, decisions):
    def update(w, x):
        w[2:5] = np.exp(x)

    file = tmp_path / "p.json"
    af.compile(update, af.spec("f32[9,6]"), af.spec("f32[3,6]")).save(file)
    text = json.loads(file.read_text())
    text["kernels"][0]["schedule"] = decisions
    file.write_text(json.dumps(text))
    with pytest.raises(PlanError, match=rf"kernels\[0\]\.schedule\.{next(iter(decisions))}: "):
        af.load(file)
