import dataclasses
import json

import pytest

from autofuse.errors import PlanError
from autofuse.plan.identity import compare, identity_from, identity_hash, identity_to_json, require_same
from autofuse.strictjson import parse
from autofuse.targets.cpu.device.detect import detect
from autofuse.targets.cpu.identity import CpuIdentity, host_cpu_identity
from autofuse.targets.cuda import gpus
from autofuse.targets.cuda.identity import GpuIdentity, gpu_identity

CPU = CpuIdentity(
    product="Test CPU",
    architecture="x86_64",
    isa=("avx2", "fma"),
    cores=2,
    threads=2,
    l1d_bytes=32 << 10,
    l2_bytes=1 << 20,
    l3_bytes=8 << 20,
    blas_library="OpenBLAS 0.3 Haswell",
    llvm="20.1.0",
    generator="cpu/1",
    policy="warm-median/1",
    numpy="2.4.0",
)
H200 = GpuIdentity(
    product="NVIDIA H200",
    compute_capability="9.0",
    sm_count=132,
    memory_gib=144,
    memory_gbps=4800,
    l2_bytes=60 << 20,
    driver="580.1",
    nvrtc="13.0",
    cublas="13.0",
    library="cupy 14.2.0",
    generator="cuda/1",
    policy="warm-median/1",
)


def again(identity):
    return identity_from(parse(json.dumps(identity_to_json(identity)), PlanError, "test"))


@pytest.mark.parametrize("identity", [CPU, H200], ids=["cpu", "cuda"])
def test_json_round_trip(identity):
    assert again(identity) == identity
    assert compare(identity, again(identity)) == []
    require_same(identity, again(identity))


@pytest.mark.parametrize("identity", [CPU, H200], ids=["cpu", "cuda"])
def test_every_field_but_names_is_compared(identity):
    for field in dataclasses.fields(identity):
        value = getattr(identity, field.name)
        other = dataclasses.replace(identity, **{field.name: value * 2 or "something"})
        differing = [d.field for d in compare(identity, other)]
        if field.name in ("product", "numpy", "policy", "blas"):
            assert differing == []
            assert identity_hash(identity) == identity_hash(other)
        else:
            assert differing == [field.name]
            assert identity_hash(identity) != identity_hash(other)


@pytest.mark.parametrize("identity", [CPU, H200], ids=["cpu", "cuda"])
def test_how_times_were_taken_does_not_matter(identity):
    other = dataclasses.replace(identity, policy="cold-median/7")
    require_same(other, identity)
    require_same(identity, other)


def test_an_identity_of_old_is_at_home_where_all_that_it_knows_is_the_same():
    data = {**identity_to_json(CPU), "blas": "scipy-openblas 0.3.30", "policy": "warm-median/1"}
    del data["blas_library"]
    old = identity_from(parse(json.dumps(data), PlanError, "test"))
    assert identity_to_json(old) == data
    require_same(old, CPU)


def test_another_blas_at_run_time_is_another_toolchain():
    other = dataclasses.replace(CPU, blas_library="OpenBLAS 0.3 Zen")
    with pytest.raises(PlanError, match=r"blas_library \(plan: OpenBLAS 0.3 Haswell, here: OpenBLAS 0.3 Zen\)"):
        require_same(CPU, other)


def test_refusal_names_field_values_and_the_way_out():
    here = dataclasses.replace(CPU, threads=8, isa=("avx2", "avx512f"))
    with pytest.raises(PlanError) as refused:
        require_same(CPU, here, "p.json")
    assert str(refused.value) == (
        "p.json was made for another device or toolchain; different: isa (missing here: fma; only here: avx512f); "
        'threads (plan: 2, here: 8). Load it with on_mismatch="retune" to tune again here, or on_mismatch="run" to '
        "run it as it is"
    )


def test_gpus_of_one_compute_capability_differ_by_bandwidth():
    parts = [gpu_identity(gpu, nvrtc="13.0") for gpu in (gpus.H100_PCIE, gpus.H100_SXM, gpus.H200)]
    assert {part.compute_capability for part in parts} == {"9.0"}
    assert len({part.memory_gbps for part in parts}) == 3
    assert len({identity_hash(part) for part in parts}) == 3


def test_a_gpu_is_the_same_by_data_sheet_and_by_driver():
    sheet = gpu_identity(gpus.H200, nvrtc="13.0")
    reported = dataclasses.replace(
        gpus.H200, name="NVIDIA H200", memory_bytes=150_109_880_320, memory_bytes_per_s=4.917e12
    )
    assert compare(sheet, gpu_identity(reported, nvrtc="13.0", driver="580.1")) == []
    assert [d.field for d in compare(gpu_identity(reported, nvrtc="13.0", driver="580.1"), sheet)] == ["driver"]


def test_backends_do_not_mix():
    assert [str(d) for d in compare(CPU, H200)] == ["backend (plan: cpu, here: cuda)"]


def test_this_machine_has_an_identity():
    here = host_cpu_identity(detect())
    assert here.blas_library
    assert (here.blas, here.policy) == ("", "")
    assert here.llvm[0].isdigit()
    assert again(here) == here


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backend": "tpu"}, "backend: must be one of"),
        ({"backend": "cuda"}, "the key 'compute_capability' is missing"),
        ({"cores": -1}, "cores: must be an integer"),
        ({"isa": {"avx2": 1}}, "isa: must be an array"),
        ({"product": None}, "product: must be a string"),
        ({"more": 1}, "unknown key 'more'"),
    ],
)
def test_defects_are_named(change, message):
    with pytest.raises(PlanError, match=message):
        identity_from(parse(json.dumps({**identity_to_json(CPU), **change}), PlanError, "test"))
