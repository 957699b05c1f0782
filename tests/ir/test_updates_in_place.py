"""The interpreter changes an array in place where nobody can see the difference: a loop copies no state per round."""

from dataclasses import replace

import numpy as np
import pytest

import autofuse as af
from autofuse.ir import optable
from autofuse.ir.interpreter import interpret

N, ROUNDS = 7, 5


@pytest.fixture
def copied(monkeypatch):
    """Counts the updates that copy the array first."""
    usual, calls = optable.lookup("dynamic_update_slice"), []

    def evaluate(operands, attrs, regions):
        calls.append(operands[0].shape)
        return usual.evaluate(operands, attrs, regions)

    monkeypatch.setitem(optable._TABLE, usual.name, replace(usual, evaluate=evaluate))
    return calls


def check(function, *arguments):
    """Interpret a traced function, and compare with calling it; the arguments must stay as they are."""
    given = [np.array(argument) for argument in arguments]
    expected = function(*[np.array(argument) for argument in arguments])
    found = interpret(af.trace(function, *arguments), *given)
    for one, other in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_array_equal(one, other)
    for argument, before in zip(given, arguments, strict=True):
        np.testing.assert_array_equal(argument, before)


def rows(count=ROUNDS):
    return np.random.default_rng(0).standard_normal((count, N))


def test_a_scan_copies_its_results_once_at_most(copied):
    def running(xs):
        return af.scan(lambda carry, x: (carry + x, carry * x), np.zeros(N), xs)

    check(running, rows())
    assert len(copied) <= 1


def test_a_loop_that_keeps_the_state_before_the_update_copies_it(copied):
    def shift(x):
        def body(i, state):
            now, before = state
            later = now.copy()
            later[i] = before[0] + i
            return later, now

        return af.fori_loop(0, N, body, (x, x * 2))

    check(shift, rows(1)[0])
    assert len(copied) >= N - 1


def test_a_view_that_is_read_later_keeps_its_old_values():
    def backwards(x):
        def body(i, state):
            old = state[::-1]
            later = state.copy()
            later[i] = 7.0
            return later + old

        return af.fori_loop(0, N, body, x)

    check(backwards, rows(1)[0])


def test_what_a_loop_captures_and_is_given_stays():
    def captured(x, table):
        def body(i, state):
            state[i] = table[i]
            return state

        first = af.fori_loop(0, 3, body, x)
        table = table + first
        return af.fori_loop(0, 3, lambda i, state: body(i, table.copy()), x), table, x

    check(captured, rows(1)[0], rows(2)[1])


def test_loops_inside_loops():
    def nested(x):
        def inner(j, state):
            state[j] = state[j - 1] * 0.5 + j
            return state

        return af.fori_loop(0, 4, lambda i, state: af.fori_loop(1, N, inner, state) + i, x), x + 1

    check(nested, rows(1)[0])


def test_memory_that_a_function_of_a_user_keeps_is_not_written():
    from autofuse.ir.graphbuilder import GraphBuilder
    from autofuse.ir.ops.calls import register_call
    from autofuse.ir.types import parse_type

    kept = np.arange(4.0)
    register_call("tests.updates.kept", lambda x: kept, replace=True)
    build = GraphBuilder("g")
    x, at = build.input(parse_type("f64[4]"), "x"), build.input(parse_type("i64[]"), "at")
    (got,) = build.emit_many("custom_call", [x], call_target_name="tests.updates.kept", results=(x.type,))
    one = build.emit("slice", [x], start_indices=(0,), limit_indices=(1,), strides=(1,))
    graph = build.finish([build.emit("dynamic_update_slice", [got, one, at])])
    interpret(graph, np.full(4, 9.0), np.array(2))
    np.testing.assert_array_equal(kept, np.arange(4.0))
