"""Features of kernels of every kind, bit by bit: making them faster must not change them."""

import hashlib

import numpy as np

from autofuse.cost_models.features import COLUMNS, matrix
from autofuse.errors import LegalityError
from autofuse.lower.lowering import lower
from autofuse.targets.cpu.cost.extract import features
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.devices import server
from autofuse.testing.fusions import whole_kernel
from autofuse.testing.graphs import random_graph
from autofuse.testing.sketches import softmax_graph

LIMITS = CpuTarget(server(2)).limits


def told():
    """A paragraph for each kernel: its row, zeros left out, and a digest of all else."""
    graphs = {"softmax": softmax_graph(96, 1000)}
    graphs |= {f"random {seed}": random_graph(np.random.default_rng(seed), 10) for seed in range(24)}
    for name, graph in graphs.items():
        for schedule in (cpu_schedule(), cpu_schedule(unroll=2, vector_bits=256)):
            try:
                program = lower(whole_kernel(graph), schedule, "kernel", LIMITS)
            except LegalityError:
                continue
            found = features(program)
            row = [f"{column} {value!r}" for column, value in zip(COLUMNS, matrix([found])[0].tolist(), strict=True)]
            shown = ", ".join(one for one in row if not one.endswith(" 0.0"))
            yield f"{name}, {schedule.to_json()}: {hashlib.sha256(repr(found).encode()).hexdigest()[:16]}\n  {shown}\n"


def test_features_stay_as_they_are(golden):
    golden.check("cpu/features.txt", "\n".join(told()))
