"""A kernel under several schedules: compiled beside each other, refused one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import AutofuseError, BackendError
from autofuse.targets.cuda.decisions import THREADS, cuda_schedule
from autofuse.targets.cuda.driver import CudaCode, Function
from autofuse.targets.cuda.gpus import H200
from autofuse.targets.cuda.runners import CudaRunner
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget

X = np.ones((6, 40), np.float32)


class NarrowDriver(SimulatedDriver):
    """A device that takes no schedule with more than 128 threads a block."""

    def load(self, codes: Sequence[CudaCode]) -> Sequence[Function]:
        if any(code.program.schedule[THREADS] > 128 for code in codes):
            raise BackendError("too many threads")
        return super().load(codes)


@pytest.mark.parametrize(
    ("threads", "refused"), [((64, 128), (False, False)), ((512, 64, 256), (True, False, True)), ((512,), (True,))]
)
def test_a_schedule_that_a_device_refuses_does_not_keep_others_back(
    threads: Sequence[int], refused: Sequence[bool]
) -> None:
    (option,) = af.candidates(np.exp, X).options
    target = SimulatedTarget(H200, NarrowDriver(H200), "simulated")
    found = target.runners(option.candidate.kernel, [cuda_schedule(threads=width) for width in threads])
    assert [isinstance(one, AutofuseError) for one in found] == list(refused)
    for runner in found:
        if isinstance(runner, CudaRunner):
            out = np.full_like(X, np.nan)
            assert runner.run_into([X], [out])
            np.testing.assert_allclose(out, np.exp(X), rtol=1e-6)
