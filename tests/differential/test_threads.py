"""A plan gives the same bits on every run, whatever the threads and whoever takes which part of a launch."""

from dataclasses import replace

import numpy as np
import pytest

import autofuse as af
from autofuse.targets.cpu.executable import build_executable
from autofuse.targets.cpu.native import threadcount
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.devices import server
from tests.fixtures.pools import eager_workers

pytestmark = pytest.mark.usefixtures("on_server")  # with two threads, wherever this is


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def standardised(x):
    return (x - x.mean(axis=0)) / x.std(axis=0)


def projected(x, w):
    return np.tanh(x @ w).sum(axis=1)


X = np.random.default_rng(7).standard_normal((500, 700)).astype(np.float32)
W = np.random.default_rng(8).standard_normal((700, 64)).astype(np.float32)

PROGRAMS = {
    "sum": (lambda x: (x * x).sum(), (X,)),
    "columns": (lambda x: (x + 1).sum(axis=0), (X,)),
    "softmax": (softmax, (X,)),
    "standardised": (standardised, (X,)),
    "cumsum": (lambda x: np.cumsum(x, axis=1), (X,)),
    "projected": (projected, (X, W)),
    "elementwise": (lambda x: np.exp(np.sin(x)) / (x * x + 1), (X,)),
}


@pytest.fixture(autouse=True)
def _eager_workers():
    with eager_workers():
        yield


@pytest.mark.parametrize("name", PROGRAMS)
def test_threads_and_their_timing_change_no_bit(name):
    function, args = PROGRAMS[name]
    document = af.compile(function, *args, threads=2).document
    document = replace(document, identity=replace(document.identity, threads=threadcount.MAX_THREADS))
    executable = build_executable(document, CpuTarget(server(2)).limits)
    seen = set()
    for threads in (1, 2, 3, 5) * 5:
        threadcount.set_num_threads(threads)
        seen.add(executable.run(args)[0].tobytes())
    assert len(seen) == 1
