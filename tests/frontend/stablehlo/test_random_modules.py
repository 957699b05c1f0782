"""Random modules beside StableHLO's own interpreter."""

from __future__ import annotations

import pytest

pytest.importorskip("jaxlib.mlir.ir", reason="jaxlib reads modules: pip install 'autofuse[jax]'")

from tests.fixtures.randommodules import differences


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(20, 500, 20))])
def test_random_modules_mean_the_same(first):
    assert [text for seed in range(first, first + 20) for text in differences(seed)] == []
