"""The page of operations that are read is that of the rules."""

from pathlib import Path

import pytest

pytest.importorskip("jaxlib", reason="needs jaxlib: pip install 'autofuse[jax]'")

from autofuse.frontend.stablehlo.coverage import page


def test_the_page_is_made_of_the_rules():
    """If this fails: python -m autofuse.frontend.stablehlo.coverage > docs/stablehlo.md."""
    assert (Path(__file__).parents[3] / "docs" / "stablehlo.md").read_text(encoding="utf-8") == page()
