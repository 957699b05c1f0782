"""State of loops that is read and written element by element stays in memory."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import LegalityError
from autofuse.fusion.memorystate import in_memory
from autofuse.fusion.nodeaxes import is_loop
from autofuse.ir import dtypes
from autofuse.ir.index import Affine
from autofuse.lower.limits import Limits
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.statelowering import in_memory_order
from autofuse.lower.statements import Load, Map, Store
from autofuse.lower.tile import OpaqueProgram, Space, TileProgram
from autofuse.passes.pipeline import clean
from tests.fixtures.randomloops import random_updates
from tests.lower.test_loops import compare, stages, whole

LIMITS = Limits(updates=True)


def bubbles(x):
    a = x.copy()
    for _ in range(len(a)):
        for j in range(len(a) - 1):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]
    return a


def counts(x):
    h = np.zeros(20, np.int64)
    for v in x:
        h[int(v * 20)] += 1
    return h


def edges(x):
    found = np.zeros((20, 20), bool)
    for i in range(1, 19):
        for j in range(1, 19):
            if x[i, j] < 0.5:
                continue
            if x[i, j] > x[i, j - 1]:
                found[i, j] = True
            elif x[i, j] > x[i - 1, j]:
                found[i - 1, j] = True
    return found


def distances(a, b):
    d = np.zeros((len(a) + 1, len(b) + 1), np.int64)
    for i in range(1, len(a) + 1):
        d[i, 0] = i
        for j in range(1, len(b) + 1):
            other = d[i - 1, j - 1] + (a[i - 1] != b[j - 1])
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, other)
    return d


def insertions(x):
    a = x.copy()
    for i in range(1, len(a)):
        key, j = a[i], i - 1
        while j >= 0 and a[j] > key:
            a[j + 1] = a[j]
            j = j - 1
        a[j + 1] = key
    return a


def selections(x):
    a = x.copy()
    for i in range(len(a)):
        m = i
        for j in range(len(a)):
            if j > i and a[j] < a[m]:
                m = j
        a[i], a[m] = a[m], a[i]
    return a


def coins(values):
    fewest = np.zeros(70)
    for i in range(1, 70):
        least = 99.0
        for j in range(len(values)):
            if values[j] <= i:
                least = min(least, fewest[i - values[j]] + 1)
        fewest[i] = least
    return fewest


def unions(edges):
    roots = np.arange(40)
    for k in range(edges.shape[0]):
        u, v = edges[k, 0], edges[k, 1]
        while roots[u] != u:
            u = roots[u]
        while roots[v] != v:
            v = roots[v]
        roots[u] = v
    return roots


def distances_from_a_corner(wall):
    """A queue, which nobody asks for in the end."""
    far = -np.ones(wall.shape, np.int64)
    queue = np.zeros((wall.size, 2), np.int64)
    far[0, 0] = head = 0
    tail = 1
    while head < tail:
        y, x = queue[head, 0], queue[head, 1]
        head += 1
        for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            v, u = y + dy, x + dx
            if 0 <= v < wall.shape[0] and 0 <= u < wall.shape[1] and not wall[v, u] and far[v, u] < 0:
                far[v, u] = far[y, x] + 1
                queue[tail, 0], queue[tail, 1] = v, u
                tail += 1
    return far


def generations(alive):
    for _ in range(17):
        following = alive.copy()
        for i in range(1, alive.shape[0] - 1):
            for j in range(1, alive.shape[1] - 1):
                around = alive[i - 1 : i + 2, j - 1 : j + 2].sum() - alive[i, j]
                if around == 3:
                    following[i, j] = 1
                elif around != 2:
                    following[i, j] = 0
        alive = following
    return alive


RNG = np.random.default_rng(0)
PROGRAMS = {
    insertions: (RNG.random(67),),
    selections: (RNG.random(35),),
    coins: (RNG.integers(1, 20, 17),),
    unions: (RNG.integers(0, 40, (30, 2)),),
    bubbles: (RNG.random(81),),
    counts: (RNG.random(133),),
    edges: (RNG.random((20, 20)),),
    distances: (RNG.integers(0, 4, 17), RNG.integers(0, 4, 23)),
}


@pytest.mark.parametrize("function", PROGRAMS)
def test_loops_over_elements_are_kernels(function):
    arguments = PROGRAMS[function]
    plan = af.compile(function, *arguments)
    assert "driver" not in [kernel.kind for kernel in plan.kernels]
    out = np.full_like(function(*arguments), 7)
    plan(*arguments, out=out)
    np.testing.assert_array_equal(out, function(*arguments))


def test_a_queue_that_nobody_asks_for_stays_in_memory():
    wall = RNG.random((17, 13)) < 0.3
    plan = af.compile(distances_from_a_corner, wall)
    assert plan.kernels[-1].kind == "loop"  # those before are the first iteration's branches
    np.testing.assert_array_equal(plan(wall), distances_from_a_corner(wall))


def test_an_array_that_is_read_as_it_was_is_another_one():
    """The old generation is read while the new one is made: each step is a kernel, and the driver runs the steps."""
    alive = (RNG.random((19, 21)) < 0.5).astype(np.int64)
    plan = af.compile(generations, alive)
    assert [kernel.kind for kernel in plan.kernels] == ["driver"]
    np.testing.assert_array_equal(plan(alive), generations(alive.copy()))


def lowered(function, arguments):
    program = lower(whole(function, arguments), Schedule(), "kernel", LIMITS)
    assert isinstance(program, TileProgram)
    return program


def test_a_launch_sets_the_state_and_one_worker_changes_it():
    program = lowered(bubbles, PROGRAMS[bubbles])
    (first,), (second,) = program.launches
    assert [s.extent for s in first.grid] == [81]
    assert not second.grid
    assert [buffer.space for buffer in program.buffers if buffer.is_state] == [Space.OUTPUT]
    loop = stages(program)[-1]
    assert loop.in_order
    assert sum(isinstance(s, Store) for s in loop.body) == 2


@pytest.mark.parametrize("seed", [300, 302])
def test_random_updates_as_one_kernel(seed):
    function, arguments = random_updates(seed)
    compare(whole(function, arguments), arguments, LIMITS)


@pytest.mark.parametrize("seed", [300, 302, 305])
@pytest.mark.parametrize("asked", [(0, 2), (1, 2), (2,)])
def test_state_that_nobody_asks_for_is_kept_too(seed, asked):
    function, arguments = random_updates(seed)
    candidate = whole(lambda *given: [function(*given)[number] for number in asked], arguments)
    compare(candidate, arguments, LIMITS)
    program = lower(candidate, Schedule(), "kernel", LIMITS)
    assert {buffer.space for buffer in program.buffers if buffer.is_state} >= {Space.WORKSPACE}


def test_targets_without_such_code_leave_it_to_the_driver():
    candidate = whole(bubbles, PROGRAMS[bubbles])
    program = lower(candidate, Schedule(), "kernel")
    assert isinstance(program, OpaqueProgram)
    assert "is kept in memory by a loop" in program.reason


def test_what_is_written_whole_is_not_kept_in_memory():
    def rows(x):
        def step(i, a):
            a = a.copy()
            a[i] = a[(i * 3) % 9] + x
            return a

        return af.fori_loop(0, 9, step, np.zeros((9, 40), np.float32))

    graph = clean(af.trace(rows, np.zeros(40, np.float32)))
    assert not any(in_memory(node) for node in graph.nodes if is_loop(node))


def test_loads_find_their_version():
    def load(result, source):
        return Load(result, dtypes.F32, "a", Affine(source))

    def store(value):
        return Store("a", Affine(1), value)

    body = [load(0, 1), Map(1, dtypes.F32, "negate", (0,)), store(1), load(2, 1), load(3, 2), store(2)]
    ordered = in_memory_order(body, {0: 0, 2: 1, 3: 0}, {2: 0, 5: 1})
    assert ordered == [load(0, 1), Map(1, dtypes.F32, "negate", (0,)), load(3, 2), store(1), load(2, 1), store(2)]
    late = [load(0, 1), store(0), load(2, 1), Map(1, dtypes.F32, "negate", (2,)), load(3, 1), store(3)]
    assert in_memory_order(late, {0: 0, 2: 1, 3: 1}, {1: 0, 5: 1}) == late
    with pytest.raises(LegalityError, match="read after it was replaced"):
        in_memory_order([store(2), load(2, 1)], {2: 1}, {0: 0})
