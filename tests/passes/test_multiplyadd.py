"""Contraction: sums with products become one operation, of floats only."""

import numpy as np
import pytest

from autofuse.ir.interpreter import interpret
from autofuse.passes.multiplyadd import ContractProducts
from autofuse.passes.pipeline import clean


@pytest.mark.parametrize(("dtype", "found"), [("f32", ["fma"]), ("bf16", ["fma"]), ("i32", ["multiply", "add"])])
@pytest.mark.parametrize("product_first", [True, False])
def test_a_sum_with_a_product(sketch, ops, dtype, found, product_first):
    x, y, z = (sketch.arg(f"{dtype}[4]", name) for name in "xyz")
    product = sketch.emit("multiply", (x, y))
    graph = sketch.finish([sketch.emit("add", (product, z) if product_first else (z, product))])
    after = ContractProducts().apply(graph)
    assert ops(after) == found
    given = [np.full(4, value).astype(x.type.dtype.numpy) for value in (2, 3, 4)]
    np.testing.assert_array_equal(interpret(after, *given)[0], interpret(graph, *given)[0])


def test_cleaning_twice_changes_no_more(sketch, ops):
    x, y, z = (sketch.arg("f32[4]", name) for name in "xyz")
    graph = clean(sketch.finish([sketch.emit("add", (sketch.emit("multiply", (x, y)), z))]), "fast")
    assert ops(clean(graph, "fast")) == ops(graph) == ["fma"]
    assert ops(clean(graph)) == ["fma"]
