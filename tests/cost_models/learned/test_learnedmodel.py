"""The learned model: a cost model as the others, bounded by the analytical one, which stands in where there is none."""

import math

import numpy as np
import pytest

from autofuse.cost_models.base import KernelFacts
from autofuse.cost_models.features import COLUMNS as FEATURES
from autofuse.cost_models.learned.model import DOUBT, LearnedModel, learned_model
from autofuse.cost_models.learned.trained import save
from autofuse.errors import ModelError
from autofuse.lazydataclass import replace
from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel
from autofuse.testing.cost_models import CostModelContract, elementwise_kernel, sample_kernels
from autofuse.testing.devices import server
from tests.fixtures.trainedmodels import identity_of, trained_model

BASE = AnalyticalCpuModel(server(8))
KERNELS = sample_kernels()


class TestLearned(CostModelContract):
    def model(self):
        return LearnedModel(BASE, trained_model())


class TestWithoutModel(CostModelContract):
    def model(self):
        return LearnedModel(BASE, None, "there is none")


def test_prices_are_corrected_by_what_was_learned_and_stay_above_the_floor():
    exp, negate = (KernelFacts(elementwise_kernel(1 << 20, (op,))) for op in ("exp", "negate"))
    base, learned = BASE.price([exp, negate]), LearnedModel(BASE, trained_model()).price([exp, negate])
    assert learned.us[0] == pytest.approx(2 * base.us[0], rel=0.2)
    assert learned.us[1] == pytest.approx(max(base.us[1] / 2, base.floor_us[1]), rel=0.2)
    assert (learned.us >= base.floor_us).all()
    assert (learned.bound, learned.floor_us.tolist()) == (base.bound, base.floor_us.tolist())
    assert 0.02 < learned.sigma[0] < 0.4


def test_without_a_trained_model_prices_are_analytical_less_certain_and_say_so(tmp_path):
    model = learned_model(BASE, identity_of(), tmp_path)
    found, base = model.price(KERNELS), BASE.price(KERNELS)
    assert found.us.tolist() == base.us.tolist()
    assert found.sigma == pytest.approx(DOUBT * base.sigma)
    assert model.describe()["note"] == "no model was trained for backend cpu: prices are analytical"


def test_of_another_machine_prices_are_analytical_less_certain_and_say_so(tmp_path):
    save(trained_model(), tmp_path / "cpu.json")
    model = learned_model(BASE, identity_of(llvm="23"), tmp_path)
    assert model.price(KERNELS).us.tolist() == BASE.price(KERNELS).us.tolist()
    assert (model.price(KERNELS).sigma > BASE.price(KERNELS).sigma).all()
    assert "another machine or toolchain (different: llvm)" in model.describe()["note"]


def test_of_this_machine_with_other_threads_it_is_the_learned_one(tmp_path):
    save(trained_model(), tmp_path / "cpu.json")
    model = learned_model(BASE, identity_of(threads=2), tmp_path)
    assert "note" not in model.describe()
    assert model.price(KERNELS).us.tolist() == LearnedModel(BASE, trained_model()).price(KERNELS).us.tolist()


@pytest.mark.parametrize(("field", "value"), [("base", "other"), ("base_version", 1)])
def test_of_another_analytical_model(tmp_path, field, value):
    trained = trained_model()
    save(replace(trained, card=replace(trained.card, **{field: value})), tmp_path / "cpu.json")
    with pytest.raises(ModelError, match=rf"cpu.json: {field}: is {value!r}.* train the model again"):
        learned_model(BASE, identity_of(), tmp_path)


class Faulty(AnalyticalCpuModel):
    """Gives no number for a feature, or no features."""

    none = False

    def price(self, kernels):
        found = super().price(kernels)
        features = found.features.copy()
        features[1:, FEATURES.index("blocks")] = math.nan
        return replace(found, features=None if self.none else features)


def test_a_feature_that_is_no_number_is_named():
    model = LearnedModel(Faulty(server(8)), trained_model())
    with pytest.raises(ModelError, match="kernel 'k': feature 'blocks' is NaN"):
        model.price(KERNELS)
    assert math.isfinite(model.price(KERNELS[:1]).us[0])


def test_a_base_without_features_is_named():
    base = Faulty(server(8))
    base.none = True
    with pytest.raises(ModelError, match="'analytical-cpu' gives no features"):
        LearnedModel(base, trained_model()).price(KERNELS)


def test_descriptions_tell_models_apart():
    trained = trained_model()
    other = replace(trained, mean=replace(trained.mean, value=np.zeros_like(trained.mean.value)))
    described = [LearnedModel(BASE, model).describe() for model in (trained, other, None)]
    assert all(one != two for one in described for two in described if one is not two)
