"""The example of docs/plug-ins.md, by name and by entry point, through everything that takes plug-ins."""

import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import autofuse as af
from autofuse.cli.main import main
from autofuse.errors import LegalityError, PluginError, SearchError
from autofuse.testing.cost_models import CostModelContract
from autofuse.testing.devices import SERVER

PAGE = (Path(__file__).parents[2] / "docs" / "plug-ins.md").read_text()
X = np.linspace(-2, 2, 64, dtype=np.float32).reshape(8, 8)
APART = "mine:exp_apart_from_sums"
REASON = f"legality '{APART}': exponentials and sums are to be looked at one by one"


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def close(plan):
    np.testing.assert_allclose(plan(X), softmax(X), rtol=1e-5)  # exp within 4 ulp, sums of 8 terms


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    """The example's module, and a package that offers it."""
    (tmp_path / "mine.py").write_text(blocks("python")[0])
    groups = tomllib.loads(blocks("toml")[0])["project"]["entry-points"]
    lines = [
        line for group, names in groups.items() for line in (f"[{group}]", *(f"{k}={v}" for k, v in names.items()))
    ]
    facts = tmp_path / "mine-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("mine", None)


def ops_of(plan):
    return [{plan.document.graph.node_by_name[name].op for name in kernel.nodes} for kernel in plan.kernels]


class TestBytes(CostModelContract):
    def model(self):
        import mine

        return mine.Bytes(SERVER)


def test_the_page_calls_what_there_is():
    namespace = {"af": af, "softmax": softmax, "x": X}
    exec(blocks("python")[1], namespace)
    close(namespace["plan"])
    assert REASON in namespace["space"].refused.values()


@pytest.mark.parametrize(
    ("policy", "model", "legality"),
    [("mine:Pairs", "mine:Bytes", APART), ("pairs", "bytes", "apart")],
    ids=["by module", "by entry point"],
)
def test_compile_takes_all_three(policy, model, legality):
    plan = af.compile(softmax, X, policy=policy, model=model, legality=legality)
    close(plan)
    assert all(not {"exp", "reduce"} <= ops for ops in ops_of(plan))
    assert plan.document.notes == (f"cost model: {model}", f"kept rule: legality '{legality}'")
    assert {kernel.bound for kernel in plan.kernels} == {"memory"}


def test_without_them_the_plan_is_another_one():
    assert any({"exp", "reduce"} <= ops for ops in ops_of(af.compile(softmax, X)))


def test_a_plan_runs_where_its_plug_ins_are_not(tmp_path):
    af.compile(softmax, X, policy="mine:Pairs", model="mine:Bytes", legality=APART).save(tmp_path / "p.json")
    (tmp_path / "mine.py").unlink()
    sys.modules.pop("mine", None)
    close(af.load(tmp_path / "p.json"))


def test_objects_serve_as_well_as_names():
    import mine

    plan = af.compile(softmax, X, policy=mine.Pairs(), model=mine.Bytes(SERVER), legality=mine.exp_apart_from_sums)
    close(plan)
    assert plan.document.notes == ("cost model: Bytes", "kept rule: legality 'exp_apart_from_sums'")


def test_tuning_keeps_a_legality_and_asks_a_model():
    plan = af.tune(softmax, X, budget=1.0, max_trials=6, progress=False, model="mine:Bytes", legality=APART)
    close(plan)
    assert all(not {"exp", "reduce"} <= ops for ops in ops_of(plan))
    assert f"kept rule: legality '{APART}'" in plan.document.notes
    fixed = af.tune(softmax, X, budget=1.0, max_trials=4, progress=False, policy="mine:Pairs")
    assert fixed.certificate.policy == "pairs"


def test_the_space_shows_prices_and_reasons():
    space = af.candidates(softmax, X, model="mine:Bytes", legality=APART)
    assert {option.bound for option in space} == {"memory"}
    refused = [nodes for nodes, reason in space.refused.items() if reason == REASON]
    assert refused
    with pytest.raises(LegalityError, match="exponentials and sums"):
        space.find(*refused[0])


def test_a_partition_by_name_keeps_it_too():
    whole = [kernel.nodes for kernel in af.compile(softmax, X, policy="unfused").kernels]
    with pytest.raises(LegalityError, match=r"partition: kernel 0 .*: legality .*exponentials and sums"):
        af.compile(softmax, X, partition=[[name for nodes in whole for name in nodes]], legality=APART)


@pytest.mark.parametrize(
    ("argument", "value"), [("model", "mine:Byte"), ("legality", "mine:nothing"), ("policy", "mine:None")]
)
@pytest.mark.parametrize("make", [af.compile, af.tune], ids=["compile", "tune"])
def test_a_name_that_stands_for_nothing_is_named(make, argument, value):
    with pytest.raises(SearchError, match=f"{argument}='{value}' cannot be made: AttributeError"):
        make(softmax, X, **{argument: value})


@pytest.mark.parametrize("make", [af.compile, af.tune], ids=["compile", "tune"])
def test_nonsense_of_a_policy_never_becomes_a_plan(make):
    class Hopeful:
        name = "hopeful"

        def partition(self, context):
            from dataclasses import replace

            from autofuse.search.policies.unfused import Unfused

            whole = Unfused().partition(context)
            return replace(whole, kernels=whole.kernels[:-1])

    with pytest.raises(
        PluginError, match=r"policy='hopeful' gave no partition of softmax: no kernel writes .*, a result"
    ):
        make(softmax, X, policy=Hopeful())


# ---- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def program(mine):
    path = mine / "program.py"
    path.write_text(
        "import numpy as np\n\n\ndef softmax(x):\n    e = np.exp(x - x.max(-1, keepdims=True))\n"
        "    return e / e.sum(-1, keepdims=True)\n"
    )
    return f"{path}:softmax"


def test_the_command_line_takes_them(program, mine, capsys):
    saved = str(mine / "p.json")
    plug_ins = ("--policy", "mine:Pairs", "--model", "mine:Bytes", "--legality", APART)
    limits = ("--arg", "f32[8,8]", "--budget", "1", "--max-trials", "4", "-o", saved)
    assert main(["tune", program, *limits, *plug_ins]) == 0
    assert f"kept rule: legality '{APART}'" in af.load(saved).document.notes
    names = [node.name for node in af.load(saved).document.graph.nodes if node.op in ("exp", "reduce")]
    capsys.readouterr()
    assert main(["explain", saved, "--why-not", *names[1:], "--model", "mine:Bytes", "--legality", APART]) == 0
    assert f"not one kernel: {REASON}" in capsys.readouterr().out
    assert main(["explain", saved, "--why-not", *names[1:]]) == 0
    asked = capsys.readouterr().out
    assert "not one kernel" not in asked
    assert f"kept rule: legality '{APART}'" in asked


@pytest.mark.slow
def test_the_command_line_compares_with_them(program, capsys):
    policies = ("--policies", "analytical", "--untuned", "analytical", "--blocks", "6")
    assert main(["compare", program, "--arg", "f32[8,8]", *policies, "--model", "mine:Bytes", "--legality", APART]) == 0
    assert "analytical" in capsys.readouterr().out


def test_a_bad_plug_in_is_one_line_and_exit_code_2(program, capsys):
    assert main(["tune", program, "--arg", "f32[8,8]", "--legality", "mine:Bytes"]) == 2
    assert "autofuse: legality='mine:Bytes' cannot be made: TypeError" in capsys.readouterr().err
