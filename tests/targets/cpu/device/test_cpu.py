from pathlib import Path

import pytest

from autofuse.errors import ArgumentError
from autofuse.targets.cpu.device.detect import detect, parse_cpu_list


def machine(root: Path, *, cpus: int = 4, smt: int = 2, flags: str = "fma avx2 avx512f avx512vl sse4_2 hypervisor"):
    """A fake /proc and /sys: `cpus` hardware threads, `smt` per core, one level-3 cache."""

    def put(path: str, text: str) -> None:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    put("proc/cpuinfo", f"processor : 0\nmodel name : Test CPU @ 2 GHz\nflags : {flags}\n")
    put("proc/meminfo", "MemTotal:  1048576 kB\nMemFree: 1 kB")
    put("proc/self/cgroup", "0::/box/inner")
    put("sys/devices/system/cpu/online", f"0-{cpus - 1}")
    for cpu in range(cpus):
        first = cpu - cpu % smt
        core = f"{first}-{first + smt - 1}" if smt > 1 else str(cpu)
        put(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", core)
        caches = [(1, "Data", "48K", core), (1, "Instruction", "32K", core), (2, "Unified", "2048K", core)]
        for number, (level, kind, size, sharing) in enumerate([*caches, (3, "Unified", "30M", f"0-{cpus - 1}")]):
            folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{number}"
            for name, text in [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", sharing)]:
                put(f"{folder}/{name}", str(text))
    return put


def test_facts_are_read_from_proc_and_sys(tmp_path):
    machine(tmp_path)
    cpu = detect(root=tmp_path)
    assert cpu.model == "Test CPU @ 2 GHz"
    assert (cpu.cores, cpu.logical, cpu.threads) == (2, 4, 2)
    assert (cpu.l1d_bytes, cpu.l2_bytes, cpu.l3_bytes) == (48 << 10, 2 << 20, 30 << 20)
    assert cpu.memory_bytes == 1 << 30
    assert cpu.quota_cores is None


def test_isa_keeps_only_what_code_generation_uses(tmp_path):
    machine(tmp_path)
    cpu = detect(root=tmp_path)
    assert cpu.isa == ("avx2", "avx512f", "avx512vl", "fma", "sse4_2")
    assert cpu.vector_bits == 512
    assert cpu.lanes(4) == 16


@pytest.mark.parametrize(("flags", "bits"), [("sse4_2", 128), ("avx2 fma", 256), ("avx2 avx512f", 256)])
def test_vector_width_follows_the_features(tmp_path, flags, bits):
    machine(tmp_path, flags=flags)
    assert detect(root=tmp_path).vector_bits == bits


def test_least_quota_on_the_way_up_limits_the_threads(tmp_path):
    put = machine(tmp_path, cpus=8, smt=1)
    put("sys/fs/cgroup/box/inner/cpu.max", "max 100000")
    put("sys/fs/cgroup/box/cpu.max", "250000 100000")
    put("sys/fs/cgroup/box/memory.max", str(64 << 20))
    cpu = detect(root=tmp_path)
    assert cpu.quota_cores == 2.5
    assert cpu.threads == 2
    assert cpu.memory_bytes == 64 << 20


def test_quota_of_control_groups_version_one(tmp_path):
    put = machine(tmp_path, cpus=8, smt=1)
    put("proc/self/cgroup", "4:memory:/m\n2:cpu,cpuacct:/job")
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000")
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000")
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1")
    assert detect(root=tmp_path).quota_cores == 3.0


def test_a_bare_machine_gets_safe_fallbacks(tmp_path):
    cpu = detect(root=tmp_path)
    assert (cpu.cores, cpu.threads, cpu.isa, cpu.vector_bits) == (1, 1, (), 128)
    assert cpu.l1d_bytes > 0
    assert cpu.line_bytes == 64


def test_thread_count_must_fit(tmp_path):
    machine(tmp_path)
    assert detect(4, root=tmp_path).threads == 4
    with pytest.raises(ArgumentError, match=r"threads=5.*give 1\.\.4"):
        detect(5, root=tmp_path)
    with pytest.raises(ArgumentError, match="threads=0"):
        detect(0, root=tmp_path)


def test_this_machine_can_be_described():
    cpu = detect()
    assert 1 <= cpu.threads <= cpu.logical
    assert cpu.l1d_bytes >= 8 << 10
    assert cpu.memory_bytes > 0


def test_cpu_lists():
    assert parse_cpu_list("0-2,5") == [0, 1, 2, 5]
    assert parse_cpu_list("") == []
