"""`af.random` in and outside traced functions: fused draws, loops, counters beyond 32 bits, bad arguments."""

import re

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import AutofuseError
from autofuse.ir.optable import lookup
from autofuse.passes.pipeline import clean

KEY = af.random.key(42)


def noisy(key, x):
    keys = af.random.split(key, 3)
    noise = af.random.normal(keys[0], x.shape) * np.float32(0.1)
    kept = af.random.bernoulli(keys[1], 0.75, x.shape)
    picked = af.random.randint(keys[2], x.shape, 0, 10)
    return np.where(kept, x + noise, picked.astype(np.float32)).sum(1)


@pytest.mark.parametrize("policy", ["unfused", "analytical"])
def test_draws_fuse_with_what_uses_them(policy):
    x = np.random.default_rng(0).standard_normal((13, 37), np.float32)
    plan = af.compile(noisy, KEY, x, policy=policy)
    np.testing.assert_allclose(plan(KEY, x), noisy(KEY, x), rtol=1e-5)
    other = af.random.key(43)
    np.testing.assert_allclose(plan(other, x), noisy(other, x), rtol=1e-5)


def test_draws_and_all_that_uses_them_can_be_one_kernel():
    x = np.random.default_rng(0).standard_normal((13, 37), np.float32)
    graph = clean(af.trace(noisy, KEY, x), "strict")
    plan = af.compile(noisy, KEY, x, partition=[[node.name for node in graph.nodes]])
    assert len(plan.kernels) == 1
    np.testing.assert_allclose(plan(KEY, x), noisy(KEY, x), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("shape", [(), (1,), (0, 4), (3, 5, 7), (1025,)])
def test_a_kernel_draws_what_a_call_at_once_draws(shape, dtype):
    plan = af.compile(lambda key: af.random.bits(key, shape, dtype), KEY)
    found, right = plan(KEY), af.random.bits(KEY, shape, dtype)
    assert found.dtype == right.dtype == dtype
    np.testing.assert_array_equal(found, right)


def test_counters_go_on_beyond_32_bits():
    shape = (1 << 17, 1 << 16)  # never made: one element is asked for
    plan = af.compile(lambda key: af.random.bits(key, shape)[70000, 5], KEY)
    words = [np.full(1, word, np.uint32) for word in (*KEY, *divmod(70000 * shape[1] + 5, 1 << 32))]
    (right,) = lookup("threefry2x32").evaluate(words, {"word": "THREEFRY_MIXED"}, ())
    assert words[2] == 1
    assert plan(KEY) == right[0]


def test_a_chain_of_keys_in_a_loop_gives_what_python_gives():
    def walk(key):
        def step(carry, _):
            key, total = carry
            key, sub = af.random.split(key)
            return (key, total + af.random.uniform(sub, (5,))), af.random.randint(af.random.fold_in(sub, 1), (), 0, 100)

        return af.scan(step, (key, np.zeros(5, np.float32)), None, length=6)

    plan = af.compile(walk, KEY)
    (key, total), rows = plan(KEY)
    (right_key, right_total), right_rows = walk(KEY)
    np.testing.assert_array_equal(key, right_key)
    np.testing.assert_array_equal(total, right_total)
    np.testing.assert_array_equal(rows, right_rows)


def test_keys_come_from_seeds_known_and_traced():
    np.testing.assert_array_equal(af.random.key(-1), np.array([0, 2**32 - 1], np.uint32))
    np.testing.assert_array_equal(af.random.key(2**32 + 7), np.array([0, 7], np.uint32))
    plan = af.compile(lambda seed: af.random.uniform(af.random.key(seed), (4,)), np.int64(5))
    np.testing.assert_array_equal(plan(np.int64(9)), af.random.uniform(af.random.key(9), (4,)))


def test_results_at_once_are_numpys():
    assert isinstance(af.random.uniform(KEY), np.float32)
    assert type(af.random.split(KEY)) is np.ndarray


def test_a_traced_draw_from_a_known_key_is_known():
    def chosen(x):
        return x + 1 if af.random.randint(af.random.key(1), (), 5, 6) == 5 else x - 1

    graph = af.trace(chosen, np.float32(1))
    np.testing.assert_array_equal(af.interpret(graph, np.float32(1))[0], 2)


def test_probabilities_beyond_their_range_are_never_and_always():
    assert not af.random.bernoulli(KEY, -0.5, (50,)).any()
    assert af.random.bernoulli(KEY, 1.5, (50,)).all()


BAD = [
    (lambda r: r.uniform(np.zeros(3, np.uint32)), r"argument key must be one key, u32\[2\], got u32\[3\]"),
    (lambda r: r.uniform(np.zeros(2, np.int32)), r"argument key must be one key, u32\[2\], got i32\[2\]"),
    (lambda r: r.split(np.zeros((5, 2), np.uint32)), r"got u32\[5,2\]\s[\s\S]*instead: one of several keys: keys\[i\]"),
    (lambda r: r.bits(KEY, (3, -1)), r"argument shape must have no negative extents, got \(3, -1\)"),
    (lambda r: r.bits(KEY, (2.5,)), r"argument shape must be a tuple of whole numbers"),
    (lambda r: r.bits(KEY, (2,), np.int32), "argument dtype must be of kind uint, got int32"),
    (lambda r: r.uniform(KEY, (2,), np.int32), "argument dtype must be of kind float, got int32"),
    (lambda r: r.randint(KEY, (2,), 0, 9, np.float32), "argument dtype must be of kind int or uint, got float32"),
    (
        lambda r: r.uniform(KEY, (2,), minval=np.zeros(3, np.float32)),
        r"argument minval must be broadcast to shape=\(2,\)",
    ),
    (lambda r: r.bernoulli(KEY, 1, (2,)), "argument p must have a float dtype, got int64"),
    (lambda r: r.bernoulli(KEY, 0.5, (2,), "middle"), "argument mode must be one of 'high', 'low', got 'middle'"),
    (lambda r: r.categorical(KEY, np.zeros(3, np.int32)), "argument logits must have a float dtype"),
    (lambda r: r.categorical(KEY, np.zeros(3, np.float32), shape=(4,), replace=False), "4 different places of 3"),
    (lambda r: r.key(0.5), r"argument seed must be a whole number, got f64\[\]"),
    (lambda r: r.fold_in(KEY, np.zeros(2, np.int32)), r"argument data must be a whole number, got i32\[2\]"),
    (lambda r: r.split(KEY, -1), "argument num must not be negative, got -1"),
    (lambda r: r.permutation(KEY, 2.5), r"argument x must be an int or an array, got f64\[\]"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments(call, message):
    with pytest.raises(AutofuseError, match=message):
        call(af.random)
    with pytest.raises(AutofuseError, match=message):
        af.trace(lambda x: x + call(af.random), np.float32(0))


def lines(message):
    """The numbers of the lines of this file that a warning names."""
    return [int(found) for found in re.findall(r"test_random\.py:(\d+)", str(message))]


def test_a_key_drawn_from_twice_is_a_warning_with_both_lines():
    def twice(key):
        a = af.random.uniform(key, (3,))
        b = af.random.normal(key, (3,))
        return a + b

    with pytest.warns(af.KeyReuseWarning, match=r"normal draws from a key that af.random.uniform drew from") as found:
        af.trace(twice, KEY)
    first = twice.__code__.co_firstlineno
    assert [lines(warning.message) for warning in found] == [[first + 1, first + 2]]


def test_equal_computations_are_one_key():
    def twice(key):
        return af.random.bits(af.random.split(key)[0]) + af.random.bits(af.random.fold_in(key, 3))

    def again(key):
        return af.random.bits(af.random.fold_in(key, 3)) + af.random.bits(af.random.fold_in(key, 3))

    af.trace(twice, KEY)
    with pytest.warns(af.KeyReuseWarning):
        af.trace(again, KEY)
    with pytest.warns(af.KeyReuseWarning):
        af.trace(lambda x: x + af.random.uniform(KEY) + af.random.uniform(KEY), np.float32(0))


def test_a_key_that_stays_in_a_loop_is_a_warning_with_both_lines():
    def captured(key):
        return af.fori_loop(0, 5, lambda i, x: x + af.random.uniform(key, (3,)), np.zeros(3, np.float32))

    with pytest.warns(af.KeyReuseWarning, match="the same key in every iteration of a loop") as found:
        af.trace(captured, KEY)
    first = captured.__code__.co_firstlineno
    assert [lines(warning.message) for warning in found] == [[first + 1, first + 1]]


def test_a_key_that_is_carried_unchanged_is_a_warning():
    def carried(key):
        return af.scan(lambda key, _: (key, af.random.uniform(key)), key, None, length=4)[1]

    with pytest.warns(af.KeyReuseWarning, match="in every iteration of a loop") as found:
        af.trace(carried, KEY)
    assert len(found) == 1


@pytest.mark.filterwarnings("ignore::autofuse.KeyReuseWarning")  # that of each key of the chain
def test_long_chains_of_keys_are_followed_once():
    def chained(key):
        def step(i, x):
            chain = key
            for _ in range(20):
                chain, sub = af.random.split(chain)
                x = x + af.random.uniform(sub)
            return x

        return af.fori_loop(0, 5, step, np.float32(0))

    with pytest.warns(af.KeyReuseWarning, match="af.random.split draws from the same key in every iteration"):
        af.trace(chained, KEY, roll=False)


def folded(key):
    return af.fori_loop(0, 5, lambda i, x: x + af.random.uniform(af.random.fold_in(key, i)), np.float32(0))


def rows_of_keys(key):
    return af.scan(lambda x, key: (x + af.random.uniform(key), None), np.float32(0), af.random.split(key, 4))[0]


def branches(key):
    return af.cond(key[0] == 0, lambda: af.random.uniform(key), lambda: af.random.normal(key))


def python_loop(key):
    total = np.float32(0)
    for _ in range(5):
        key, sub = af.random.split(key)
        total = total + af.random.uniform(sub)
    return total


@pytest.mark.filterwarnings("error::autofuse.KeyReuseWarning")
@pytest.mark.parametrize("program", [noisy, folded, rows_of_keys, branches, python_loop])
def test_keys_that_are_used_well_are_no_warning(program):
    af.trace(program, KEY, *([np.zeros((2, 3), np.float32)] if program is noisy else []))
