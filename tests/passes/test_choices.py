"""Choices of the clean-up: how they are written, and that every one of them keeps what a program computes."""

from __future__ import annotations

import dataclasses
import inspect
from itertools import combinations

import numpy as np
import pytest

from autofuse.errors import ArgumentError
from autofuse.frontend.traced import trace
from autofuse.ir.digest import digest
from autofuse.ir.interpreter import interpret
from autofuse.ir.tree import flatten
from autofuse.ir.verifier import verify
from autofuse.measurement.workloads import load
from autofuse.passes.choices import DEFAULT, Choices, alternatives, read_choices, savings
from autofuse.passes.constant_folding import FoldConstants
from autofuse.passes.convolutions import MultiplyPatches
from autofuse.passes.distribution import DistributeLoops
from autofuse.passes.joinedproducts import JoinColumns, JoinSteps
from autofuse.passes.parts import SplitConcatenations
from autofuse.passes.pipeline import can_change, clean, passes_for
from autofuse.passes.productrules import SplitDepths
from autofuse.passes.splitting import SplitColumns
from autofuse.passes.transposedcopies import StoreTransposes
from autofuse.testing.graphs import random_graph, random_inputs
from autofuse.testing.rareops import ALL_FAMILIES

ALONE = alternatives()
ALL = Choices("joined", "joined", "apart", "parts", "stored", "large", "distributed", "4", "products", "products")
PAIRS = [one.joined_with(other) for one, other in combinations(ALONE, 2)]
CHOSEN = (
    *(SplitDepths(), SplitColumns(), SplitConcatenations(), JoinSteps(), JoinColumns()),
    *(DistributeLoops(), StoreTransposes(), MultiplyPatches()),
)
WORDS = [choices.label for choices in ALONE]


# ---- in words --------------------------------------------------------------------------------------------------------


def test_each_alternative_differs_from_the_defaults_in_one_choice():
    assert len(ALONE) == len(set(ALONE))
    named = {words.split("=")[0] for words in (*WORDS, *(choices.label for choices in savings()))}
    assert named == {field.name for field in dataclasses.fields(Choices)}
    assert all(words.count("=") == 1 for words in WORDS)
    assert DEFAULT.label == "default"
    assert ALL.label.count("=") == len(dataclasses.fields(Choices))


@pytest.mark.parametrize("choices", [DEFAULT, *ALONE, *PAIRS, ALL], ids=lambda choices: choices.label)
def test_words_are_read_back(choices):
    assert read_choices(choices.label) == choices


def test_joining_takes_what_either_chose():
    columns, steps = read_choices("columns=joined"), read_choices("steps = joined")
    assert columns.joined_with(steps) == read_choices("steps=joined, columns=joined")
    assert columns.joined_with(DEFAULT) == columns == DEFAULT.joined_with(columns)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colums=joined", r"'colums' is no choice of the clean-up; did you mean columns\?"),
        ("columns=wide", "columns is apart, joined or split, not 'wide'"),
        ("columns", "columns is apart, joined or split, not ''"),
        ("", "'' is no choice of the clean-up; there are columns, steps, depths"),
        ("fastest", "'fastest' is no choice of the clean-up"),
    ],
)
def test_what_is_no_choice_is_named(text, message):
    with pytest.raises(ArgumentError, match=message):
        read_choices(text)


# ---- what a program computes -----------------------------------------------------------------------------------------


