"""What other people's code may do wrong, and the one error that it becomes."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from autofuse.cost_models.base import Prices
from autofuse.cost_models.features import COLUMNS
from autofuse.errors import LegalityError, PluginError, SearchError
from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.userrules import NO_RULES, Control, Force, bind
from autofuse.search.plugins.foreign import checked_legality, checked_model, checked_policy
from autofuse.search.plugins.registry import HERE, policy_by_name
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.context import Context
from autofuse.search.policies.unfused import Unfused
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel
from autofuse.testing.cost_models import CostModelContract, sample_kernels
from autofuse.testing.devices import SERVER
from autofuse.testing.fusions import LIMITS
from autofuse.testing.partitions import context_of
from autofuse.testing.search_policies import SearchPolicyContract, decisions
from autofuse.testing.sketches import Sketch, attention_graph, softmax_graph

KERNELS = sample_kernels()


# ---- cost models -----------------------------------------------------------------------------------------------------


class Honest:
    """Somebody else's model, which does as it should."""

    def __init__(self):
        self.real = AnalyticalCpuModel(SERVER)

    def price(self, kernels):
        return self.real.price(kernels)

    def write_us(self, value):
        return self.real.write_us(value)

    def describe(self):
        return {"name": "honest", "feature_version": 0}


class TestHonest(CostModelContract):
    """A wrapped model keeps the contract that it keeps by itself."""

    def model(self):
        return checked_model(Honest())


def spoilt(change):
    """A model whose prices are spoilt by `change`, which gets them as lists."""

    class Spoilt(Honest):
        def price(self, kernels):
            found = super().price(kernels)
            columns = {
                "us": found.us.tolist(),
                "sigma": found.sigma.tolist(),
                "floor_us": found.floor_us.tolist(),
                "bound": list(found.bound),
            }
            change(columns)
            return Prices(**columns)

    return checked_model(Spoilt(), "mine:Spoilt")


def put(name, value, at=1):
    def change(columns):
        columns[name][at] = value

    return change


def give(name, value):
    return lambda columns: columns.update({name: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("us", math.nan), r"price\(\) gave us\[1\] = nan; it must be finite and positive"),
        (put("us", -1.0), r"price\(\) gave us\[1\] = -1\.0; it must be finite and positive"),
        (put("us", 0.0), r"price\(\) gave us\[1\] = 0\.0; it must be finite and positive"),
        (put("us", math.inf), r"price\(\) gave us\[1\] = inf; it must be finite and positive"),
        (put("sigma", -0.5), r"price\(\) gave sigma\[1\] = -0\.5; it must be finite and not negative"),
        (put("floor_us", math.nan), r"price\(\) gave floor_us\[1\] = nan; it must be finite and not negative"),
        (put("floor_us", 1e9), r"price\(\) gave floor_us\[1\] = 1000000000\.0; .* nor above the price"),
        (lambda columns: columns["us"].pop(), r"price\(\) gave us of shape \(5,\) for 6 kernels"),
        (give("us", 3.0), r"price\(\) gave us of shape \(\) for 6 kernels"),
        (give("us", ["a"] * 6), r"price\(\) gave us that are no numbers"),
        (give("us", None), r"price\(\) gave us "),
        (put("bound", "luck"), r"price\(\) gave the bound 'luck'; there are memory, compute, "),
        (
            lambda columns: columns["bound"].pop(),
            r"price\(\) gave bound=\[.* for 6 kernels; there must be one for each",
        ),
        (give("bound", None), r"price\(\) gave bound=None for 6 kernels"),
        (give("headroom", "much"), r"price\(\) gave headroom='much'; it must be None, or a number above 0"),
        (give("headroom", -2.0), r"price\(\) gave headroom=-2.0"),
        (give("features", "much"), r"price\(\) gave features that are no numbers"),
        (give("terms", [[1.0]] * 6), r"price\(\) gave terms of shape \(6, 1\); they must be finite, \(6, 5\)"),
        (give("terms", [[math.nan] * 5] * 6), r"price\(\) gave terms of shape \(6, 5\); they must be finite"),
        (give("features", [[1.0]] * 6), r"price\(\) gave features of shape \(6, 1\); they must be finite, \(6, \d+\)"),
        (give("features", np.full((6, len(COLUMNS)), np.nan)), r"price\(\) gave features of shape .* must be finite"),
    ],
)
def test_prices_that_are_none_are_refused(change, message):
    with pytest.raises(PluginError, match=r"model='mine:Spoilt': " + message):
        spoilt(change).price(KERNELS)


def test_prices_may_be_lists():
    honest, lists = Honest().price(KERNELS), spoilt(lambda columns: None).price(KERNELS)
    assert lists.us.tolist() == honest.us.tolist()
    assert lists.us.dtype == np.float64


