"""Every target keeps the contract of `autofuse.targets.base`."""

import pytest

from autofuse.errors import ArgumentError
from autofuse.targets.registry import names
from autofuse.testing.targets import BackendContract, TargetContract


class TestCpu(TargetContract):
    """Native code on this machine."""

    name = "cpu"


class TestCounted(TargetContract):
    """Counted work."""

    name = "counted"


class TestCuda(BackendContract):
    """A GPU, which need not be here. `TestSimulated` runs what it runs."""

    name = "cuda"

    def test_a_named_device_is_a_target_without_a_gpu(self):
        target = self.backend.target(device="a100")
        assert target.device.name.startswith("A100")
        assert self.backend.target_of(target.identity).identity == target.identity

    def test_calibrating_takes_no_threads(self):
        with pytest.raises(ArgumentError, match="threads=2: must be None"):
            self.backend.calibrate(1.0, print, 2, force=False)


class TestSimulated(TargetContract):
    """CUDA C in the shim, behind the driver's interface."""

    name = "simulated"


def test_no_target_is_left_out():
    assert {kept.name for kept in (TestCpu, TestCounted, TestCuda, TestSimulated)} == set(names())
