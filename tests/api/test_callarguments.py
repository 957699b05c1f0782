"""Calling a plan with arguments that are not exactly what it was compiled for."""

import threading

import numpy as np
import pytest

import autofuse as af
from autofuse.api.callarguments import check_written, overlap
from autofuse.errors import ArgumentError


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def blend(x, y):
    return x * 2 + y


def shift(x, y):
    """Writes into `x`."""
    x[1:] = x[:-1] + y[1:]
    return x.sum()


def swap(state):
    """Writes into both arrays of a dictionary."""
    a = state["a"] * 2
    state["a"][:] = state["b"]
    state["b"][:] = a


@pytest.fixture(scope="module")
def blended():
    return af.compile(blend, floats(3, 4), floats(3, 4))


@pytest.fixture(scope="module")
def shifted():
    return af.compile(shift, floats(3, 4), floats(3, 4))


X, Y = floats(3, 4, seed=1), floats(3, 4, seed=2)


# ---- what is refused, by name ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((X,), r"blend\(x, y\) takes 2 arguments, got 1"),
        ((X, Y, X), "takes 2 arguments, got 3"),
        ((X, Y.T), r"y: needs shape \(3, 4\), got \(4, 3\)"),
        ((X, Y.astype(np.float64)), "y: needs dtype float32, got float64"),
        ((X.astype(np.int32), Y), "x: needs dtype float32, got int32"),
        ((X.tolist(), Y), r"x: needs an array f32\[3,4\], got list"),
        ((X, None), "y: needs an array"),
        ((1.0, Y), "x: needs an array"),
    ],
    ids=["too few", "too many", "shape", "dtype", "first", "list", "none", "number"],
)
def test_wrong_arguments_are_named(blended, args, message):
    with pytest.raises(ArgumentError, match=message):
        blended(*args)


def test_wrong_structure_is_named():
    plan = af.compile(lambda pair: pair["a"] + pair["b"], {"a": X, "b": Y})
    np.testing.assert_array_equal(plan({"b": Y, "a": X}), X + Y)
    with pytest.raises(ArgumentError, match="pair"):
        plan({"a": X})
    with pytest.raises(ArgumentError, match="pair"):
        plan([X, Y])
    with pytest.raises(ArgumentError, match="needs shape"):
        plan({"a": X, "b": Y[:1]})


# ---- what is copied --------------------------------------------------------------------------------------------------


def unaligned(array):
    raw = np.zeros(array.nbytes + 1, np.uint8)
    moved = np.ndarray(array.shape, array.dtype, buffer=raw, offset=1)
    moved[...] = array
    return moved


@pytest.mark.parametrize(
    "change",
    [
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=0)[::2],
        lambda a: np.flip(np.flip(a).copy()),
        lambda a: a.astype(">f4"),
        unaligned,
        lambda a: np.broadcast_to(a[:1], a.shape),
    ],
    ids=["fortran", "strided", "reversed", "byte order", "unaligned", "broadcast"],
)
def test_other_layouts_are_copied_and_named(blended, change):
    odd = change(X)
    np.testing.assert_array_equal(blended(odd, Y), blend(odd, Y))
    assert blended.copied_arguments == ("x",)


def test_read_only_subclass_and_repeated_arguments_need_no_copy(blended):
    class Tagged(np.ndarray):
        pass

    frozen = X.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(blended(frozen, Y), blend(X, Y))
    np.testing.assert_array_equal(blended(X, X), blend(X, X))
    result = blended(X.view(Tagged), Y)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, blend(X, Y))
    assert blended.copied_arguments == ()


def test_results_share_no_memory_with_arguments_or_one_another():
    plan = af.compile(lambda x: (x, x, x.T, x[1:]), X)
    results = plan(X)
    for number, result in enumerate(results):
        assert not any(np.shares_memory(result, other) for other in (X, *results[:number]))
    for result, right in zip(results, (X, X, X.T, X[1:]), strict=True):
        np.testing.assert_array_equal(result, right)


