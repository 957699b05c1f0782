"""`jit`: a plan per kind of call, and plans from a store."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import autofuse as af
from autofuse.api import compiling, tunedplans
from autofuse.api import jitted as jitted_module
from autofuse.api import tuning as tuning_module
from autofuse.errors import ArgumentError, LeftToNumpyWarning, PlanError, TraceError


def scale(x, factor):
    """Scaled by a number."""
    return x * factor


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def plans_of(function):
    return list(function._plans)


# ---- a plan per kind of call -----------------------------------------------------------------------------------------


def test_a_jitted_function_keeps_its_name_and_its_results():
    jitted = af.jit(scale)
    assert (jitted.__name__, jitted.__doc__) == ("scale", "Scaled by a number.")
    np.testing.assert_array_equal(jitted(X, 2), X * 2)


def test_each_shape_dtype_structure_and_static_value_has_a_plan():
    jitted = af.jit(scale)
    calls = [(X, 2), (X, 3), (X[:1].copy(), 2), (X.astype(np.float64), 2), (X, X), (X, 2.0), (X, True)]
    for args in calls * 2:
        result = jitted(*args)
        expected = scale(*args)
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == expected.dtype
    assert len(plans_of(jitted)) == len(calls)


def test_a_call_like_the_last_one_is_not_looked_up(monkeypatch):
    jitted = af.jit(scale)
    for _ in range(2):  # made, then found
        jitted(X, X)
    monkeypatch.setattr(jitted_module, "key_of", lambda _args: pytest.fail("it was looked up"))
    np.testing.assert_array_equal(jitted(X, X + 1), X * (X + 1))
    with pytest.raises(pytest.fail.Exception):
        jitted(X[:1].copy(), X)


def add_one(x, y):
    x += 1  # in place if that is an array, else another number
    return x + y


@pytest.mark.parametrize("seed", range(3))
def test_calls_in_any_order_are_told_apart(seed):
    rng = np.random.default_rng(seed)
    jitted = af.jit(add_one)
    kinds = [
        lambda: (np.float32(3), 2),
        lambda: (np.array(3, np.float32), 2),
        lambda: (np.array(3, np.float32), 2.0),
        lambda: (np.array(3, np.float32), np.float32(2)),
        lambda: (np.array(3, np.float32), np.array(2, np.float32)),
        lambda: (X.copy(), 2),
        lambda: (X.copy(), X),
        lambda: (np.asfortranarray(X), X),
        lambda: (X.astype(np.float64), X),
        lambda: (np.repeat(X, 2, axis=0)[::2], X),
    ]
    for number in rng.integers(len(kinds), size=60):
        theirs, ours = kinds[number](), kinds[number]()
        expected, result = add_one(*theirs), jitted(*ours)
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert (type(result), result.dtype) == (type(expected), expected.dtype)


def test_an_array_of_another_layout_needs_no_plan_of_its_own():
    jitted = af.jit(scale)
    np.testing.assert_array_equal(jitted(np.asfortranarray(X), 2), X * 2)
    jitted(X, 2)
    assert len(plans_of(jitted)) == 1


def test_the_plan_of_a_call_can_be_looked_into():
    jitted = af.jit(scale)
    plan = jitted.plan(X, 2)
    assert plan is jitted.plan(X, 2)
    assert "scale" in plan.explain()


def test_arguments_are_written_as_numpy_would():
    @af.jit
    def update(x):
        x += 1
        return x.sum()

    x = X.copy()
    assert update(x) == (X + 1).sum()
    np.testing.assert_array_equal(x, X + 1)


def test_jitted_functions_call_one_another():
    inner = af.jit(scale)

    @af.jit
    def outer(x):
        return inner(x, 2) + 1

    np.testing.assert_array_equal(outer(X), X * 2 + 1)


def test_threads_share_the_plan_of_their_first_call(monkeypatch):
    made = []
    real = compiling.compile
    monkeypatch.setattr(compiling, "compile", lambda *args: made.append(args) or real(*args))
    jitted = af.jit(scale)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: jitted(X, 2), range(12)))
    assert all((result == X * 2).all() for result in results)
    assert len(made) == 1


def test_a_wrong_on_miss_is_refused():
    with pytest.raises(ArgumentError, match='on_miss=\'retry\': give "compile", "error" or "tune"'):
        af.jit(scale, on_miss="retry")


def test_an_argument_that_is_no_array_is_refused():
    with pytest.raises(ArgumentError, match=r"value\[1\] is a builtins.slice"):
        af.jit(lambda x, part: x[part])(X, slice(0, 1))


# ---- a store ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def tuning(monkeypatch):
    """Replaces tuning by compiling, and lists what was tuned."""
    tuned = []

    def tune(fn, *args, budget=60, **options):
        tuned.append((args, {"budget": budget, **options}))
        return compiling.compile(fn, *args, **options)

    monkeypatch.setattr(tuning_module, "tune", tune)
    return tuned


def test_a_stored_plan_is_used_without_a_word(tmp_path):
    jitted = af.jit(store=tmp_path / "plans")(scale)
    jitted.store.put(af.compile(scale, X, 2).document)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(jitted(X, 2), X * 2)
        jitted(X, 2)
    assert (jitted.store.stats().hits, jitted.store.stats().misses) == (1, 0)


def test_a_stored_plan_serves_a_function_with_other_names(tmp_path):
    def other(y):
        return {"scaled": y * 2}

    jitted = af.jit(other, store=tmp_path)
    jitted.store.put(af.compile(scale, X, 2).document)
    found = jitted(X)
    np.testing.assert_array_equal(found["scaled"], X * 2)
    assert jitted.store.stats().hits == 1
    with pytest.raises(ArgumentError, match="y: needs shape"):
        jitted.plan(X)(X[:1])


def steps(x, w):
    return [x[t] @ w for t in range(x.shape[0])]


def test_the_plan_of_a_variant_is_found_by_the_program(tmp_path):
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    document = af.compile(steps, X, w, variants="steps=joined").document
    assert document.program_digest == af.compile(steps, X, w).document.graph_digest != document.graph_digest
    jitted = af.jit(steps, store=tmp_path, on_miss="error")
    jitted.store.put(document)
    for found, expected in zip(jitted(X, w), steps(X, w), strict=True):
        np.testing.assert_array_equal(found, expected)  # small integers
    assert jitted.plan(X, w).document.variant == document.variant


@pytest.mark.parametrize("choices", ["columns=joined", "of another version"])
def test_a_plan_that_is_no_such_variant_of_the_program_is_a_miss(tmp_path, choices):
    w = np.ones((3, 4), np.float32)
    document = af.compile(steps, X, w, variants="steps=joined").document
    jitted = af.jit(steps, store=tmp_path, on_miss="error")
    jitted.store.put(replace(document, variant=replace(document.variant, choices=choices)))
    with pytest.raises(PlanError, match="no plan for these arguments"):
        jitted(X, w)


def test_a_miss_is_compiled_with_one_warning_per_key(tmp_path):
    jitted = af.jit(scale, store=tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # as users have it: a text is shown once per line
        for x in (X, X, X[:1].copy()):
            jitted(x, 2)
        jitted.plan(X[:, :1].copy(), 2)
    assert [str(w.message).replace(str(tmp_path), "plans") for w in caught] == [
        "autofuse: no tuned plan for scale(f32[2,3]) in plans (compile)",
        "autofuse: no tuned plan for scale(f32[1,3]) in plans (compile)",
        "autofuse: no tuned plan for scale(f32[2,1]) in plans (compile)",
    ]
    assert {w.filename for w in caught} == {__file__}
    assert jitted.store.stats().misses == 3
    assert list(tmp_path.iterdir()) == []


def test_a_miss_may_be_an_error(tmp_path):
    jitted = af.jit(scale, store=tmp_path, on_miss="error")
    with pytest.raises(
        PlanError, match=r"scale: no plan for these arguments in .*; tune one, or say on_miss='compile'"
    ):
        jitted(X, 2)


def test_a_miss_may_be_tuned_and_is_found_the_next_time(tmp_path, tuning):
    with pytest.warns(UserWarning, match=r"\(tune\)"):
        af.jit(scale, store=tmp_path, on_miss="tune")(X, 2)
    assert len(tuning) == 1
    later = af.jit(scale, store=tmp_path, on_miss="error")
    np.testing.assert_array_equal(later(X, 2), X * 2)
    assert len(tuning) == 1


def test_a_plan_whose_tuning_was_interrupted_is_not_kept(tmp_path, monkeypatch):
    def interrupted(function, *args):
        plan = compiling.compile(function, *args)
        return af.Plan(tunedplans._interrupted(plan.document, None))

    monkeypatch.setattr(tuning_module, "tune", interrupted)
    jitted = af.jit(scale, store=tmp_path, on_miss="tune")
    with pytest.warns(UserWarning, match="tune"), pytest.raises(KeyboardInterrupt):
        jitted(X, 2)
    assert list(tmp_path.iterdir()) == []


def test_a_tuned_plan_that_cannot_be_kept_is_used_all_the_same(tmp_path, tuning, monkeypatch):
    jitted = af.jit(scale, store=tmp_path, on_miss="tune")

    def full(document):
        raise PlanError("the disk is full")

    monkeypatch.setattr(jitted.store, "put", full)
    with pytest.warns(UserWarning, match="is not kept: the disk is full"):
        np.testing.assert_array_equal(jitted(X, 2), X * 2)
    jitted(X, 2)
    assert len(tuning) == 1


def test_a_damaged_entry_is_a_miss(tmp_path, tuning):
    with pytest.warns(UserWarning, match="no tuned plan"):
        af.jit(scale, store=tmp_path, on_miss="tune")(X, 2)
    (entry,) = tmp_path.iterdir()
    entry.write_text("{")
    later = af.jit(scale, store=tmp_path)
    with pytest.warns(UserWarning, match="no tuned plan"):
        np.testing.assert_array_equal(later(X, 2), X * 2)
    assert later.store.stats().invalid == 1


# ---- how plans are made ----------------------------------------------------------------------------------------------


def normalise(x):
    e = np.exp(x)
    return e / e.sum()


def apart(plan):
    """Whether no kernel has both the exponentials and the quotients."""
    ops = [{plan.graph.node_by_name[name].op for name in kernel.nodes} for kernel in plan.kernels]
    return not any({"exp", "divide"} <= found for found in ops)


def never_both(nodes):
    """A legality."""
    return "not both" if {"exp", "divide"} <= {node.op for node in nodes} else None


WISHES = [{"rules": [af.Forbid("exp", "divide")]}, {"legality": never_both}]


@pytest.mark.parametrize("wish", WISHES)
def test_plans_are_made_as_asked_for(wish):
    assert not apart(af.jit(normalise).plan(X))
    jitted = af.jit(normalise, **wish)
    assert apart(jitted.plan(X))
    np.testing.assert_allclose(jitted(X), normalise(X), rtol=1e-5)


def test_policy_and_threads_are_those_of_the_decorator():
    @af.jit(policy="unfused", threads=1)
    def scaled(x):
        return np.exp(x) * 2

    plan = scaled.plan(X)
    assert (len(plan.kernels), plan.threads) == (2, 1)


def test_a_call_that_no_kernel_computes_is_left_to_numpy_with_one_warning():
    def turned(x):
        return np.linalg.inv(x) + x

    x = np.array([[2.0, 1.0], [1.0, 3.0]])
    with pytest.raises(TraceError):
        af.jit(turned, on_unsupported="error")(x)
    jitted = af.jit(turned)
    with pytest.warns(
        LeftToNumpyWarning, match=r"turned: calls left to NumPy.*np\.linalg\.inv at .*test_jit"
    ) as caught:
        jitted(x)
    assert [warning.filename for warning in caught] == [__file__]
    np.testing.assert_allclose(jitted(x), turned(x), rtol=1e-12)


@pytest.mark.parametrize("store", [False, True])
def test_what_has_longer_numbers_runs_through_numpy(tmp_path, store):
    @af.jit(store=tmp_path if store else None)
    def power(x):
        return np.abs(np.fft.rfft(x).astype(np.clongdouble)) ** 2

    with pytest.warns(LeftToNumpyWarning, match="power runs through NumPy as it is written") as caught:
        power(X)
    assert len(caught) == 1
    np.testing.assert_array_equal(power(X), power.function(X))


@pytest.mark.parametrize("wish", [*WISHES, {"max_memory": 1 << 20}])
def test_a_stored_plan_that_keeps_what_is_asked_for_is_used(tmp_path, wish):
    jitted = af.jit(normalise, store=tmp_path, on_miss="error", **wish)
    jitted.store.put(af.compile(normalise, X, policy="unfused").document)
    assert apart(jitted.plan(X))


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (WISHES[0], r"Forbid\('exp', 'divide'\) keeps %\S+ and %\S+ apart"),
        (WISHES[1], "legality 'never_both': not both"),
        ({"rules": [af.Pin("exp", "reduce", "divide", schedule={"unroll": 2})]}, "pins another schedule for kernel"),
        ({"max_memory": 10}, "it takes more than max_memory=10 bytes"),
    ],
)
def test_a_stored_plan_that_does_not_is_a_miss_with_the_reason(tmp_path, wish, why):
    jitted = af.jit(normalise, store=tmp_path, on_miss="error", **wish)
    whole = af.compile(normalise, X, rules=[af.Pin("exp", "reduce", "divide")]).document
    jitted.store.put(whole)
    with pytest.raises(PlanError, match=f"no plan for these arguments in .* that keeps to what was asked for: .*{why}"):
        jitted(X)


def renamed(z):
    grown = np.exp(z)
    return grown / grown.sum()


@pytest.fixture
def stored(tmp_path):
    """A store that holds `normalise` as one kernel."""
    jitted = af.jit(normalise, store=tmp_path)
    return jitted.store.put(af.compile(normalise, X, rules=[af.Pin("exp", "reduce", "divide")]).document)


def test_rules_are_about_the_function_at_hand_whatever_names_the_stored_plan_has(stored):
    fits = af.jit(renamed, store=stored.parent, on_miss="error", rules=[af.Pin("grown", "reduce", "divide")])
    np.testing.assert_allclose(fits(X), normalise(X), rtol=1e-5)
    assert fits.store.stats().hits == 1
    breaks = af.jit(renamed, store=stored.parent, on_miss="error", rules=[af.Forbid("grown", "divide")])
    with pytest.raises(PlanError, match="keeps %"):
        breaks(X)
    assert "keeps %" in breaks.store.stats().reasons[0]
    with pytest.raises(ArgumentError, match="'grwn' is no op, node or source line of the program; did you mean grown"):
        af.jit(renamed, store=stored.parent, rules=[af.Pin("grwn")])(X)


def test_a_name_that_is_another_nodes_in_the_stored_plan_means_the_node_at_hand(tmp_path):
    def swapped(z):
        share = np.exp(z)
        e = share / share.sum()
        return e * 2

    def plain(x):
        e = np.exp(x)
        share = e / e.sum()
        return share * 2

    jitted = af.jit(swapped, store=tmp_path, on_miss="error", rules=[af.Pin("share", "reduce")])
    jitted.store.put(af.compile(plain, X, rules=[af.Pin("e", "reduce")]).document)
    np.testing.assert_allclose(jitted(X), plain(X), rtol=1e-5)


def test_a_plan_that_others_may_want_is_not_replaced(stored, tuning):
    before = stored.read_bytes()
    jitted = af.jit(normalise, store=stored.parent, on_miss="tune", rules=[af.Forbid("exp", "divide")])
    with pytest.warns(UserWarning, match="is not kept: its place has one that others may want"):
        assert apart(jitted.plan(X))
    assert len(tuning) == 1
    assert stored.read_bytes() == before


def test_a_miss_is_tuned_as_asked_for(tmp_path, tuning):
    rules = [af.Forbid("exp", "divide")]
    with pytest.warns(UserWarning, match=r"\(tune\)"):
        plan = af.jit(normalise, store=tmp_path, on_miss="tune", budget=5, rules=rules).plan(X)
    assert apart(plan)
    assert [options for _, options in tuning] == [{"budget": 5, "rules": rules}]
    assert apart(af.jit(normalise, store=tmp_path, on_miss="error", rules=rules).plan(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_miss": "tune"}, "on_miss='tune' needs store=, a folder"),
        ({"budget": 5}, 'budget= is for tuning: give on_miss="tune" too'),
        ({"policy": "measured"}, 'policy="measured" needs measurements: give on_miss="tune" too'),
    ],
)
def test_options_that_say_nothing_together_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        af.jit(normalise, **options)


@pytest.mark.parametrize("stored", [False, True], ids=["a miss", "a hit"])
def test_calls_left_to_numpy_are_said_once_with_a_store_too(tmp_path, stored):
    def turned(x):
        return np.linalg.inv(x) + x

    x = np.array([[2.0, 1.0], [1.0, 3.0]])
    jitted = af.jit(store=tmp_path)(turned)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if stored:
            jitted.store.put(af.compile(turned, x).document)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jitted(x)
    assert [str(w.message).count("calls left to NumPy") for w in caught].count(1) == 1
    assert len(caught) == (1 if stored else 2)  # a miss is one more
