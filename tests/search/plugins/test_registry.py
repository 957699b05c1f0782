"""Names of policies, cost models and legality: this package's, those of installed packages, and `module:name`."""

import sys

import pytest

from autofuse.errors import SearchError
from autofuse.search.plugins.foreign import CheckedLegality, CheckedModel, CheckedPolicy
from autofuse.search.plugins.registry import find_legality, find_model, find_policy, policy_by_name, policy_names
from autofuse.search.policies.unfused import Unfused
from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel
from autofuse.testing.devices import SERVER
from autofuse.testing.partitions import TARGET, context_of
from autofuse.testing.search_policies import decisions
from autofuse.testing.sketches import softmax_graph

MODULE = """
from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel
from autofuse.search.policies.unfused import Unfused
from autofuse.testing.devices import SERVER


class Alone:
    name = "alone"

    def partition(self, context):
        return Unfused().partition(context)


class Doubled(AnalyticalCpuModel):
    def price(self, kernels):
        found = super().price(kernels)
        return type(found)(2 * found.us, found.sigma, found.floor_us, found.bound)


def small(nodes):
    return "more than two" if len(nodes) > 2 else None


class Most:
    def __call__(self, nodes):
        return "more than three" if len(nodes) > 3 else None


class Broken:
    def __init__(self, *given):
        raise ZeroDivisionError("by hand")


nothing = 3
"""
ENTRY_POINTS = """
[autofuse.policies]
their-policy = their_module:Alone
unfused = their_module:Alone

[autofuse.cost_models]
their-model = their_module:Doubled

[autofuse.legality]
their-legality = their_module:small
"""
GRAPH = softmax_graph(16, 16)


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """A package that offers one of each."""
    (tmp_path / "their_module.py").write_text(MODULE)
    facts = tmp_path / "theirs-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("their_module", None)


@pytest.mark.parametrize("name", ["their-policy", "their_module:Alone"])
def test_a_policy_of_others(name):
    policy = find_policy(name)
    assert isinstance(policy, CheckedPolicy)
    assert policy.name == "alone"
    context = context_of(GRAPH)
    assert decisions(policy.partition(context)) == decisions(Unfused().partition(context))


@pytest.mark.parametrize("name", ["their-model", "their_module:Doubled"])
def test_a_model_of_others_is_made_for_the_device(name):
    model = find_model(name, TARGET)
    assert isinstance(model, CheckedModel)
    assert model.describe()["device"] == SERVER.to_json()


@pytest.mark.parametrize("name", ["their-legality", "their_module:small", "their_module:Most"])
def test_a_legality_of_others_is_a_function_or_a_class(name):
    legality = find_legality(name, GRAPH)
    assert isinstance(legality, CheckedLegality)
    assert legality.label == f"legality {name!r}"
    nodes = [GRAPH.node_by_name[name] for name in ("peak", "shifted", "grown", "total")]
    assert legality.refusal(frozenset(nodes[:2])) is None
    assert "more than" in legality.refusal(frozenset(nodes))


def test_what_installed_packages_offer_is_listed_last_and_hides_nothing():
    names = policy_names()
    assert names[-1] == "their-policy"
    assert names.count("unfused") == 1
    assert policy_by_name("unfused") == Unfused()


def test_objects_of_this_package_are_taken_as_they_are():
    policy, model = Unfused(), AnalyticalCpuModel(SERVER)
    assert find_policy(policy) is policy
    assert find_model(model, TARGET) is model
    assert type(find_model("analytical", TARGET)) is AnalyticalCpuModel


FINDERS = {
    "policy": find_policy,
    "model": lambda model: find_model(model, TARGET),
    "legality": lambda legality: find_legality(legality, GRAPH),
}


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("policy", "their_module:Broken", "policy='their_module:Broken' cannot be made: ZeroDivisionError: by hand"),
        ("policy", "their_module:nothing", "policy='their_module:nothing' cannot be made: TypeError"),
        ("policy", "their-polcy", "policy='their-polcy' is unknown; did you mean their-policy?"),
        ("policy", {}, "policy is a dict, which has no name and partition()"),
        ("policy", Unfused, "policy is the class Unfused, not an instance of it"),
        ("model", "analitical", "model='analitical' is unknown; did you mean analytical?"),
        ("model", "zzz", "model='zzz' is unknown; choose one of: analytical, learned, their-model; or module:Class"),
        ("model", "their_module:Alone", "model='their_module:Alone' cannot be made: TypeError"),
        ("model", "their_module:Broken", "model='their_module:Broken' cannot be made: ZeroDivisionError: by hand"),
        ("model", object(), "model is a object, which has no price() and write_us() and describe()"),
        ("model", AnalyticalCpuModel, "model is the class AnalyticalCpuModel, not an instance of it"),
        ("legality", "smal", "legality='smal' is unknown; "),
        ("legality", "their_module:smal", "legality='their_module:smal' cannot be made: AttributeError"),
        ("legality", "their_module:nothing", "legality='their_module:nothing' gives a int, which has no way to be"),
        ("legality", 3, "legality is a int, which has no way to be called"),
    ],
)
def test_what_is_none_is_one_error_that_names_it(kind, given, message):
    with pytest.raises(SearchError) as refused:
        FINDERS[kind](given)
    assert message in str(refused.value)