def test_a_floor_may_be_above_its_price_by_a_rounding():
    def lift(columns):
        columns["floor_us"] = [us * (1 + 1e-9) for us in columns["us"]]

    prices = spoilt(lift).price(KERNELS)
    assert (prices.us >= prices.floor_us).all()


def test_what_is_no_prices_at_all_is_refused():
    class Empty(Honest):
        def price(self, kernels):
            return [1.0 for _ in kernels]

    with pytest.raises(PluginError, match=r"model='Empty': price\(\) gave a list, not Prices"):
        checked_model(Empty()).price(KERNELS)


@pytest.mark.parametrize("wrong", [math.nan, -1.0, math.inf, None, "3", [1.0]])
def test_writes_that_cost_nonsense_are_refused(wrong):
    class Free(Honest):
        def write_us(self, value):
            return wrong

    value = KERNELS[0].program.buffers[0].type
    with pytest.raises(PluginError, match=r"model='Free': write_us\(.*\) gave .*finite and not negative"):
        checked_model(Free()).write_us(value)


@pytest.mark.parametrize("method", ["price", "write_us", "describe"])
def test_what_a_model_raises_names_it_and_keeps_the_cause(method):
    class Raising(Honest):
        pass

    def fail(*_, **__):
        raise KeyError("by hand")

    setattr(Raising, method, fail)
    model = checked_model(Raising())
    value = KERNELS[0].program.buffers[0].type
    arguments = {"price": (KERNELS,), "write_us": (value,), "describe": ()}[method]
    with pytest.raises(PluginError, match=rf"model='Raising': {method}\(\) raised KeyError: 'by hand'") as refused:
        getattr(model, method)(*arguments)
    assert isinstance(refused.value.__cause__, KeyError)


def test_a_description_is_a_dict():
    class Silent(Honest):
        def describe(self):
            return "silent"

    with pytest.raises(PluginError, match=r"describe\(\) gave a str, not a dict"):
        checked_model(Silent()).describe()


@pytest.mark.parametrize("policy", ["analytical", "greedy", "beam", "unfused"])
def test_nonsense_of_a_model_stops_every_policy_that_asks_it(policy):
    context = context_of(softmax_graph(16, 16), model=spoilt(put("us", math.nan, at=0)))
    with pytest.raises(PluginError, match="model='mine:Spoilt'"):
        policy_by_name(policy).partition(context)


# ---- legality --------------------------------------------------------------------------------------------------------


def exp_alone(nodes):
    """No sum in the kernel of an exponential."""
    ops = {node.op for node in nodes}
    return "one by one,\n  please" if {"exp", "reduce"} <= ops else None


def with_legality(graph, test, rules=()):
    return context_of(graph, control=replace(bind(rules, graph), legality=checked_legality(test, graph)))


@pytest.mark.parametrize("name", HERE)
def test_every_policy_keeps_it(name):
    graph = attention_graph(16, 8)
    partition = policy_by_name(name).partition(with_legality(graph, exp_alone))
    for nodes, _ in decisions(partition):
        assert not {"exp", "reduce"} <= {graph.node_by_name[node].op for node in nodes}


def test_the_reason_is_kept_with_what_was_refused():
    graph = softmax_graph(16, 16)
    space = with_legality(graph, exp_alone).space
    reasons = {text for text in space.refused.values() if "legality" in text}
    assert reasons == {"legality 'exp_alone': one by one, please"}
    assert all(exp_alone([node for atom in c.atoms for node in atom.nodes]) is None for c in space.candidates)


def test_it_sees_each_kernels_nodes_in_order_and_never_fewer_than_two():
    seen = []

    def watching(nodes):
        seen.append(tuple(nodes))

    graph = softmax_graph(16, 16)
    with_legality(graph, watching).space  # noqa: B018 - building it asks
    assert seen
    for nodes in seen:
        places = [graph.nodes.index(node) for node in nodes]
        assert len(places) > 1
        assert places == sorted(places)
        assert not {"broadcast_in_dim", "constant"} & {node.op for node in nodes}


def chain():
    """Five elementwise steps: one atom, if nobody objects."""
    sketch = Sketch("chain")
    x = sketch.arg("f32[64]")
    for step in ("exp", "tanh", "sin", "cos", "abs"):
        x = sketch.op(step, x, name=f"a_{step}")
    return sketch.finish([x])


def at_most(number):
    return lambda nodes: "too many" if len(nodes) > number else None


def test_nodes_that_it_refuses_are_not_contracted():
    graph = chain()
    assert len(AtomGraph(graph).atoms) == 1
    apart = AtomGraph(graph, control=Control(legality=checked_legality(at_most(3), graph)))
    assert [len(atom.nodes) for atom in apart.atoms] == [1] * 5
    partition = Analytical().partition(with_legality(graph, at_most(3)))
    assert max(len(nodes) for nodes, _ in decisions(partition)) <= 3
    assert len(partition.kernels) == 2


