"""Random numbers under trace: drawn while tracing, they would be the same in every call, so drawing them is an error.

A generator that the traced function makes itself from a seed draws the same numbers in every call of NumPy's too: that
is left alone. Everything else draws from a state outside the function: generators in globals, closures, attributes and
defaults, the functions of `numpy.random`, `random` and `secrets`, `os.urandom`, `uuid.uuid1` and `uuid.uuid4`. Clocks
are let through: a function that times itself for a log is no other function.
"""

from __future__ import annotations

import os
import random
import secrets
import uuid
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from autofuse.errors import TraceError
from autofuse.frontend.generators import TracedGenerator
from autofuse.frontend.location import trace_error

_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
_SEEDED = (
    *(np.random.default_rng, np.random.RandomState, np.random.SeedSequence, random.Random),
    *(np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.MT19937, np.random.SFC64),
)
"""What makes a generator from a seed; unseeded, from the system's entropy."""
_ENTROPY = (os.urandom, os.getrandom, uuid.uuid1, uuid.uuid4)
_SEES_THROUGH = (os, uuid)
"""Modules of which only some functions draw."""


def source_of_numbers(value: Any) -> Any:
    """What stands for `value` in a traced function if it draws random numbers; else None."""
    if type(value) is TracedGenerator or type(getattr(value, "__self__", None)) is TracedGenerator:
        return None  # an argument's
    if isinstance(value, ModuleType):
        whole = value.__name__.startswith("numpy.random") or value in (random, secrets)
        return RandomModule(value) if whole else DrawingModule(value) if value in _SEES_THROUGH else None
    if isinstance(value, _GENERATORS):
        return FrozenGenerator(value)
    if isinstance(value, MethodType | BuiltinFunctionType) and isinstance(value.__self__, _GENERATORS):
        return _refusing(f"{_title(value.__self__)}.{value.__name__}")
    if isinstance(value, FunctionType) and value.__module__ == secrets.__name__:
        return _refusing(f"secrets.{value.__name__}")
    if any(value is maker for maker in _SEEDED):
        return _seeded(value)
    if any(value is function for function in _ENTROPY):
        return _refusing(f"{value.__module__}.{value.__name__}")
    return None


class FrozenGenerator:
    """A generator that the traced function did not make: it can be passed around, not used."""

    def __init__(self, generator: Any) -> None:
        self._autofuse_generator = generator

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]  # nobody assigns it
        """The generator's own, so that isinstance says what the user expects."""
        return type(self._autofuse_generator)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _frozen(f"{_title(self._autofuse_generator)}.{name}, of a generator made outside the traced function,")


class DrawingModule(ModuleType):
    """A module some of whose functions draw random numbers."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__, module.__doc__)
        self._autofuse_module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._autofuse_module, name)
        found = source_of_numbers(value)
        return value if found is None else found


class RandomModule(DrawingModule):
    """A module all of whose functions draw random numbers, but for those that make a generator from a seed."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._autofuse_module, name)
        found = source_of_numbers(value)
        if found is not None:
            return found
        return _refusing(f"{self.__name__}.{name}") if callable(value) and value is not np.random.Generator else value


def _seeded(maker: Any) -> Any:
    def make(*args: Any, **kwargs: Any) -> Any:
        seeds = (*args, *kwargs.values())
        if not seeds or seeds[0] is None:
            raise _frozen(f"{maker.__module__}.{maker.__name__}() without a seed")
        if isinstance(seeds[0], FrozenGenerator):  # default_rng(rng) is rng itself
            return seeds[0]
        return maker(*args, **kwargs)

    return make


def _refusing(what: str) -> Any:
    def draw(*args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        raise _frozen(what)

    return draw


def _frozen(what: str) -> TraceError:
    return trace_error(
        f"{what} would freeze today's numbers into the graph",
        "af.random.uniform(key) and the like, with a key, af.random.key(seed), as an argument; or a generator,"
        " np.random.Generator(np.random.Philox(seed)), as an argument; or draw them outside and pass them as an"
        " argument; where every call is meant to use the same numbers, make the generator inside the function, from a"
        " seed: np.random.default_rng(0)",
    )


def _title(generator: Any) -> str:
    """What a generator's class is called: `np.random.Generator`."""
    kind = type(generator)
    module = "np.random" if kind.__module__.startswith("numpy.random") else kind.__module__
    return f"{module}.{kind.__name__}"
