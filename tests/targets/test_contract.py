"""Every target keeps the contract of `autofuse.targets.base`."""

import pytest

from autofuse.errors import BackendError
from autofuse.targets.registry import names
from autofuse.testing.targets import BackendContract, TargetContract


class TestCpu(TargetContract):
    """Native code on this machine."""

    name = "cpu"


class TestCounted(TargetContract):
    """Counted work."""

    name = "counted"


class TestCuda(BackendContract):
    """Its kernels are generated, and no plan runs on it yet."""

    name = "cuda"

    def test_it_says_that_no_plan_runs_on_it(self):
        for ask in (self.backend.target, lambda: self.backend.calibrate(1.0, print, None, force=False)):
            with pytest.raises(BackendError, match=r"cuda.*use backend='cpu'"):
                ask()


def test_no_target_is_left_out():
    assert {kept.name for kept in (TestCpu, TestCounted, TestCuda)} == set(names())
