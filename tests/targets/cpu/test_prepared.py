"""Plans made ready by an earlier process: the same results without parsing, lowering or generating anything."""

import os
import subprocess
import sys

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError
from autofuse.host.objectcache import ObjectCache, cache_directory
from autofuse.targets.cpu.native import blas, driver, prepared


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path / "cache"))


MASK = np.tril(np.ones((16, 16), np.float32))


def masked(state, scale):
    """A structure in and out, a constant, a scalar, and a split of work between kernels."""
    x = np.where(MASK > 0, state["x"], -1.0)
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return {"share": e / e.sum(axis=-1, keepdims=True) * scale, "mean": (state["x"] @ state["w"]).mean()}


def arguments(seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal((16, 16)).astype(np.float32) for name in "xw"}, 2.0


@pytest.fixture
def path(tmp_path):
    return af.compile(masked, *arguments()).save(tmp_path / "masked.json")


def made_ready(path):
    """The plan after another has been loaded and called, as a second process finds it."""
    af.load(path)(*arguments())
    plan = af.load(path)
    assert plan._ready is not None
    return plan


def assert_same(got, expected):
    np.testing.assert_array_equal(got["share"], expected["share"])
    assert got["mean"] == expected["mean"]
    assert type(got["mean"]) is type(expected["mean"])


@pytest.mark.parametrize("uses_blas", [True, False])
def test_another_blas_counts_where_it_is_called(path, monkeypatch, uses_blas):
    monkeypatch.setattr(driver, "uses_blas", lambda kernels: uses_blas)
    made_ready(path)
    monkeypatch.setattr(blas, "loaded_library", lambda: "another")
    assert (prepared.find(path.read_bytes()) is None) == uses_blas


def test_the_results_have_the_same_bits(path):
    first = af.load(path)
    assert first._ready is None
    expected = [first(*arguments(seed)) for seed in range(3)]
    again = af.load(path)
    assert again._ready is not None
    for seed in range(3):
        assert_same(again(*arguments(seed)), expected[seed])


def test_the_program_is_the_same_in_every_respect(path):
    built = af.load(path)
    built(*arguments())
    program, ready = built.executable.native.program, af.load(path)._ready.program
    for name in ("calls", "inputs", "outputs", "output_aliases", "arena_bytes", "in_trees", "out_tree", "threads"):
        assert getattr(ready, name) == getattr(program, name)
    assert [kernel.launches for kernel in ready.kernels] == [kernel.launches for kernel in program.kernels]
    for mine, theirs in zip(ready.constants, program.constants, strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype


def test_a_second_process_parses_and_generates_nothing(path):
    statements = (
        "import sys, numpy as np, autofuse as af\n"
        "plan = af.load(sys.argv[1]); state = {name: np.ones((16, 16), np.float32) for name in 'xw'}\n"
        "print(plan(state, 2.0)['mean'])\n"
        "print(sorted({'autofuse.lower.lowering', 'autofuse.ir.graphparser', 'scipy'} & set(sys.modules)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", statements, path], env=environment, capture_output=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert outputs[0].split(b"\n")[1] != b"[]"
    assert outputs[1] == outputs[0].split(b"\n")[0] + b"\n[]\n"


def test_what_native_code_does_not_take_is_built_after_all(path):
    plan = made_ready(path)
    state, scale = arguments()
    expected = plan(state, scale)
    transposed = {name: np.asfortranarray(array) for name, array in state.items()}
    assert_same(plan(transposed, scale), expected)
    out = {"share": np.empty((16, 16), np.float32), "mean": np.empty((), np.float32)}
    plan(state, scale, out=out)
    np.testing.assert_array_equal(out["share"], expected["share"])
    with pytest.raises(ArgumentError, match="must be"):
        plan(state, 3.0)


def test_a_result_in_memory_that_is_given_needs_nothing_built(tmp_path):
    x = np.arange(64.0)
    path = af.compile(lambda x: x * 2 + 1, x).save(tmp_path / "line.json")
    af.load(path)(x)
    plan, out = af.load(path), np.empty(64)
    assert plan(x, out=out) is out
    np.testing.assert_array_equal(out, x * 2 + 1)
    assert "executable" not in vars(plan)


def test_the_document_is_read_when_it_is_asked_for(path):
    plan = made_ready(path)
    path.unlink()
    assert plan.document.name == "masked"
    assert len(plan.kernels) == len(af.compile(masked, *arguments()).kernels)
    assert plan.source()


def test_arguments_written_in_place(tmp_path):
    def step(x, y):
        x += y
        return x * 2

    path = af.compile(step, np.ones(64), np.ones(64)).save(tmp_path / "step.json")
    for _ in range(2):
        x = np.arange(64.0)
        np.testing.assert_array_equal(af.load(path)(x, np.ones(64)), (np.arange(64.0) + 1) * 2)
        np.testing.assert_array_equal(x, np.arange(64.0) + 1)


def test_another_text_or_environment_is_another_entry(path, monkeypatch):
    made_ready(path)
    text = path.read_bytes()
    assert prepared.find(text) is not None
    assert prepared.find(text + b" ") is None
    monkeypatch.setattr(prepared, "surroundings", lambda: ("a CPU", "another machine"))
    assert prepared.find(text) is None


def test_a_damaged_entry_is_none(path):
    made_ready(path)
    text = path.read_bytes()
    cache = ObjectCache(cache_directory())
    for data in (b"", b"\0" * 100, (5).to_bytes(8, "little") + b"{}{}{", (2).to_bytes(8, "little") + b"{}"):
        cache.put(prepared._key(text), data)
        assert prepared.find(text) is None


def test_without_a_cache_nothing_is_kept(path, monkeypatch):
    monkeypatch.setenv("AUTOFUSE_CACHE", "off")
    for _ in range(2):
        plan = af.load(path)
        plan(*arguments())
        assert plan._ready is None


def test_library_calls_are_not_kept(tmp_path):
    x = np.random.default_rng(0).standard_normal(20_000)  # long rows in any order are NumPy's
    path = af.compile(np.sort, x).save(tmp_path / "sort.json")
    for _ in range(2):
        plan = af.load(path)
        np.testing.assert_array_equal(plan(x), np.sort(x))
        assert plan._ready is None
