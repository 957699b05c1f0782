"""GPU descriptions: what code generation, occupancy and cost need to know of a part, as data with its source.

Figures per multiprocessor and per block are those of the compute capability (CUDA C++ Programming Guide, table
"Technical Specifications per Compute Capability"); the rest is from the vendor's data sheet of the part.
"""

from __future__ import annotations

from autofuse.errors import BackendError, did_you_mean
from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU."""

    name: str
    arch: str
    """What NVRTC calls its architecture: `sm_90`."""
    multiprocessors: int
    registers: int
    """32-bit registers of one multiprocessor."""
    shared_bytes: int
    """Shared memory of one multiprocessor that blocks can use together, the 1 KiB reserved per block included."""
    shared_bytes_per_block: int
    """The most that one block may ask for (opt-in above 48 KiB)."""
    threads: int
    """Resident threads of one multiprocessor."""
    blocks: int
    """Resident blocks of one multiprocessor."""
    l2_bytes: int
    memory_bytes: int
    memory_bytes_per_s: float
    clock_hz: float
    """Boost clock."""
    f32_flops: float
    """Peak of the ordinary (not matrix) units, a fused multiply-add counted as two."""
    matrix_flops: float
    """Dense bf16 peak of the matrix units, sums in f32."""
    tf32_flops: float
    """Dense TF32 peak of the matrix units: of f32 operands rounded to 10 bits behind the first, sums in f32."""
    source: str

    @property
    def f32_per_clock(self) -> float:
        """Operations on f32 that a multiprocessor ends in a cycle, a fused multiply-add counted as one."""
        return round(self.f32_flops / (2 * self.multiprocessors * self.clock_hz))

    @property
    def f64_per_clock(self) -> int:
        """The same on f64: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions"."""
        return _F64_PER_CLOCK.get(self.arch, 2)


_GIB = 1 << 30
_MIB = 1 << 20

H100_SXM = Gpu(
    name="H100 SXM",
    arch="sm_90",
    multiprocessors=132,
    registers=65536,
    shared_bytes=228 * 1024,
    shared_bytes_per_block=227 * 1024,
    threads=2048,
    blocks=32,
    l2_bytes=50 * _MIB,
    memory_bytes=80 * _GIB,
    memory_bytes_per_s=3.35e12,
    clock_hz=1.98e9,
    f32_flops=66.9e12,
    matrix_flops=989e12,
    tf32_flops=494.5e12,
    source="NVIDIA H100 Tensor Core GPU data sheet (bf16 and TF32 halved: it gives figures with sparsity); H100 "
    "architecture white paper v1.04, table 3",
)
H100_PCIE = Gpu(
    name="H100 PCIe",
    arch="sm_90",
    multiprocessors=114,
    registers=65536,
    shared_bytes=228 * 1024,
    shared_bytes_per_block=227 * 1024,
    threads=2048,
    blocks=32,
    l2_bytes=50 * _MIB,
    memory_bytes=80 * _GIB,
    memory_bytes_per_s=2.0e12,
    clock_hz=1.755e9,
    f32_flops=51.2e12,
    matrix_flops=756e12,
    tf32_flops=378e12,
    source="NVIDIA H100 PCIe product brief PB-11133 (bf16 and TF32 halved, as above); H100 architecture white paper "
    "v1.04, table 3",
)
H200 = Gpu(
    name="H200",
    arch="sm_90",
    multiprocessors=132,
    registers=65536,
    shared_bytes=228 * 1024,
    shared_bytes_per_block=227 * 1024,
    threads=2048,
    blocks=32,
    l2_bytes=60 * _MIB,
    memory_bytes=141 * 10**9,
    memory_bytes_per_s=4.8e12,
    clock_hz=1.98e9,
    f32_flops=66.9e12,
    matrix_flops=989e12,
    tf32_flops=494.5e12,
    source="NVIDIA H200 Tensor Core GPU data sheet (bf16 and TF32 halved, as above); L2 as the driver reports it",
)
A100 = Gpu(
    name="A100 SXM 80 GB",
    arch="sm_80",
    multiprocessors=108,
    registers=65536,
    shared_bytes=164 * 1024,
    shared_bytes_per_block=163 * 1024,
    threads=2048,
    blocks=32,
    l2_bytes=40 * _MIB,
    memory_bytes=80 * _GIB,
    memory_bytes_per_s=2.039e12,
    clock_hz=1.41e9,
    f32_flops=19.5e12,
    matrix_flops=312e12,
    tf32_flops=156e12,
    source="NVIDIA A100 Tensor Core GPU data sheet; A100 architecture white paper, table 4",
)

