"""What tests of `autofuse.jax` share; without JAX they are skipped."""

from __future__ import annotations

import pytest

pytest.importorskip("jax", minversion="0.10", reason="needs JAX 0.10: pip install 'autofuse[jax]'")
