"""What all tests of the search share."""

import gc

import pytest


@pytest.fixture(scope="session", autouse=True)
def _held_for_good():
    """Each session of a bench begins by collecting what the one before left: all that pytest holds is not that."""
    gc.freeze()