L4 = Gpu(
    name="L4",
    arch="sm_89",
    multiprocessors=58,
    registers=65536,
    shared_bytes=100 * 1024,
    shared_bytes_per_block=99 * 1024,
    threads=1536,
    blocks=24,
    l2_bytes=48 * _MIB,
    memory_bytes=24 * _GIB,
    memory_bytes_per_s=300e9,
    clock_hz=2.04e9,
    f32_flops=30.3e12,
    matrix_flops=121e12,
    tf32_flops=60.5e12,
    source="NVIDIA L4 Tensor Core GPU data sheet (bf16 and TF32 halved: it gives figures with sparsity); L2 as the Ada "
    "architecture white paper v2 has it for AD104; multiprocessors and boost clock as the driver reports them",
)
RTX_4090 = Gpu(
    name="RTX 4090",
    arch="sm_89",
    multiprocessors=128,
    registers=65536,
    shared_bytes=100 * 1024,
    shared_bytes_per_block=99 * 1024,
    threads=1536,
    blocks=24,
    l2_bytes=72 * _MIB,
    memory_bytes=24 * _GIB,
    memory_bytes_per_s=1.008e12,
    clock_hz=2.52e9,
    f32_flops=82.6e12,
    matrix_flops=165.2e12,
    tf32_flops=82.6e12,
    source="NVIDIA Ada GPU architecture white paper v2, appendix A, GeForce RTX 4090 (bf16 with f32 sums, TF32)",
)

ALL: dict[str, Gpu] = {
    "h100": H100_SXM,
    "h100-pcie": H100_PCIE,
    "h200": H200,
    "a100": A100,
    "l4": L4,
    "rtx4090": RTX_4090,
}
"""By the name that `device=` takes."""

_SHARED_KIB_PER_BLOCK = {
    "sm_75": 64,
    "sm_80": 163,
    "sm_86": 99,
    "sm_87": 163,
    "sm_89": 99,
    "sm_90": 227,
    "sm_100": 227,
    "sm_103": 227,
    "sm_110": 227,
    "sm_120": 99,
    "sm_121": 99,
}
"""CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", opt-in maximum."""


_F64_PER_CLOCK = {"sm_80": 32, "sm_90": 64, "sm_100": 64}


def gpu_by_name(name: str) -> Gpu:
    """The GPU called `name` (case does not matter). Raises BackendError listing the known names."""
    try:
        return ALL[name.lower()]
    except KeyError:
        meant = did_you_mean(name.lower(), ALL)
        raise BackendError(f"unknown GPU {name!r:.80}; known: {', '.join(ALL)}{meant}") from None


def shared_bytes_per_block(arch: str) -> int:
    """The most shared memory one block may ask for on `arch`. Raises BackendError for an unknown architecture."""
    try:
        return _SHARED_KIB_PER_BLOCK[arch] * 1024
    except KeyError:
        known = ", ".join(_SHARED_KIB_PER_BLOCK)
        raise BackendError(f"unknown GPU architecture {arch!r:.80}; known: {known}") from None


_REGISTERS = 1 << 16
_RESIDENT_THREADS, _RESIDENT_BLOCKS = {"sm_75": 1024, "sm_80": 2048, "sm_90": 2048, "sm_100": 2048, "sm_103": 2048}, 16
"""The same table: registers of a multiprocessor, threads that it holds (1,536 on others), and blocks, at the least."""


def blocks_for_registers(registers: int, threads: int, arch: str) -> int:
    """How many blocks a multiprocessor must hold for each thread to have no more registers than so many.

    As far as it holds so many of them; 0 for no such wish.
    """
    if not registers:
        return 0
    held = min(_RESIDENT_BLOCKS, _RESIDENT_THREADS.get(arch, 1536) // threads)
    return max(1, min(held, _REGISTERS // (registers * threads)))


def has_clusters(arch: str) -> bool:
    """Whether blocks of `arch` can be launched in clusters that reach each other's shared memory (9.0 and later)."""
    return int(arch.removeprefix("sm_").rstrip("af")) >= 90