def _same_results(before, after, seed):
    verify(after)
    assert [value.type for value in after.outputs] == [value.type for value in before.outputs]
    assert after.inputs == before.inputs
    arrays = random_inputs(before, np.random.default_rng(seed))
    for old, new in zip(interpret(before, *arrays), interpret(after, *arrays), strict=True):
        # sums of at most some hundred f32 of like magnitude, in another order
        np.testing.assert_allclose(new.astype(np.float64), old.astype(np.float64), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("choices", [*ALONE, ALL], ids=lambda choices: choices.label)
@pytest.mark.parametrize("seed", range(12))
def test_choices_keep_what_a_random_graph_computes(choices, seed):
    graph = random_graph(np.random.default_rng(seed), 40, families=ALL_FAMILIES)
    _same_results(graph, clean(graph, choices=choices), seed)


NETWORKS = (
    "bert_layer",
    "concat_users",
    "conv_bn_relu",
    "gru_cell",
    "lstm_sequence",
    "rms_norm_rope",
    "small_heads",
    "swiglu_mlp",
)


@pytest.mark.parametrize("name", NETWORKS)
def test_choices_keep_what_a_workload_computes(name):
    program = load(name)
    traced = trace(program.function, *program.inputs("small")).graph
    arrays = flatten(program.inputs("small"), lambda value: isinstance(value, np.ndarray))[0]
    expected = interpret(traced, *arrays)
    for choices in (*ALONE, ALL):
        after = clean(traced, choices=choices)
        verify(after)
        for old, new in zip(expected, interpret(after, *arrays), strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5, err_msg=choices.label)  # f32 sums, reordered


# ---- the graphs that they give ---------------------------------------------------------------------------------------


def test_defaults_are_the_usual_passes():
    graph = random_graph(np.random.default_rng(3), 40, families=ALL_FAMILIES)
    assert passes_for("strict", DEFAULT) == passes_for("strict")
    assert len(passes_for("strict")) == 9
    assert digest(clean(graph, choices=DEFAULT)) == digest(clean(graph))


@pytest.mark.parametrize("choices", [*ALONE, ALL], ids=lambda choices: choices.label)
@pytest.mark.parametrize("seed", range(6))
def test_choices_are_made_on_what_the_usual_passes_give(choices, seed):
    graph = random_graph(np.random.default_rng(seed), 40, families=ALL_FAMILIES)
    assert digest(clean(clean(graph), choices=choices)) == digest(clean(graph, choices=choices))


@pytest.mark.parametrize("choices", ALONE, ids=lambda choices: choices.label)
@pytest.mark.parametrize("seed", range(6))
def test_what_cannot_change_a_graph_does_not(choices, seed):
    graph = clean(random_graph(np.random.default_rng(seed), 30, families=ALL_FAMILIES))
    if not can_change(graph, choices):
        assert digest(clean(graph, choices=choices)) == digest(graph)


TOUCHED = {
    "columns=joined": ("bert_layer", "small_heads", "swiglu_mlp"),
    "columns=split": ("gru_cell", "lstm_sequence"),
    "steps=joined": ("lstm_sequence",),
    "depths=apart": ("conv_bn_relu",),
    "concatenations=parts": ("concat_users",),
}


@pytest.mark.parametrize("words", TOUCHED)
def test_the_programs_that_a_choice_is_for(words):
    for name in NETWORKS:
        program = load(name)
        graph = clean(trace(program.function, *program.inputs("small")).graph)
        assert can_change(graph, read_choices(words)) == (name in TOUCHED[words]), name


def test_a_table_is_computed_ahead_of_time_up_to_the_limit():
    def positions(x):
        angle = np.arange(256.0)[:, None] / 1e4 ** (np.arange(64.0) / 64)[None, :]
        return x * np.sin(angle)

    graph = trace(positions, np.ones((256, 64))).graph
    usual, large = clean(graph), clean(graph, choices=read_choices("tables=large"))
    assert "sin" in [node.op for node in usual.nodes]
    assert [node.op for node in large.nodes if node.op != "constant"] == ["multiply"]
    for old, new in zip(interpret(usual, np.ones((256, 64))), interpret(large, np.ones((256, 64))), strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("step", [*CHOSEN, FoldConstants(1 << 20)], ids=lambda step: step.name)
@pytest.mark.parametrize("seed", range(4))
def test_a_chosen_pass_keeps_to_the_contract_of_passes(step, seed):
    assert type(step).__dataclass_params__.frozen
    assert len(inspect.getdoc(step) or "") > 80
    graph = random_graph(np.random.default_rng(seed), 30)
    after = step.apply(graph)
    verify(after)
    assert after.inputs == graph.inputs
    assert [value.type for value in after.outputs] == [value.type for value in graph.outputs]
    for _ in range(3):
        again, after = after, step.apply(after)
    assert after is again
