"""Products of which most extents are one: every policy of rules decides about them."""

import itertools

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.dtypes import F32
from autofuse.ir.types import TensorType
from autofuse.search.plugins.registry import HERE
from autofuse.search.rules.priority.hero_dimensions import exchange_of
from autofuse.search.rules.priority.instructions import Instruction

RULES = [name for name in HERE if name.startswith("rule:")]
FORMS = ["fbk,bk->bf", "bhd,bthd->bht", "bij,bjk->ikb", "ij,jk->ki", "bij,bij->b"]


def shape(axes, extents):
    return ",".join(str(extents[axis]) for axis in axes)


@pytest.mark.parametrize("form", [*FORMS[:2], *(pytest.param(form, marks=pytest.mark.slow) for form in FORMS[2:])])
@pytest.mark.parametrize("rule", RULES)
def test_a_product_of_tiny_arrays_has_a_plan(rule, form):
    left, right = form.partition("->")[0].split(",")
    axes = sorted(set(left + right))
    rng = np.random.default_rng(0)
    for extents in itertools.product((1, 2), repeat=len(axes)):
        of = dict(zip(axes, extents, strict=True))
        x, y = (rng.standard_normal([of[axis] for axis in side]).astype(np.float32) for side in (left, right))

        def program(x, y):
            return np.tanh(np.einsum(form, np.exp(x), y))

        plan = af.compile(program, x, y, policy=rule)
        np.testing.assert_allclose(plan(x, y), program(x, y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (1, 64), (64, 1)])
def test_a_transpose_that_moves_nothing_is_not_written_in_tiles(shape):
    x = Instruction(0, "parameter", TensorType(shape, F32))
    assert exchange_of(Instruction(1, "transpose", TensorType(shape[::-1], F32), (x,), {"permutation": (1, 0)})) is None
