"""The interpreter's own duties: argument checks, fresh results, early release, wanted intermediates."""

import gc
import warnings
import weakref

import numpy as np
import pytest

from autofuse.errors import ArgumentError, GraphError
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret, interpret_values
from autofuse.ir.ops.calls import register_call
from autofuse.ir.types import parse_type

X = parse_type("f32[2,3]")


def small():
    builder = GraphBuilder("small")
    x, y = builder.input(X, "x"), builder.input(X, "y")
    total = builder.emit("add", [x, y], name="total")
    turned = builder.emit("transpose", [x], permutation=(1, 0), name="turned")
    return builder.finish([total, turned, x, x])


A = np.arange(6, dtype=np.float32).reshape(2, 3).copy()


def test_results_in_order():
    total, turned, same, again = interpret(small(), A, A + 1)
    np.testing.assert_array_equal(total, 2 * A + 1)
    np.testing.assert_array_equal(turned, A.T)
    np.testing.assert_array_equal(same, A)
    np.testing.assert_array_equal(again, A)


def test_results_share_no_memory_with_inputs_or_each_other():
    results = interpret(small(), A, A)
    for i, result in enumerate(results):
        assert result.flags.c_contiguous
        assert result.flags.writeable
        assert not np.shares_memory(result, A)
        assert not any(np.shares_memory(result, other) for other in results[:i])


def test_constants_stay_untouched_by_writes_to_results():
    builder = GraphBuilder("g")
    graph = builder.finish([builder.constant(np.ones(3, np.float32))])
    interpret(graph)[0][:] = 5
    assert interpret(graph)[0].tolist() == [1, 1, 1]


def test_argument_errors():
    with pytest.raises(ArgumentError, match=r"takes 2 arrays \(%x: f32\[2,3\], %y: f32\[2,3\]\), got 1"):
        interpret(small(), A)
    with pytest.raises(ArgumentError, match=r"argument %y must be f32\[2,3\], got float64\[2,3\]"):
        interpret(small(), A, A.astype(np.float64))
    with pytest.raises(ArgumentError, match=r"argument %x must be f32\[2,3\], got float32\[3,2\]"):
        interpret(small(), A.T, A)


def test_wanted_values():
    values = interpret_values(small(), [A, A], ["turned", "y"])
    assert list(values) == ["turned", "y"]
    np.testing.assert_array_equal(values["turned"], A.T)
    with pytest.raises(ArgumentError, match="has no value %missing"):
        interpret_values(small(), [A, A], ["missing"])


def test_no_warnings():
    builder = GraphBuilder("g")
    x = builder.input(parse_type("f32[3]"))
    y = builder.input(parse_type("i32[3]"))
    outputs = [builder.emit(op, [x]) for op in ("log", "sqrt", "exp")]
    outputs += [builder.emit("divide", [x, x]), builder.emit("divide", [y, y]), builder.emit("remainder", [y, y])]
    outputs.append(builder.emit("reduce", [builder.emit("exp", [x])], dimensions=(0,), combiner="multiply"))
    graph = builder.finish(outputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        interpret(graph, np.array([0, -1, 1e30], np.float32), np.zeros(3, np.int32))


def test_what_numpy_raises_is_one_error_that_names_the_op():
    build = GraphBuilder("g")
    x = build.input(parse_type("f32[4]"), "x")
    sizes = {"window_strides": (1,), "base_dilations": (1,), "window_dilations": (1 << 62,)}
    reduced = build.emit("reduce_window", [x], window_dimensions=(2,), padding=((1 << 62, 0),), combiner="add", **sizes)
    with pytest.raises(GraphError, match=r"reduce_window cannot be evaluated: .*Error"):
        interpret(build.finish([reduced]), np.ones(4, np.float32))


def test_dead_values_are_released_early():
    seen = []

    def note(x):
        gc.collect()
        seen.append(sum(reference() is not None for reference in alive))
        result = x + 1
        alive.append(weakref.ref(result))
        return result

    alive = []
    register_call("test.note", note, replace=True)
    builder = GraphBuilder("chain")
    value = builder.input(X)
    for _ in range(4):
        value = builder.emit("custom_call", [value], call_target_name="test.note", results=(X,))
    interpret(builder.finish([value]), A)
    assert seen == [0, 1, 1, 1]


def test_nodes_that_no_output_needs_are_skipped():
    def fail(x):
        raise AssertionError("a dead node was evaluated")

    register_call("test.fail", fail, replace=True)
    builder = GraphBuilder("g")
    x = builder.input(X)
    builder.emit("custom_call", [x], call_target_name="test.fail", results=(X,))
    interpret(builder.finish([x]), A)
