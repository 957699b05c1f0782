"""Where elements come from is remembered, and is what the op table says."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from autofuse.frontend.traced import trace
from autofuse.ir.graph import Graph
from autofuse.ir.index import Affine, Symbol, of
from autofuse.ir.optable import index_op
from autofuse.lower import places
from autofuse.lower.knownpositions import at_known, known_positions


def stencil(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x[1:-1] = x[:-2] + x[2:]
    return np.concatenate([x, x[::-1]])


def graph_of() -> Graph:
    return trace(stencil, np.ones(10, np.float32)).graph


def test_pieces_are_those_of_the_op_table_the_second_time_too():
    graph = graph_of()
    moved = [node for node in graph.nodes if node.op in ("slice", "concatenate", "dynamic_update_slice", "reverse")]
    assert len({node.op for node in moved}) > 1
    for node in moved:
        for at in ((of(Symbol("i0", node.output.type.shape[0])),), (Affine(3),)):
            types = [value.type for value in node.inputs]
            told = index_op(node).access(types, node.output.type, node.attrs, at)
            expected = at_known(told, known_positions(node, graph.producers))
            assert places.pieces_of(node, at, graph.producers) == expected
            assert places.pieces_of(node, at, graph.producers) == expected
            assert places.pieces_of(node, at, {}) == told  # nothing is known of operands


def test_nothing_is_kept_alive_and_a_bound_is_kept(monkeypatch):
    monkeypatch.setattr(places, "_MOST", 5)
    held = places._Places()
    graph = graph_of()
    node = next(node for node in graph.nodes if node.op == "slice")
    piece = places.pieces_of(node, (Affine(3),), {})
    for number in range(20):
        held.keep(held.of(node), number, piece)
        assert len(held.of(node)) <= 5
    gone = weakref.ref(node)
    del node, graph
    gc.collect()
    assert gone() is None
