"""What walking blocks of elements takes, counted by hand."""

import numpy as np
import pytest

import autofuse as af
from autofuse.lazydataclass import replace
from autofuse.targets.cpu.cost.extract import FeatureReader, features
from tests.fixtures.loopprograms import KEY
from tests.targets.cpu.test_rare_sides import lowered, restarted

F32 = np.float32
X = np.ones(4096, F32)
VECTORS = 256


def costly(x):
    return np.where(x > 1, np.tanh(np.log1p(np.exp(x))), x)


def first_stage(function, *arguments, **schedule):
    program, _ = lowered(function, arguments, **schedule)
    (phase,) = features(program).phases
    return phase.stages[0]


def test_a_packed_side_is_computed_for_half_of_the_elements_and_picks_them():
    always, packed = (first_stage(costly, X, sides=sides) for sides in ("always", "packed"))
    for name in ("exp", "log", "tanh"):
        assert packed.operations[name, "f32"] == always.operations[name, "f32"] / 2
    # x again behind the side, and the side's results; x once more for elements that are packed
    assert always.accesses.contiguous == 2 * VECTORS
    assert packed.accesses.contiguous == 4 * VECTORS
    assert (always.accesses.gather, packed.accesses.gather) == (0, VECTORS)
    assert packed.accesses.gathered_elements == 16 * VECTORS
    assert packed.operations["gather", "f32"] == packed.operations["scatter", "f32"] == VECTORS / 2
    assert packed.operations["integer", "f32"] == 8 * VECTORS


def test_elements_outside_of_loops_compute_both_sides_unasked():
    assert first_stage(costly, X) == first_stage(costly, X, sides="always") == first_stage(costly, X, sides="any")


def grown(x):
    return af.scan(lambda s, _: (s * F32(0.5) + F32(1), None), x, None, length=10)[0]


def test_state_in_the_cache_is_read_and_written_in_every_iteration():
    registers, cache = (first_stage(grown, X, state=state) for state in ("registers", "cache"))
    assert cache.accesses.contiguous - registers.accesses.contiguous == 2 * 10 * VECTORS
    assert cache.operations == registers.operations
    assert registers.chain / cache.chain == pytest.approx(VECTORS / 4 / cache_blocks(VECTORS))


def cache_blocks(vectors):
    """Blocks of 24 KiB for the state and what else a line may keep, five times a vector."""
    return -(-vectors // ((24 << 10) // (5 * 64) // 4 * 4))


def test_loops_that_pack_by_themselves_are_priced_so():
    arguments = KEY, np.ones(512, F32)
    auto, packed, branch = (first_stage(restarted, *arguments, sides=s) for s in ("auto", "packed", "any"))
    assert auto == packed
    assert sum(auto.operations.values()) < sum(branch.operations.values())


def test_a_reader_tells_ways_to_walk_a_loop_apart():
    program, _ = lowered(restarted, (KEY, np.ones(512, F32)))
    reader = FeatureReader()
    for steered in ({"sides": "any"}, {"sides": "packed"}, {"sides": "any", "state": "cache"}):
        one = replace(program, schedule=lowered(restarted, (KEY, X), **steered)[0].schedule)
        assert reader.features(one) == features(one)
