"""What LLVM makes of random bits."""

import re

import numpy as np

import autofuse as af
from autofuse.targets.cpu.native.engine import Engine

KEY = af.random.key(0)


def instructions(dtype):
    """How many instructions the kernel takes that draws bits of a dtype."""
    plan = af.compile(lambda key: af.random.bits(key, (4096,), dtype), KEY)
    ((_, text),) = plan.source().items()
    np.testing.assert_array_equal(plan(KEY), af.random.bits(KEY, (4096,), dtype))
    return len(re.findall(r"^\t[a-z]\w+\t", Engine().emit_assembly(text), re.MULTILINE))


def test_both_words_of_a_counter_are_made_by_one_run_of_the_rounds():
    """Numbers of 64 bits are both words, numbers of 32 bits one; both loops have as many rounds."""
    assert instructions(np.uint64) < 1.3 * instructions(np.uint32)