def test_what_a_rule_forces_together_stays_together_and_the_rest_falls_apart():
    graph = chain()
    control = replace(bind([Force("tanh", "sin")], graph), legality=checked_legality(at_most(2), graph))
    atoms = AtomGraph(graph, control=control).atoms
    assert [[node.op for node in atom.nodes] for atom in atoms] == [["exp"], ["tanh", "sin"], ["cos", "abs"]]


@pytest.mark.parametrize("policy", [Unfused(), Analytical()])
def test_a_rule_that_it_contradicts_is_an_error_that_names_both(policy):
    graph = softmax_graph(16, 16)
    context = with_legality(graph, exp_alone, [Force("grown", "total")])
    with pytest.raises(LegalityError, match=r"rules: Force\('grown', 'total'\): legality 'exp_alone': one by one"):
        policy.partition(context)


@pytest.mark.parametrize("verdict", [False, True, 0, "", "  ", b"no", ["no"], math.nan])
def test_a_verdict_is_none_or_words(verdict):
    context = with_legality(softmax_graph(16, 16), lambda nodes: verdict)
    with pytest.raises(
        PluginError, match=r"legality='<lambda>' said .* of a kernel of .*; it must say None, or in words"
    ):
        context.space  # noqa: B018 - building it asks


def test_what_it_raises_names_it_and_what_it_was_asked():
    def fails(nodes):
        raise LegalityError("not like this")

    context = with_legality(softmax_graph(16, 16), fails)
    with pytest.raises(PluginError, match=r"legality='fails' raised LegalityError, asked about .*: not like this"):
        context.space  # noqa: B018 - building it asks


def test_a_long_reason_is_cut():
    context = with_legality(softmax_graph(16, 16), lambda nodes: "no " * 100_000)
    assert max(len(text) for text in context.space.refused.values()) < 1100


def test_a_plan_notes_it():
    control = Control(legality=checked_legality(exp_alone, softmax_graph(16, 16)))
    assert control.rules == ("legality 'exp_alone'",)


# ---- policies --------------------------------------------------------------------------------------------------------


def policy_that(gives, name="mine"):
    class Mine:
        def __init__(self):
            self.name = name

        def partition(self, context):
            return gives(context)

    return checked_policy(Mine())


class TestChecked(SearchPolicyContract):
    """A wrapped policy keeps the contract that it keeps by itself."""

    def policy(self):
        return policy_that(lambda context: Analytical().partition(context))


def test_a_sound_partition_passes_as_it_is():
    context = context_of(attention_graph(16, 8))
    expected = Analytical().partition(context)
    assert policy_that(lambda context: expected).partition(context) is expected


def test_what_a_policy_raises_names_it():
    policy = policy_that(lambda context: context.space.candidates[10_000])
    with pytest.raises(PluginError, match=r"policy='mine' raised IndexError: list index out of range"):
        policy.partition(context_of(softmax_graph(16, 16)))


@pytest.mark.parametrize("error", [SearchError, LegalityError])
def test_errors_that_the_contract_allows_pass(error):
    def fails(context):
        raise error("nothing fits")

    with pytest.raises(error, match=r"^nothing fits$"):
        policy_that(fails).partition(context_of(softmax_graph(16, 16)))


def test_what_is_no_partition_is_an_error_that_names_the_policy():
    for nothing in (None, [], ("a",), {}):
        with pytest.raises(
            PluginError, match=r"policy='mine' gave no partition of softmax: it is a .*, not a Partition"
        ):
            policy_that(lambda context, nothing=nothing: nothing).partition(context_of(softmax_graph(16, 16)))


def test_kernels_that_break_a_rule_are_refused_however_they_were_made():
    """A policy that forgets `context.control` cannot break it."""
    graph = softmax_graph(16, 16)

    def forgets(context):
        free = replace(context.problem, control=NO_RULES)
        return Analytical().partition(Context.of(free, context.model))

    with pytest.raises(PluginError, match=r"breaks a rule: legality 'exp_alone'"):
        policy_that(forgets).partition(with_legality(graph, exp_alone))


def test_the_builders_of_policies_agree_about_what_is_legal():
    """`require` and `try_add`, contracted or not."""
    graph = softmax_graph(16, 16)
    control = Control(legality=checked_legality(exp_alone, graph))
    for contract in (True, False):
        atoms = AtomGraph(graph, contract=contract, control=control)
        builder = SpaceBuilder(atoms, LIMITS)
        for one, other in itertools.combinations(atoms.atoms, 2):
            nodes = [node for atom in (one, other) for node in atom.nodes]
            if exp_alone(nodes) is not None:
                assert builder.try_add(frozenset((one, other))) is None
                with pytest.raises(LegalityError, match="legality 'exp_alone'"):
                    builder.require(frozenset((one, other)))