# ---- extents ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (3, 0), (1, 1)], ids=str)
def test_zero_size_and_zero_dimensional_arguments(shape):
    def work(x):
        return np.exp(x) + 1, x.sum(), x.reshape(-1)

    plan = af.compile(work, floats(*shape))
    x = floats(*shape, seed=3)
    for result, right in zip(plan(x), work(x), strict=True):
        assert type(result) is type(right)
        np.testing.assert_allclose(result, right, rtol=1e-6)
        assert np.shape(result) == np.shape(right)


def test_numpy_scalars_are_zero_dimensional_arrays():
    plan = af.compile(blend, np.float32(1), np.float32(2))
    assert plan(np.float32(3), np.array(4, np.float32)) == np.float32(10)


def test_a_function_of_nothing_and_one_that_returns_nothing():
    np.testing.assert_array_equal(af.compile(lambda: np.arange(3) * 2)(), [0, 2, 4])
    assert af.compile(lambda x: None, X)(X) is None


# ---- writing into arguments ------------------------------------------------------------------------------------------


def written(change=np.copy):
    """What NumPy and the plan leave in an argument of some layout."""
    theirs, ours = change(X.copy()), change(X.copy())
    return theirs, ours


@pytest.mark.parametrize(
    "change",
    [np.copy, np.asfortranarray, lambda a: np.repeat(a, 2, axis=1)[:, ::2], unaligned],
    ids=["exact", "fortran", "strided", "unaligned"],
)
def test_written_arguments_of_any_layout(shifted, change):
    theirs, ours = written(change)
    expected = shift(theirs, Y)
    np.testing.assert_allclose(shifted(ours, Y), expected, rtol=1e-6)
    np.testing.assert_array_equal(ours, theirs)


def test_arguments_that_are_only_read_stay_as_they_are(shifted):
    y = Y.copy()
    shifted(X.copy(), y)
    np.testing.assert_array_equal(y, Y)


def test_both_arrays_of_a_structure_are_written():
    theirs, ours = ({"a": X.copy(), "b": Y.copy()} for _ in range(2))
    plan = af.compile(swap, ours)
    assert plan(ours) is None
    swap(theirs)
    for key in theirs:
        np.testing.assert_array_equal(ours[key], theirs[key])


def test_writing_into_read_only_memory_is_refused_before_anything_runs(shifted):
    frozen = X.copy()
    frozen.flags.writeable = False
    with pytest.raises(ArgumentError, match=r"x: .*read-only"):
        shifted(frozen, Y)
    with pytest.raises(ArgumentError, match=r"x: .*elements overlap"):
        shifted(np.lib.stride_tricks.as_strided(np.ones(4, np.float32), (3, 4), (0, 4)), Y)


def test_an_array_of_nothing_does_not_overlap_itself():
    empty = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (0, 4), (0, 0))
    check_written([empty], ["x"], [0])
    out = np.empty((), np.float32)
    af.compile(shift, floats(0, 4), floats(0, 4))(empty, floats(0, 4), out=out)
    assert out == 0


def test_a_static_zero_of_the_other_sign_is_another_value():
    with np.errstate(divide="ignore"):
        plan = af.compile(lambda x, c: x / c, X, 0.0)
        np.testing.assert_array_equal(plan(X, 0.0), X / 0.0)
    with pytest.raises(ArgumentError, match=r"c must be 0\.0, the value at tracing; got -0\.0"):
        plan(X, -0.0)


@pytest.mark.parametrize("layout", [np.copy, np.asfortranarray], ids=["exact", "fortran"])
def test_writing_into_memory_that_another_argument_reads_is_refused(shifted, layout):
    same = layout(X)
    with pytest.raises(ArgumentError, match="x and y overlap"):
        shifted(same, same)
    memory = np.zeros(20, np.float32)
    with pytest.raises(ArgumentError, match="x and y overlap"):
        shifted(memory[:12].reshape(3, 4), memory[8:].reshape(3, 4))
    assert not memory.any()


