"""Made-up hosts: a test session takes this machine for another, and so do the processes that it starts."""

import json
import subprocess
import sys

import pytest

from autofuse.targets.cpu import machine
from autofuse.targets.cpu.device import detect
from tests.hosts import HOSTS, tell_children

ASKED = """
import json, os
from autofuse.targets.cpu.machine import host_machine
from autofuse.targets.cpu.device.detect import detect
import numpy._core._multiarray_umath as numpy_core

cpu, target = detect(), host_machine()
print(json.dumps({
    "caches": [cpu.l1d_bytes, cpu.l2_bytes, cpu.l3_bytes],
    "cpus": [cpu.cores, cpu.threads, len(os.sched_getaffinity(0))],
    "bits": [cpu.vector_bits, target.vector_bits],
    "wide": [name for name in target.features.split(",") if name.startswith(("+avx512", "+avx10", "+amx"))],
    "numpy": [name for name in numpy_core.__cpu_dispatch__ if "512" in name or name == "X86_V4"],
    "disabled": os.environ.get("NPY_DISABLE_CPU_FEATURES", "").split(),
}))
"""


def child_of(host, folder):
    """What a process that finds `folder` on its path takes its machine for."""
    tell_children(host, folder)
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import sitecustomize\n"
    hidden = "sys.modules.pop('sitecustomize', None)\n"  # this very session may have one
    done = subprocess.run(
        [sys.executable, "-c", code.replace("import sitecustomize", hidden + "import sitecustomize") + ASKED],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_small_caches(tmp_path):
    assert child_of("small-caches", tmp_path)["caches"] == [32 << 10, 256 << 10, 2 << 20]


@pytest.mark.parametrize("number", [0, 1])
def test_one_core(number):
    code = f"from tests.hosts import narrow\nnarrow('one-core', {number})\n{ASKED}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["cpus"] == [1, 1, 1]


def test_vectors_of_256_bits_in_prices_and_in_code(tmp_path):
    found = child_of("avx2", tmp_path)
    assert max(found["bits"]) <= 256
    assert found["bits"][0] == found["bits"][1]
    assert found["wide"] == []
    assert set(found["numpy"]) <= set(found["disabled"])


def test_code_uses_no_feature_that_the_description_lacks(monkeypatch):
    """A hypervisor may hide from the system what the CPU itself tells LLVM."""
    real = detect.hardware()
    described = tuple(feature for feature in real.isa if not feature.startswith(("avx512", "amx")))
    changed = detect.Hardware("as described", described, real.l1d_bytes, real.l2_bytes, real.l3_bytes, 64)
    monkeypatch.setattr(detect, "hardware", lambda: changed)
    monkeypatch.setattr(
        machine.llvm, "get_host_cpu_features", lambda: {"avx2": True, "avx512f": True, "amx-tile": True}
    )
    narrowed = machine.host_machine()
    assert narrowed.vector_bits == 256
    assert narrowed.features == "-amx-tile,+avx2,-avx512f"
    monkeypatch.setattr(detect, "hardware", lambda: detect.Hardware("tells nothing", (), 1, 1, 1, 64))
    assert machine.host_machine().has("avx512f")


def test_every_host_has_a_name_that_pytest_takes(request):
    assert request.config.getoption("--host") in (None, *HOSTS)


@pytest.mark.skipif(detect.hardware().isa == (), reason="this system does not tell its features")
def test_this_very_session_runs_code_as_wide_as_it_prices():
    assert machine.host_machine().vector_bits == detect.detect().vector_bits
