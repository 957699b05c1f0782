"""What holds for all tests of a session, however busy the machine is and whichever ran before."""

import inspect
import random

import numpy as np
import pytest

import autofuse as af

RNG, DICE = np.random.default_rng(0), random.Random(0)
AT_IMPORT = RNG.random(), DICE.random()


def after(numbers):
    """The number that follows the one that was drawn when this module was imported."""
    numbers.random()
    return numbers.random()


@pytest.fixture
def drawn():
    return RNG.random(), DICE.random()


@pytest.mark.parametrize("which", ["first", "second"])
def test_each_test_draws_what_follows_the_draws_of_its_module(which, drawn):
    assert drawn == (after(np.random.default_rng(0)), after(random.Random(0)))
    assert (RNG.random(), DICE.random()) == drawn


@pytest.mark.parametrize("face", [af.compile, af.jit])
def test_there_is_time_to_choose_fusions(face):
    assert inspect.signature(face).parameters["deadline"].default >= 600.0
