"""The trained models that come with autofuse fit the code that is here, and are as good as they have to be."""

import pytest

from autofuse.cost_models.base import KernelFacts
from autofuse.cost_models.learned.model import TRAINED, learned_model
from autofuse.cost_models.learned.trained import load
from autofuse.lazydataclass import replace
from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel
from autofuse.testing.cost_models import elementwise_kernel, row_sum_kernel
from autofuse.testing.devices import server

CARDS = sorted(TRAINED.glob("*.json"))
FACTS = [KernelFacts(kernel) for kernel in (elementwise_kernel(1 << 20, ("exp", "sin")), row_sum_kernel(4096, 512))]


def test_there_is_one_for_the_cpu():
    assert "cpu" in [path.stem for path in CARDS]


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_programs_that_were_held_out_are_predicted_well(path):
    card = load(path).card
    assert card.records > 25_000
    assert card.metrics["mape"] <= 0.18
    assert card.metrics["sigma"] <= 0.28
    assert card.metrics["pairs"] >= 0.925


def test_on_its_machine_prices_are_corrected_within_bounds():
    base, card = AnalyticalCpuModel(server(2)), load(TRAINED / "cpu.json").card
    model = learned_model(base, card.machines[0])
    assert model.note is None
    told, plain = model.price(FACTS), base.price(FACTS)
    assert (told.us != plain.us).all()
    assert (abs(told.us / plain.us) <= 2.718282**card.most_log).all()
    assert (told.us >= told.floor_us).all()


@pytest.mark.parametrize("fields", [{"threads": 1}, {"generator": "cpu/99"}])
def test_threads_and_generators_are_no_other_machine(fields):
    base, card = AnalyticalCpuModel(server(2)), load(TRAINED / "cpu.json").card
    assert learned_model(base, replace(card.machines[0], **fields)).note is None


@pytest.mark.parametrize("fields", [{"l2_bytes": 1 << 20}, {"llvm": "1.0"}, {"blas_library": "another"}])
def test_another_machine_or_toolchain_gets_analytical_prices_and_a_note(fields):
    base, card = AnalyticalCpuModel(server(2)), load(TRAINED / "cpu.json").card
    model = learned_model(base, replace(card.machines[0], **fields))
    assert model.note is not None
    assert next(iter(fields)) in model.note
    assert (model.price(FACTS).us == base.price(FACTS).us).all()
