"""Tests. A package, so that `tests.fixtures` is this one whatever else is installed."""
