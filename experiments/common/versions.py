"""Versions of the libraries that a study compares with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

PEERS = ("jax", "torch", "numba")


def versions() -> dict[str, str]:
    """By name; `missing` for one that is not installed."""
    found: dict[str, str] = {}
    for name in PEERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found
