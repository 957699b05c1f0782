"""Programs on which the rules of several compilers are tried."""

import pytest

from autofuse.testing.sketches import Sketch


def product_of(lhs, rhs, depth=(1, 0), op="tanh"):
    """A function of an array, times another array."""
    build = Sketch("product")
    x, y = build.op(op, build.arg(f"f32[{lhs}]", "x"), name="bent"), build.arg(f"f32[{rhs}]", "y")
    sides = {f"{side}_batching_dimensions": () for side in ("lhs", "rhs")}
    reduced = {f"{side}_contracting_dimensions": (axis,) for side, axis in zip(("lhs", "rhs"), depth, strict=True)}
    return build, build.op("dot_general", x, y, name="product", **sides, **reduced)


@pytest.fixture
def product():
    """Makes products of a function of an array and another array."""
    return product_of


@pytest.fixture(
    params=[
        ("1024,1024", "1024", (1, 0), "tanh"),
        ("1024,1024", "1024", (0, 0), "tanh"),
        ("1024,1024", "1024,1", (1, 0), "tanh"),
        ("1,1024", "1024,512", (1, 0), "negate"),
        ("512,1024", "1,1024", (1, 1), "tanh"),
        ("1024", "1024", (0, 0), "tanh"),
        ("512,1", "1,1024", (1, 0), "negate"),
    ]
)
def vector_product(request):
    """A product with a vector, or one of depth one."""
    return product_of(*request.param)
