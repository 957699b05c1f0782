"""Every workload program, compiled: right answers under every policy, for every layout of its arguments."""

import copy

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.tree import flatten, unflatten
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.measurement.workloads import arrays, discover

pytestmark = pytest.mark.usefixtures("on_server")  # with two threads, wherever this is

WORKLOADS = {workload.name: workload for workload in discover()}
LONG = "bert_encoder"  # twelve of bert_layer's layers
NAMES = [pytest.param(name, marks=pytest.mark.slow if name == LONG else ()) for name in sorted(WORKLOADS)]
POLICIES = ["unfused", "analytical"]


def is_array(leaf):
    return isinstance(leaf, np.ndarray | np.generic)


def mapped(change, args):
    """The arguments with every array changed that has dimensions."""
    leaves, structure = flatten(args, is_array)
    return unflatten(structure, [change(leaf) if leaf.ndim else leaf for leaf in leaves])


def agree(name, found, right, bounds):
    found, right = arrays(found), arrays(right)
    assert len(found) == len(right)
    for number, (a, b, bound) in enumerate(zip(found, right, bounds, strict=True)):
        check(f"{name}[{number}]", a, b, bound)


def bounds_for(plan, args):
    graph = plan.graph
    given = [np.ascontiguousarray(array).reshape(array.shape) for array in arrays(args)]
    bounds = bounds_of(graph, given)
    first = len(graph.outputs) - len(plan.document.writebacks)
    written = dict(zip(plan.document.writebacks, bounds[first:], strict=True))
    return bounds[:first], [written.get(number) for number in range(len(given))]


@pytest.fixture(scope="module")
def plans():
    """One plan per program and policy, made when first asked for."""
    made = {}

    def plan(name, policy):
        if (name, policy) not in made:
            workload = WORKLOADS[name]
            made[name, policy] = af.compile(workload.function, *workload.inputs("small", 0), policy=policy, threads=2)
        return made[name, policy]

    return plan


@pytest.fixture(scope="module")
def bounds(plans):
    """By how much results, and arguments after a call, may differ where `given` is given."""
    made = {}

    def bounds(name, policy="analytical"):
        if (name, policy) not in made:
            made[name, policy] = bounds_for(plans(name, policy), given(name))
        return made[name, policy]

    return bounds


def given(name):
    """Other arguments than those that plans are made for."""
    return WORKLOADS[name].inputs("small", 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("policy", POLICIES)
def test_results_and_written_arguments_are_those_of_numpy(plans, bounds, name, policy):
    workload = WORKLOADS[name]
    theirs, ours = given(name), given(name)
    plan = plans(name, policy)
    results, arguments = bounds(name, policy)
    expected = workload.function(*theirs)
    agree(name, plan(*ours), expected, results)
    agree(f"{name} arguments", ours, theirs, arguments)


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_means_what_the_plan_computes(plans, bounds, name):
    workload = WORKLOADS[name]
    args = given(name)
    results = af.interpret(af.trace(workload.function, *args), *arrays(args))
    plan = plans(name, "analytical")
    allowed, _ = bounds(name)
    agree(name, plan(*args), tuple(results[: len(allowed)]), allowed)


def fortran(array):
    return np.asfortranarray(array)


def strided(array):
    """Every other element of a larger array."""
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def reversed_twice(array):
    """Negative strides."""
    return np.flip(np.ascontiguousarray(np.flip(array)))


@pytest.mark.parametrize("layout", [fortran, strided, reversed_twice])
@pytest.mark.parametrize("name", NAMES)
def test_arguments_of_any_layout(plans, bounds, name, layout):
    workload = WORKLOADS[name]
    theirs, ours = given(name), mapped(layout, given(name))
    plan = plans(name, "analytical")
    results, arguments = bounds(name)
    expected = workload.function(*theirs)
    agree(name, plan(*ours), expected, results)
    agree(f"{name} arguments", ours, theirs, arguments)
    dense = all(array.flags.c_contiguous and array.flags.aligned for array in arrays(ours))
    assert bool(plan.copied_arguments) is not dense


@pytest.mark.parametrize("name", NAMES)
def test_read_only_arguments(plans, bounds, name):
    workload = WORKLOADS[name]
    args = given(name)
    expected = workload.function(*copy.deepcopy(args))
    plan = plans(name, "analytical")

    def freeze(array):
        array = array.copy()
        array.flags.writeable = False
        return array

    frozen = mapped(freeze, args)
    if plan.document.writebacks:
        with pytest.raises(af.AutofuseError, match="read-only"):
            plan(*frozen)
    else:
        agree(name, plan(*frozen), expected, bounds(name)[0])


@pytest.mark.parametrize("name", NAMES)
def test_nan_and_infinity_go_where_numpy_sends_them(plans, name):
    workload = WORKLOADS[name]

    def spoiled(array):
        array = np.array(array)
        if array.dtype.kind == "f" and array.size >= 8:
            flat = array.reshape(-1)
            flat[1], flat[array.size // 2], flat[-2] = np.nan, np.inf, -np.inf
        return array

    theirs, ours = mapped(spoiled, workload.inputs("small", 5)), mapped(spoiled, workload.inputs("small", 5))
    with np.errstate(all="ignore"):
        expected = workload.function(*theirs)
    found = plans(name, "analytical")(*ours)
    for a, b in zip(arrays(found), arrays(expected), strict=True):
        if b.dtype.kind == "f":
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        else:
            np.testing.assert_array_equal(a, b)