def test_interleaved_arguments_do_not_overlap(shifted):
    both = np.zeros((3, 8), np.float32)
    both[:, ::2], both[:, 1::2] = X, Y
    theirs = X.copy()
    expected = shift(theirs, Y)
    np.testing.assert_allclose(shifted(both[:, ::2], both[:, 1::2]), expected, rtol=1e-6)
    np.testing.assert_array_equal(both[:, ::2], theirs)


def test_overlap_is_decided_by_elements():
    memory = np.zeros((4, 6))
    assert overlap(memory, memory[1:])
    assert not overlap(memory[:, ::2], memory[:, 1::2])
    assert not overlap(memory[:0], memory)
    assert not overlap(memory, np.zeros((4, 6)))


# ---- out= ------------------------------------------------------------------------------------------------------------


def test_results_go_where_they_are_asked_to(blended):
    for out in (np.empty_like(X), np.asfortranarray(np.empty_like(X)), np.empty((3, 8), np.float32)[:, ::2]):
        assert blended(X, Y, out=out) is out
        np.testing.assert_array_equal(out, blend(X, Y))


def test_out_may_be_an_argument_or_overlap_one(blended):
    x = X.copy()
    blended(x, Y, out=x)
    np.testing.assert_array_equal(x, blend(X, Y))
    memory = np.zeros(20, np.float32)
    x, out = memory[:12].reshape(3, 4), memory[4:16].reshape(3, 4)
    x[...] = X
    blended(x, Y, out=out)
    np.testing.assert_array_equal(out, blend(X, Y))


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty((4, 3), np.float32), r"out: needs f32\[3,4\], got float32\[4, 3\]"),
        (np.empty((3, 4)), r"out: needs f32\[3,4\], got float64"),
        ([[0.0]], "out: needs an array"),
        (np.broadcast_to(X, X.shape), "out: is read-only"),
    ],
    ids=["shape", "dtype", "list", "read-only"],
)
def test_wrong_out_is_named(blended, out, message):
    with pytest.raises(ArgumentError, match=message):
        blended(X, Y, out=out)


def test_a_result_goes_to_given_memory_without_python(blended, monkeypatch):
    out = np.empty_like(X)
    blended(X, Y, out=out)
    monkeypatch.setattr(type(blended), "_call_through_python", None)
    assert blended(X, Y, out=out) is out
    np.testing.assert_array_equal(out, blend(X, Y))


def test_too_few_arguments_beside_out_are_counted(blended):
    for args in ((X,), (X, Y, X)):
        with pytest.raises(ArgumentError, match=rf"takes 2 arguments, got {len(args)}"):
            blended(*args, out=np.empty_like(X))


def test_several_outs_must_be_separate():
    plan = af.compile(lambda x: (x + 1, x * 2), X)
    outs = (np.empty_like(X), np.empty_like(X))
    assert plan(X, out=outs) is outs
    np.testing.assert_array_equal(outs[1], X * 2)
    with pytest.raises(ArgumentError, match=r"out\[0\] and out\[1\] overlap"):
        plan(X, out=(outs[0], outs[0]))
    with pytest.raises(ArgumentError, match="out"):
        plan(X, out=outs[:1])


def test_out_beside_an_argument_that_is_written(shifted):
    x, out = X.copy(), np.empty((), np.float32)
    theirs = X.copy()
    expected = shift(theirs, Y)
    shifted(x, Y, out=out)
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    np.testing.assert_array_equal(x, theirs)
    with pytest.raises(ArgumentError, match="out overlaps x"):
        shifted(x, Y, out=x[0, :1].reshape(()))


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_several_threads_call_one_plan():
    def work(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return np.sort(e / e.sum(-1, keepdims=True) @ x.T, axis=-1)

    plan = af.compile(work, floats(16, 16))
    wrong = []

    def call(seed):
        x = floats(16, 16, seed=seed)
        right = plan(x)
        wrong.extend(seed for _ in range(100) if not np.array_equal(plan(x), right))
        if not np.allclose(right, work(x), rtol=1e-4, atol=1e-5):
            wrong.append(seed)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
