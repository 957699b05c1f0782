"""One machine that every test knows: what is priced on it costs the same wherever the tests run."""

from __future__ import annotations

from autofuse.lazydataclass import replace
from autofuse.targets.cpu.device.defaults import default_calibration
from autofuse.targets.cpu.device.describe import CpuDescription, vector_bits
from autofuse.targets.cpu.machine import Machine

_ISA = ("avx", "avx2", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl", "bmi2", "f16c", "fma", "sse4_2")
_THREADS = 2

SERVER = CpuDescription(
    architecture="x86_64",
    model="a server that tests know",
    isa=_ISA,
    cores=_THREADS,
    logical=_THREADS,
    threads=_THREADS,
    l1d_bytes=48 << 10,
    l2_bytes=2 << 20,
    l3_bytes=32 << 20,
    line_bytes=64,
    memory_bytes=16 << 30,
    quota_cores=None,
    calibration=default_calibration(vector_bits(_ISA), _THREADS, 32 << 20),
)
"""Two cores with vectors of 512 bits and the caches of a current server, with default numbers."""

SERVER_MACHINE = Machine("x86_64-unknown-linux-gnu", "x86-64-v4", "+avx512bw,+avx512dq,+avx512f,+avx512vl", 512)
"""What kernels are generated for there, for tests that read their text: this machine may not be able to run them."""


def server(threads: int) -> CpuDescription:
    """The same machine with that many cores, all of which plans use."""
    calibration = default_calibration(SERVER.vector_bits, threads, SERVER.l3_bytes)
    return replace(SERVER, cores=threads, logical=threads, threads=threads, calibration=calibration)
