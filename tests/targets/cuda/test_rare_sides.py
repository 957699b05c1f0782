"""Costly sides of choices as branches in generated CUDA C: the same bits, and the side is inside of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.interpreter import interpret
from autofuse.targets.cuda.gpus import H200
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget

F32 = np.float32


def renewed(key: Any, x: Any) -> Any:
    """Lanes that have gone far begin anew at a random place, which takes many instructions to draw."""

    def step(carry: Any, _: Any) -> Any:
        key, s = carry
        key, sub = af.random.split(key)
        s = s * F32(1.25)
        return (key, np.where(np.abs(s) > F32(2), af.random.uniform(sub, s.shape, F32), s)), None

    return af.scan(step, (key, x), None, length=9)[0][1]


@pytest.mark.parametrize("lanes", [1, 37])
def test_the_side_is_computed_where_a_thread_takes_it(lanes: int) -> None:
    arguments = np.array([0, 5], np.uint32), np.linspace(-1, 1, lanes, dtype=F32)
    driver = SimulatedDriver(H200)
    target: Any = SimulatedTarget(H200, driver, "simulated")
    plan = af.compile(renewed, *arguments, backend="simulated")
    (code,) = (text for text in plan.source().values() if "for (" in text)
    loop = code[code.index("for (") :]
    assert "if (" in loop
    branch = loop[loop.index("if (") :]
    assert "threefry" in branch[: branch.index("}")]
    executable = target.executable(plan.document)
    for driver.order in ("forward", "reverse"):
        (found,) = executable.run(list(arguments))
        np.testing.assert_array_equal(found, interpret(plan.graph, *arguments)[0])
