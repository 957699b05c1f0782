"""The policy and the cost model "learned": prices corrected by a trained model, or analytical ones and a note."""

import numpy as np
import pytest

import autofuse as af
from autofuse.api.keptdecisions import kept_decision
from autofuse.api.partitioning import make_context
from autofuse.api.programs import traced_program
from autofuse.cost_models.learned import model
from autofuse.cost_models.learned.trained import save
from autofuse.errors import ModelError
from autofuse.frontend.traced import trace
from autofuse.lazydataclass import replace
from autofuse.search.plugins.registry import find_model, model_for
from autofuse.targets.base import find_target
from tests.fixtures.trainedmodels import trained_model

NONE = "cost model: learned; no model was trained for backend cpu: prices are analytical"


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where trained models lie: none yet."""
    monkeypatch.setattr(model, "TRAINED", tmp_path)
    return tmp_path


def of_this_machine():
    return replace(trained_model(), card=replace(trained_model().card, machines=(find_target().identity,)))


@pytest.mark.parametrize("asked", [{"policy": "learned"}, {"model": "learned"}])
def test_without_a_trained_model_the_plan_is_the_analytical_one_and_says_so(folder, asked):
    x = np.ones((64, 32), np.float32)
    plan, usual = af.compile(softmax, x, **asked), af.compile(softmax, x)
    assert NONE in plan.document.notes
    assert [kernel.nodes for kernel in plan.document.kernels] == [kernel.nodes for kernel in usual.document.kernels]
    assert plan(x) == pytest.approx(softmax(x), rel=1e-6)


def test_the_policy_chooses_at_the_prices_of_the_learned_model(folder):
    save(of_this_machine(), folder / "cpu.json")
    x = np.ones((4096, 512), np.float32)
    plan, usual = af.compile(softmax, x, policy="learned"), af.compile(softmax, x)
    assert "cost model: learned" in plan.document.notes
    context = make_context(traced_program(trace(softmax, x)), find_target(), model="learned")
    known = {price.predicted_us for price in context.prices(context.space).values()}
    assert {kernel.predicted_us for kernel in plan.document.kernels} <= known
    assert plan.document.kernels[0].predicted_us != usual.document.kernels[0].predicted_us


def test_an_unfit_model_is_one_error(folder):
    save(of_this_machine(), folder / "cpu.json")
    (folder / "cpu.npz").write_bytes(b"")
    with pytest.raises(ModelError, match=r"cpu\.npz: sha256"):
        af.compile(softmax, np.ones((4, 4), np.float32), policy="learned")


def test_a_model_that_is_named_is_the_one_that_is_asked():
    assert model_for("learned", "analytical") == "learned"
    assert model_for("learned", "mine:Model") == "mine:Model"
    assert model_for("analytical", "analytical") == "analytical"
    own = find_model("analytical", find_target())
    assert model_for("learned", own) is own


def test_what_it_decides_is_not_kept():
    traced = trace(softmax, np.ones((4, 4), np.float32))
    options = {"model": "analytical", "target": find_target(), "variants": "default", "deadline": 1.0}
    options |= {"partition": None, "rules": (), "legality": None, "max_memory": None, "numerics": "strict"}
    assert kept_decision(traced, {**options, "policy": "learned"}) is None
