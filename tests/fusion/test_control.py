"""Rules of users: what they name, what they ask for, and what cannot be."""

import pytest

from autofuse.errors import ArgumentError, LegalityError
from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.rulesfile import read_rules
from autofuse.fusion.userrules import Forbid, Force, Pin, bind
from autofuse.testing.sketches import Sketch, attention_graph, diamond_graph, softmax_graph


def names(nodes):
    return {node.name for node in nodes}


def nodes_of(graph, *wanted):
    return frozenset(graph.node_by_name[name] for name in wanted)


# ---- patterns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["grown", "%grown", "gr*", "exp"])
def test_a_pattern_is_a_node_an_op_or_a_shell_pattern(pattern):
    graph = softmax_graph()
    control = bind([Forbid(pattern, "total")], graph)
    (apart,) = control.apart
    assert names(apart.first) == {"grown"}


def test_a_misspelt_name_is_an_error_that_offers_the_right_one():
    with pytest.raises(ArgumentError, match=r"Force\('grwn', 'total'\).*did you mean grown\?"):
        bind([Force("grwn", "total")], softmax_graph())


def test_views_cannot_be_named():
    sketch = Sketch("view")
    x = sketch.arg("f32[8,4]")
    turned = sketch.emit("transpose", [x], permutation=(1, 0), name="turned")
    graph = sketch.finish([sketch.op("exp", turned, name="grown")])
    with pytest.raises(ArgumentError, match="turned is a view or a constant"):
        bind([Force("turned", "grown")], graph)


# ---- what they ask for -----------------------------------------------------------------------------------------------


def test_force_joins_what_reads_one_another():
    control = bind([Force("reduce", "exp")], softmax_graph())
    # `peak` feeds `shifted`, not `grown`; `total` reads `grown`
    (together,) = control.together
    assert names(together.nodes) == {"grown", "total"}
    assert control.refusal(nodes_of(softmax_graph(), "grown")) is None  # nodes of another graph are no business of it


def test_a_kernel_without_all_that_is_forced_together_is_refused():
    graph = softmax_graph()
    control = bind([Force("grown", "total")], graph)
    assert "wants %total" in control.refusal(nodes_of(graph, "grown", "shifted"))
    assert control.refusal(nodes_of(graph, "grown", "total", "shifted")) is None


def test_force_may_join_two_that_read_nothing_of_one_another():
    graph = diamond_graph()
    (together,) = bind([Force("columns", "share")], graph).together
    assert names(together.nodes) == {"columns", "share"}


def test_force_of_many_that_do_not_meet_is_an_error():
    with pytest.raises(ArgumentError, match="name one node each"):
        bind([Force("reduce", "reduce")], softmax_graph())


def test_forbid_keeps_any_of_one_from_any_of_the_other():
    graph = softmax_graph()
    control = bind([Forbid("reduce", "exp")], graph)
    assert control.refusal(nodes_of(graph, "peak", "grown")) == "Forbid('reduce', 'exp') keeps %peak and %grown apart"
    assert control.refusal(nodes_of(graph, "peak", "total")) is None


def test_forbid_of_one_pattern_twice_keeps_its_nodes_from_each_other():
    graph = softmax_graph()
    control = bind([Forbid("reduce", "reduce")], graph)
    assert control.refusal(nodes_of(graph, "peak", "total")) is not None
    assert control.refusal(nodes_of(graph, "peak")) is None


def test_pin_takes_all_and_nothing_else():
    graph = softmax_graph()
    control = bind([Pin("shifted", "grown")], graph)
    assert "wants %grown" in control.refusal(nodes_of(graph, "shifted"))
    assert "has no place for %total" in control.refusal(nodes_of(graph, "shifted", "grown", "total"))
    assert control.refusal(nodes_of(graph, "shifted", "grown")) is None


def test_pin_may_hold_a_schedule():
    graph = softmax_graph()
    control = bind([Pin("grown", schedule={"unroll": 2})], graph)
    assert control.schedule_of(nodes_of(graph, "grown")) == {"unroll": 2}
    assert control.schedule_of(nodes_of(graph, "total")) is None


# ---- contradictions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules",
    [
        [Force("grown", "total"), Forbid("exp", "total")],
        [Pin("grown"), Force("grown", "total")],
        [Pin("grown", "total"), Pin("total", "share")],
        [Pin("grown", schedule={"unroll": 1}), Pin("exp", schedule={"unroll": 2})],
    ],
    ids=["force and forbid", "pin and force", "pin and pin", "schedules"],
)
def test_rules_that_contradict_one_another_are_an_error(rules):
    with pytest.raises(ArgumentError, match="contradict one another"):
        bind(rules, softmax_graph())


# ---- atoms -----------------------------------------------------------------------------------------------------------


