"""Scatters: what their bodies compute decides what they become, and what is met twice is met in order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fixtures.stablehlomodules import built, ops_of, reference

pytest.importorskip("jaxlib.mlir.ir", reason="jaxlib reads modules: pip install 'autofuse[jax]'")

RNG = np.random.default_rng(3)
X = RNG.standard_normal((5, 7)).astype(np.float32)
S = "tensor<f32>"


@pytest.mark.parametrize("kind", ["add", "maximum", "set", "subtract"])
def test_scatter_by_its_body(kind):
    line = "" if kind == "set" else f"%r = stablehlo.{kind} %x, %y : {S}"
    returned = "%y" if kind == "set" else "%r"
    body = f"""
    %0 = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
      ^bb0(%x: {S}, %y: {S}):
      {line}
      stablehlo.return {returned} : {S}
    }}) : (tensor<5x7xf32>, tensor<3x1xi32>, tensor<3x7xf32>) -> tensor<5x7xf32>
    return %0 : tensor<5x7xf32>"""
    indices, updates = np.array([[1], [9], [4]], np.int32), RNG.standard_normal((3, 7)).astype(np.float32)
    fn, text = built(body, [X, indices, updates], "tensor<5x7xf32>")
    assert "while" not in ops_of(fn)
    np.testing.assert_array_equal(fn(X, indices, updates), reference(text, [X, indices, updates])[0])


HALVED = f"""
      %h = stablehlo.constant dense<0.5> : {S}
      %p = stablehlo.multiply %x, %h : {S}
      %r = stablehlo.subtract %y, %p : {S}"""
PLACES = {
    "rows": ("[1]", "[0]", "[]", "[]", "[0]", (3, 1), (3, 7), [[1], [9], [1]]),
    "elements": ("[]", "[0, 1]", "[]", "[]", "[1, 0]", (4, 2), (4,), [[1, 2], [6, 4], [1, 2], [-1, 3]]),
    "windows": ("[1, 2]", "[]", "[]", "[]", "[0, 1]", (3, 2), (3, 2, 3), [[3, 5], [-1, 0], [3, 4]]),
    "one window": ("[0, 1]", "[]", "[]", "[]", "[0]", (1,), (2, 7), [4]),
    "batches": ("[]", "[1]", "[0]", "[0]", "[1]", (5, 2, 1), (5, 2), [[[n], [n]] for n in (0, 3, 7, -2, 6)]),
}


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("case", PLACES)
def test_scatter_of_any_body(case, unique):
    """What is met twice is met in order; what lies outside is left out."""
    window, inserted, batching, own, axes, where, shape, numbers = PLACES[case]
    indices, updates = np.array(numbers, np.int32), RNG.standard_normal(shape).astype(np.float32)
    if unique:
        kept = np.s_[:, :1] if case == "batches" else np.s_[:2]
        indices, updates = (indices, updates) if case == "one window" else (indices[kept], updates[kept])
    types = [
        f"tensor<{'x'.join(map(str, array.shape))}x{kind}>" for array, kind in ((indices, "i32"), (updates, "f32"))
    ]
    body = f"""
    %0 = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = {window}, inserted_window_dims = {inserted}, input_batching_dims = {batching},
      scatter_indices_batching_dims = {own}, scatter_dims_to_operand_dims = {axes},
      index_vector_dim = {len(where) - 1}>, unique_indices = {str(unique).lower()}}}> ({{
      ^bb0(%x: {S}, %y: {S}):
      {HALVED}
      stablehlo.return %r : {S}
    }}) : (tensor<5x7xf32>, {", ".join(types)}) -> tensor<5x7xf32>
    return %0 : tensor<5x7xf32>"""
    fn, text = built(body, [X, indices, updates], "tensor<5x7xf32>")
    assert ("while" in ops_of(fn)) == (not unique and len(updates) > 1 and case != "one window")
    np.testing.assert_array_equal(fn(X, indices, updates), reference(text, [X, indices, updates])[0])


@pytest.mark.parametrize("at", [-1, 0, 2, 4, 5, 100])
@pytest.mark.parametrize("kind", ["set", "add", "maximum", "subtract"])
@pytest.mark.parametrize("extents", [(5, 3), (5, 30)])
def test_a_row_of_a_small_array_is_chosen(at, kind, extents):
    n, columns = extents
    x = RNG.standard_normal(extents).astype(np.float32)
    update = np.where(np.arange(columns) == 1, np.nan, 2.0).astype(np.float32)
    line = "" if kind == "set" else f"%r = stablehlo.{kind} %x, %y : {S}"
    result = f"tensor<{n}x{columns}xf32>"
    body = f"""
    %0 = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0],
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>}}> ({{
      ^bb0(%x: {S}, %y: {S}):
      {line}
      stablehlo.return {"%y" if kind == "set" else "%r"} : {S}
    }}) : ({result}, tensor<1xi32>, tensor<{columns}xf32>) -> {result}
    return %0 : {result}"""
    arguments = [x, np.int32([at]), update]
    fn, text = built(body, arguments, result)
    assert ("scatter" in ops_of(fn)) == (columns == 30)
    np.testing.assert_array_equal(fn(*arguments), reference(text, arguments)[0])


def test_scatter_of_several_arrays_that_meet():
    body = f"""
    %0:2 = "stablehlo.scatter"(%a, %a, %b, %c, %c) <{{scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
      index_vector_dim = 1>}}> ({{
      ^bb0(%x: {S}, %p: {S}, %y: {S}, %q: {S}):
      %r = stablehlo.multiply %x, %q : {S}
      %s = stablehlo.add %p, %x : {S}
      stablehlo.return %r, %s : {S}, {S}
    }}) : (tensor<5x7xf32>, tensor<5x7xf32>, tensor<3x1xi32>, tensor<3x7xf32>, tensor<3x7xf32>)
      -> (tensor<5x7xf32>, tensor<5x7xf32>)
    return %0#0, %0#1 : tensor<5x7xf32>, tensor<5x7xf32>"""
    indices, updates = np.array([[1], [3], [1]], np.int32), RNG.standard_normal((3, 7)).astype(np.float32)
    fn, _ = built(body, [X, indices, updates], "(tensor<5x7xf32>, tensor<5x7xf32>)")
    x, p = X.copy(), X.copy()
    for (row,), update in zip(indices, updates, strict=True):
        x[row], p[row] = x[row] * update, p[row] + x[row]
    for found, expected in zip(fn(X, indices, updates), (x, p), strict=True):
        np.testing.assert_array_equal(found, expected)
