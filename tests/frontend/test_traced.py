"""`trace`: what becomes an input, what is static, and how results map back."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from autofuse.frontend.spec import Spec, spec
from autofuse.frontend.traced import trace
from autofuse.ir import tree
from autofuse.ir.interpreter import interpret
from autofuse.ir.tree import Leaf, Static

X = np.arange(4.0)


def test_specs_stand_for_arrays() -> None:
    traced = trace(lambda x, y: x @ y, spec("f32[2,3]"), spec((3, 4), np.float32))
    assert [str(value.type) for value in traced.graph.inputs] == ["f32[2,3]", "f32[3,4]"]
    assert str(traced.graph.outputs[0].type) == "f32[2,4]"
    assert spec(5).shape == (5,)
    assert str(spec("bf16[ 1, 2 ]")) == "bf16[1,2]"
    assert isinstance(spec("i8[]"), Spec)
    assert spec("i8[]").dtype == np.int8


def test_python_numbers_are_static_and_weak() -> None:
    traced = trace(lambda x, n, flag, name: x * n if flag and name == "a" else x, X.astype(np.float32), 2.5, True, "a")
    assert len(traced.graph.inputs) == 1
    assert str(traced.graph.outputs[0].type) == "f32[4]"
    assert isinstance(traced.in_tree, tree.Branch)
    assert traced.in_tree.children == (Leaf(), Static(2.5), Static(True), Static("a"))


def test_numpy_scalars_are_inputs() -> None:
    traced = trace(lambda x, n: x * n, X, np.float32(2))
    assert [str(value.type) for value in traced.graph.inputs] == ["f64[4]", "f32[]"]


def test_static_arguments_are_constants(agrees: Any) -> None:
    def f(x: Any, order: Any, n: Any) -> Any:
        total = x * 0
        for k in order:
            total = total + x[int(k)] if n > 1 else total
        return total

    order = np.array([0, 3, 1])
    traced = agrees(f, X, order, np.int64(3), static=["order", -1])
    assert len(traced.graph.inputs) == 1
    assert tree.from_json(tree.to_json(traced.in_tree)) == traced.in_tree


def test_results_keep_their_structure() -> None:
    traced = trace(lambda x: {"a": (x, x.sum(), 3), "b": [None, np.ones(2)]}, X)
    out = traced.unflatten(list(interpret(traced.graph, X)))
    assert out["a"][2] == 3
    assert out["b"][0] is None
    assert isinstance(out["a"][0], np.ndarray)
    assert type(out["a"][1]) is np.float64
    assert out["b"][1].tolist() == [1.0, 1.0]


def test_returning_an_argument_untouched() -> None:
    traced = trace(lambda x, y: (y, x), X, X + 1)
    assert traced.graph.outputs == traced.graph.inputs[::-1]
    assert not traced.graph.nodes
    assert traced.writebacks == ()


def test_dead_work_is_not_in_the_graph() -> None:
    def f(x: Any) -> Any:
        unused = np.exp(x)
        buffer = np.zeros(4)
        buffer[0] = unused[0]
        return x + 1

    assert [node.op for node in trace(f, X).graph.nodes] == ["constant", "broadcast_in_dim", "add"]


def test_written_arrays_keep_their_name() -> None:
    def f(x: Any) -> Any:
        buffer = np.zeros(4)
        buffer[1:] = x[1:]
        x[0] = 1.0
        return buffer

    graph = trace(f, X).graph
    assert [value.name for value in graph.outputs] == ["buffer_1", "x_1"]


def test_variadic_functions_and_names() -> None:
    def f(x: Any, *rest: Any) -> Any:
        return x + sum(rest)

    traced = trace(f, X, X, X, name="total")
    assert traced.graph.name == "total"
    assert traced.parameters == ("x", "rest_0", "rest_1", "/")
    assert trace(np.exp, X).graph.name == "exp"


def test_a_callable_that_is_not_python_code(agrees: Any) -> None:
    agrees(np.add, X, X)
    agrees(np.sum, X)
    agrees(np.linalg.norm, X)


def test_traces_in_threads_do_not_mix() -> None:
    start = threading.Barrier(4)
    found: dict[int, list[str]] = {}

    def work(n: int) -> None:
        def f(x: Any) -> Any:
            for _ in range(n):
                x = x * 2
            return x

        start.wait()
        found[n] = [node.op for node in trace(f, X).graph.nodes if node.op == "multiply"]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: len(ops) for n, ops in found.items()} == {1: 1, 2: 2, 3: 3, 4: 4}


@pytest.mark.parametrize("nested", [True, False])
def test_a_trace_inside_a_trace_is_independent(nested: bool) -> None:
    def f(x: Any) -> Any:
        inner = trace(lambda y: y * 2, spec("f32[3]")) if nested else None
        return x + (1 if inner is None else len(inner.graph.outputs))

    assert [node.op for node in trace(f, X).graph.nodes][-1] == "add"