def atoms_of(graph, *rules, contract=True):
    atoms = AtomGraph(graph, contract=contract, control=bind(rules, graph))
    return [names(atom.nodes) for atom in atoms.atoms]


@pytest.mark.parametrize("contract", [True, False])
def test_what_is_forced_together_is_one_atom(contract):
    assert any(
        {"grown", "total"} <= atom for atom in atoms_of(softmax_graph(), Force("grown", "total"), contract=contract)
    )


def test_nothing_joins_a_node_of_a_rule_by_itself():
    assert {"shifted", "grown"} in atoms_of(softmax_graph())
    assert {"grown"} in atoms_of(softmax_graph(), Pin("grown"))
    assert {"shifted"} in atoms_of(softmax_graph(), Pin("grown"))


def test_atoms_stay_in_an_order_in_which_they_can_run():
    graph = attention_graph()
    atoms = AtomGraph(graph, contract=False, control=bind([Force("scores", "peak"), Force("share", "context")], graph))
    assert [atom.number for atom in atoms.atoms] == list(range(len(atoms.atoms)))
    assert all(maker.number < atom.number for atom in atoms.atoms for maker in atoms.predecessors[atom])


def test_what_lies_between_joins_what_is_forced():
    (together,) = bind([Force("peak", "total")], softmax_graph()).together
    assert names(together.nodes) == {"peak", "shifted", "grown", "total"}


def test_what_lies_between_sets_that_become_one_joins_them():
    """`y` reads nothing of `m`, nor the other way round, until `z` has brought them together; then `w` is between."""
    sketch = Sketch("between")
    x = sketch.arg("f32[64]")
    y = sketch.op("multiply", x, x, name="y")
    z = sketch.op("add", y, x, name="z")
    w = sketch.op("tanh", y, name="w")
    graph = sketch.finish([sketch.op("multiply", z, w, name="m")])
    (together,) = bind([Force("multiply", "add")], graph).together
    assert names(together.nodes) == {"y", "z", "w", "m"}
    assert together.rule == "Force('multiply', 'add')"


@pytest.mark.parametrize("wrong", [("exp", "reduce"), "rules.toml", None])
def test_what_is_no_rule_is_an_error(wrong):
    with pytest.raises(ArgumentError, match="is no Force, Forbid or Pin"):
        bind([wrong], softmax_graph())


@pytest.mark.parametrize("rule", [Force(3, "grown"), Forbid("grown", None), Pin(1.5)])
def test_a_pattern_that_is_no_text_is_an_error(rule):
    with pytest.raises(ArgumentError, match="must be a text"):
        bind([rule], softmax_graph())


def test_a_path_that_leaves_what_is_pinned_and_comes_back_is_refused():
    graph = softmax_graph()
    with pytest.raises(LegalityError, match=r"Pin\('peak', 'total'\): a path leaves these nodes and comes back"):
        AtomGraph(graph, contract=False, control=bind([Pin("peak", "total")], graph))


def test_a_percent_sign_means_the_node_and_not_the_op():
    sketch = Sketch("names")
    x = sketch.arg("f32[8]")
    graph = sketch.finish([sketch.op("exp", sketch.op("exp", x, name="other"), name="exp")])

    def matched(pattern):
        return names(bind([Pin(pattern)], graph).together[0].nodes)

    assert matched("%exp") == {"exp"}
    assert matched("exp") == {"exp", "other"}


# ---- files -----------------------------------------------------------------------------------------------------------


def test_a_file_holds_the_same_rules(tmp_path):
    file = tmp_path / "rules.toml"
    file.write_text(
        '[[force]]\nnodes = ["a", "b"]\n[[forbid]]\nnodes = ["c", "d"]\n'
        '[[pin]]\nnodes = ["e"]\nschedule = {unroll = 2}\n'
    )
    assert read_rules(file) == (Force("a", "b"), Forbid("c", "d"), Pin("e", schedule={"unroll": 2}))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[force]\n", "is no TOML"),
        ('[[merge]]\nnodes = ["a", "b"]\n', r"\[\[merge\]\] is unknown"),
        ('[force]\nnodes = ["a", "b"]\n', "with two brackets"),
        ('[[force]]\nnodes = ["a"]\n', r"\[\[force\]\] number 1 needs two names, got 1"),
        ("[[pin]]\nnodes = [3]\n", "names in quotes"),
        ('[[forbid]]\nnode = ["a", "b"]\n', "may have nodes"),
        ('[[pin]]\nnodes = ["a"]\nschedule = 3\n', "schedule must be a table"),
    ],
)
def test_bad_files_are_errors_that_say_where(tmp_path, text, complaint):
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=complaint):
        read_rules(file)


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(ArgumentError, match="cannot be read"):
        read_rules(tmp_path / "none.toml")
