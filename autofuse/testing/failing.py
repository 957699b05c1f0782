"""A graph with kernels that fail as `faults` makes them, and a bench for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.ir.graph import Graph
from autofuse.measurement.client import Bench
from autofuse.measurement.database import Database
from autofuse.testing.graphs import random_inputs
from autofuse.testing.partitions import identity_here
from autofuse.testing.sketches import Sketch

FAILURES = ("crash", "hang", "wrong", "raise")


def _example() -> Graph:
    sketch = Sketch("example")
    x = sketch.arg("f32[16,8]")
    outputs = [sketch.op("exp", x, name="fine")]
    for number, name in enumerate(FAILURES):
        outputs.append(sketch.op("multiply", x, sketch.splat(number, x), name=name))
    outputs += [sketch.fold(x, 0, name="columns"), sketch.fold(x, 1, name="rows")]
    return sketch.finish(outputs)


GRAPH = _example()
"""`fine` and one node per way to fail, all of the same value; and two sums that are no kernel together."""


def bench_on(database: Database, *, seed: int = 0, last: float | None = None, **options: Any) -> Bench:
    """A bench of that graph with one thread. `last`: an element of the argument. `options`: as for `Bench`."""
    inputs = random_inputs(GRAPH, np.random.default_rng(seed))
    if last is not None:
        inputs[0][-1, -1] = last
    return Bench(GRAPH, inputs, database, identity_here(), threads=1, time_cap_us=2000.0, **options)
