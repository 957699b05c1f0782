"""`check_bounds=True`: a call raises where NumPy raises for an index, and then has written nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.cli.main import main
from autofuse.errors import AutofuseError, OutOfBoundsError, OutOfDomainError, PlanError, TraceError
from autofuse.plan.verify import verify

X = np.arange(1.0, 6.0)


def _put(x: Any, i: Any) -> Any:
    x[i] = 0
    return x.sum()


def _many(x: Any, i: Any) -> Any:
    return x[:, i]


def _rows_and_columns(x: Any, i: Any) -> Any:
    return x.reshape(5, 1)[i, np.zeros(1, int)]


def _added(x: Any, i: Any) -> Any:
    np.add.at(x, i, 1.0)
    return x


def _assigned(x: Any, i: Any) -> Any:
    x[i] = 7.0
    return x


def _window(x: Any, i: Any) -> Any:
    return x[i + np.arange(2)]


def _looped(x: Any, i: Any) -> Any:
    return af.fori_loop(0, 3, lambda k, s: s + x[i[0] + k], 0.0)


def _scanned(x: Any, i: Any) -> Any:
    return af.scan(lambda s, k: (s + x[k], x[k]), 0.0, i)


def _branched(x: Any, i: Any) -> Any:
    return af.cond(x[0] > 0, lambda: x[i] * 2, lambda: x[i + 100])


def _nested(x: Any, i: Any) -> Any:
    def body(k: Any, s: Any) -> Any:
        return af.cond(k > 0, lambda: s + x[i[0] + k], lambda: s + x[i[0]])

    return af.fori_loop(0, 2, body, 0.0)


PROGRAMS: dict[str, Any] = {
    "an element": lambda x, i: x[i[0]],
    "an array": lambda x, i: x[i],
    "writing an array": _assigned,
    "take": lambda x, i: np.take(x, i) + 1,
    "take along an axis": lambda x, i: np.take_along_axis(x, i, 0),
    "two arrays": _rows_and_columns,
    "add.at": _added,
    "a window": _window,
    "put": lambda x, i: [np.put(x, i, [1.0, 2.0]), x][1],
    "choose": lambda x, i: np.choose(np.abs(i), [x[:2], x[1:3], x[2:4], x[3:], x[:2]]),
    "a loop": _looped,
    "a scan": _scanned,
    "a branch": _branched,
    "a branch in a loop": _nested,
    "an unsigned index": lambda x, i: x[np.abs(i).astype(np.uint8)],
}
INSIDE = np.array([2, 1])
MESSAGE = r"test_check_bounds\.py:\d+ in .*index -?\d+ is out of bounds for"


@pytest.mark.parametrize("form", PROGRAMS)
def test_calls_raise_where_numpy_does(form: str) -> None:
    program = PROGRAMS[form]
    plan = af.compile(program, X, INSIDE, check_bounds=True)
    for i in (INSIDE, np.array([-5, 0]), np.array([-1, 4]), np.array([5, 0]), np.array([-6, 0]), np.array([99, -99])):
        theirs, ours = X.copy(), X.copy()
        try:
            want = program(theirs, i)
        except (IndexError, ValueError):
            with pytest.raises(OutOfBoundsError, match=MESSAGE):
                plan(ours, i)
            np.testing.assert_array_equal(ours, X)  # NumPy may have written some elements
        else:
            np.testing.assert_equal(plan(ours, i), want)
            np.testing.assert_array_equal(ours, theirs)


def test_the_error_names_index_axis_and_line() -> None:
    plan = af.compile(_put, X, np.int64(0), check_bounds=True)
    with pytest.raises(IndexError) as caught:
        plan(X.copy(), np.int64(99))
    assert isinstance(caught.value, AutofuseError)
    message = str(caught.value)
    assert "test_check_bounds.py:" in message
    assert " in _put, x[i] = 0: index 99 is out of bounds for axis 0 with size 5" in message


def test_nothing_is_written_before_all_indices_were_found_in_bounds() -> None:
    def f(x: Any, i: Any) -> Any:
        x *= 2
        return x[i]

    plan = af.compile(f, X, np.int64(0), check_bounds=True)
    x, out = X.copy(), np.zeros(())
    with pytest.raises(OutOfBoundsError):
        plan(x, np.int64(5))
    with pytest.raises(OutOfBoundsError):
        plan(x, np.int64(5), out=out)
    np.testing.assert_array_equal(x, X)
    assert out == 0
    assert plan(x, np.int64(-1)) == 10.0
    np.testing.assert_array_equal(x, 2 * X)


def test_without_it_reads_are_of_the_nearest_element_and_arrays_of_writes_are_dropped() -> None:
    assert af.compile(lambda x, i: x[i], X, np.int64(0))(X, np.int64(99)) == 5.0
    np.testing.assert_array_equal(af.compile(lambda x, i: x[i], X, INSIDE)(X, np.array([99, -99])), [5.0, 1.0])
    x = X.copy()
    af.compile(_assigned, X, INSIDE)(x, np.array([99, 1]))
    np.testing.assert_array_equal(x, [1.0, 7.0, 3.0, 4.0, 5.0])
    x = X.copy()
    af.compile(_put, X, np.int64(0))(x, np.int64(99))
    np.testing.assert_array_equal(x, [1.0, 2.0, 3.0, 4.0, 0.0])


def _largest_above(x: Any, least: Any) -> Any:
    return x[x > least].max()


def _smallest_in_a_loop(x: Any, least: Any) -> Any:
    return af.fori_loop(0, 2, lambda _, s: s + x[x > least].min(), 0.0)


DOMAINS: dict[str, tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = {
    "the largest of none": (_largest_above, (X, 3.0), (X, 9.0)),
    "the smallest of none, in a loop": (_smallest_in_a_loop, (X, 3.0), (X, 9.0)),
    "bins in disorder": (np.digitize, (X, np.array([4.0, 2.0, 1.0])), (X, np.array([1.0, 3.0, 2.0]))),
    "negative powers": (np.power, (np.arange(3), np.array([2, 0, 1])), (np.arange(3), np.array([2, 0, -1]))),
}


@pytest.mark.parametrize("name", DOMAINS)
def test_other_values_that_numpy_refuses_raise_too(name: str) -> None:
    function, good, bad = DOMAINS[name]
    as_arrays = [np.asarray(item) for item in good]
    plan = af.compile(function, *as_arrays, check_bounds=True)
    np.testing.assert_array_equal(plan(*as_arrays), function(*good))
    with pytest.raises(ValueError) as numpys:  # noqa: PT011 - the message is compared
        function(*bad)
    with pytest.raises(OutOfDomainError, match=re.escape(str(numpys.value))):
        plan(*map(np.asarray, bad))


def test_positions_in_an_array_are_indices_too() -> None:
    unravel = af.compile(lambda i: np.unravel_index(i, (7, 5)), np.array([34]), check_bounds=True)
    ravel = af.compile(lambda i, j: np.ravel_multi_index((i, j), (7, 5)), *np.array([[6], [4]]), check_bounds=True)
    assert ravel(*unravel(np.array([34]))) == 34
    with pytest.raises(OutOfBoundsError, match="index 35 is out of bounds for array with size 35"):
        unravel(np.array([35]))
    with pytest.raises(OutOfBoundsError, match="index 5 is out of bounds for axis with size 5"):
        ravel(np.array([6]), np.array([5]))
    with pytest.raises(TraceError, match="index 35 is out of bounds for array with size 35"):
        af.compile(lambda x: x + np.unravel_index(np.array([35]), (7, 5))[0], X)


def test_a_program_without_such_indices_is_the_same_plan() -> None:
    assert af.compile(lambda x: x[1] + x[[0, 2]], X, check_bounds=True).document.bounds == ()


def test_an_index_where_there_is_nothing_is_refused_at_once() -> None:
    with pytest.raises(TraceError, match="axis 0 with size 0"):
        af.compile(lambda x, i: x[i], np.zeros((0, 3)), INSIDE)


def test_an_index_in_the_condition_of_a_loop_is_refused_by_name() -> None:
    def f(x: Any) -> Any:
        return af.while_loop(lambda i: x[i] < 4, lambda i: i + 1, 0)

    assert af.compile(f, X)(X) == 3
    with pytest.raises(TraceError, match="in the condition of a loop cannot be checked"):
        af.compile(f, X, check_bounds=True)


def test_saved_plans_check_too(tmp_path: Any) -> None:
    plan = af.compile(_put, X, np.int64(0), check_bounds=True)
    for _ in range(2):  # the second time it comes from what the first one kept
        loaded = af.load(plan.save(tmp_path / "p.json"))
        assert loaded.document.bounds == plan.document.bounds
        assert loaded(X.copy(), np.int64(0)) == 14.0
        with pytest.raises(OutOfBoundsError, match="axis 0 with size 5"):
            loaded(X.copy(), np.int64(-6))


def test_plans_of_strangers_keep_their_checks_small() -> None:
    document = af.compile(_put, X, np.int64(0), check_bounds=True).document
    (check,) = document.bounds
    for bounds, message in {
        (replace(check, what="x" * 501),): r"bounds\[0\]: a text is longer",
        (replace(check, low=1),): r"bounds\[0\]: allows 1 to 5",
        (check, check): "bounds: 2 checks need an output",
    }.items():
        with pytest.raises(PlanError, match=message):
            verify(replace(document, bounds=bounds))


@pytest.mark.slow
def test_jit_and_the_command_line_take_it(tmp_path: Any, capsys: Any) -> None:
    jitted = af.jit(lambda x, i: x[i] * 2, check_bounds=True)
    assert jitted(X, np.int64(1)) == 4.0
    with pytest.raises(OutOfBoundsError):
        jitted(X, np.int64(7))
    source = tmp_path / "model.py"
    source.write_text("def pick(x, i):\n    return x[i] * 2\n")
    arguments = ["--arg", "f64[5]", "--arg", "i64[]", "--max-trials", "1", "--no-progress"]
    output = tmp_path / "pick.json"
    assert main(["tune", f"{source}:pick", *arguments, "-o", str(output), "--check-bounds"]) == 0
    with pytest.raises(OutOfBoundsError, match=r"model\.py:2 in pick, return x\[i\] \* 2: index 5"):
        af.load(output)(X, np.array(5))
