"""What programs come as, how they are called, and what becomes of bad ones."""

from __future__ import annotations

import contextlib
import io
import pickle
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import autofuse as af
from autofuse.cli.main import main
from autofuse.errors import ArgumentError, ParseError, TraceError
from autofuse.frontend.stablehlo import bindings as bindings_module
from autofuse.frontend.stablehlo.bindings import bindings, parsed

pytest.importorskip("jaxlib.mlir.ir", reason="jaxlib reads modules: pip install 'autofuse[jax]'")

TEXT = """module @jit_f {
  func.func public @main(%arg0: tensor<3x4xf32> loc("x"), %arg1: tensor<4xf32> loc("w['a']")) -> tensor<3x4xf32> {
    %0 = call @g(%arg1) : (tensor<4xf32>) -> tensor<3x4xf32>
    %1 = stablehlo.add %arg0, %0 : tensor<3x4xf32> loc("jit(f)/add"(callsite("f"("model.py":7:0) at "run.py":3:0)))
    return %1 : tensor<3x4xf32>
  }
  func.func private @g(%arg0: tensor<4xf32>) -> tensor<3x4xf32> {
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<4xf32>) -> tensor<3x4xf32>
    return %0 : tensor<3x4xf32>
  }
}
"""
DYNAMIC = """module {
  func.func public @main(%arg0: tensor<?x4xf32>) -> tensor<?xf32> {
    %c = stablehlo.constant dense<0.0> : tensor<f32>
    %s = stablehlo.get_dimension_size %arg0, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
    %r = stablehlo.reshape %s : (tensor<i32>) -> tensor<1xi32>
    %b = stablehlo.dynamic_broadcast_in_dim %c, %r, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
    %t = stablehlo.constant dense<8> : tensor<i32>
    %p = stablehlo.compare LE, %s, %t : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%p, %s) {error_message = "at most 8 rows, got {0}", has_side_effect = true}
      : (tensor<i1>, tensor<i32>) -> ()
    %0 = stablehlo.reduce(%arg0 init: %c) applies stablehlo.add across dimensions = [1]
      : (tensor<?x4xf32>, tensor<f32>) -> tensor<?xf32>
    %1 = stablehlo.subtract %0, %b : tensor<?xf32>
    return %1 : tensor<?xf32>
  }
}
"""
X, W = np.arange(12, dtype=np.float32).reshape(3, 4), np.array([1, 2, 3, 4], np.float32)


def bytecode(text=TEXT):
    held = io.BytesIO()
    parsed(text.encode()).operation.write_bytecode(held)
    return held.getvalue()


def artifact(text=TEXT):
    return bindings().stablehlo.serialize_portable_artifact(parsed(text.encode()), "1.0.0")


def one(line, type_="tensor<3xf32>"):
    """A function that is this line."""
    return f"module {{ func.func @main(%a: {type_}) -> {type_} {{\n{line}\nreturn %0 : {type_} }} }}"


@pytest.mark.parametrize("make", [str, lambda text: text.encode(), lambda _: bytecode(), lambda _: artifact()])
def test_text_bytes_bytecode_and_artifacts_are_the_same_function(make):
    fn = af.from_stablehlo(make(TEXT))
    assert list(map(str, fn.example_specs)) == ["f32[3,4]", "f32[4]"]
    np.testing.assert_array_equal(fn(X, W), X + W)
    np.testing.assert_array_equal(af.compile(fn, *fn.example_specs)(X, W), X + W)


def test_a_file_gives_its_name_to_the_function_and_to_its_lines(tmp_path):
    (tmp_path / "step.mlir").write_text(TEXT)
    fn = af.from_stablehlo(tmp_path / "step.mlir")
    assert fn.__name__ == "step"
    graph = af.trace(fn, *fn.example_specs)
    places = {node.op: f"{node.location}" for node in graph.nodes}
    assert places["add"] == "model.py:7 in f"
    assert places["broadcast_in_dim"] == f"{tmp_path / 'step.mlir'}:8 in g"


def test_arguments_go_by_the_names_of_the_module():
    fn = af.from_stablehlo(TEXT)
    np.testing.assert_array_equal(fn(w=W, x=X), X + W)
    plan = af.compile(fn, X, kwargs={"w": W})
    np.testing.assert_array_equal(plan(X, w=W), X + W)


def test_functions_may_call_it_as_often_as_they_like():
    fn = af.from_stablehlo(TEXT)
    plan = af.compile(lambda x, w: np.tanh(fn(fn(x, w), w * 2)), X, W)
    np.testing.assert_allclose(plan(X, W), np.tanh(X + W + W * 2), rtol=1e-6)
    jitted = af.jit(fn)
    np.testing.assert_array_equal(jitted(X, W), X + W)


def test_it_can_be_pickled():
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(af.from_stablehlo(TEXT)))(X, W), X + W)


def test_a_program_of_open_extents_is_made_for_the_arguments():
    fn = af.from_stablehlo(DYNAMIC)
    for rows in (3, 8):
        x = np.ones((rows, 4), np.float32)
        np.testing.assert_array_equal(fn(x), np.full(rows, 4, np.float32))
        np.testing.assert_array_equal(af.compile(fn, x)(x), np.full(rows, 4, np.float32))
    with pytest.raises(ArgumentError, match=r"arrays of any extent \(f32\[\?,4\]\)"):
        _ = fn.example_specs
    with pytest.raises(ArgumentError, match=r"f32\[9,4\] are not what the program demands: .*at most 8 rows, got 9"):
        fn(np.ones((9, 4), np.float32))


def exported(**changes):
    """What `jax.export` makes of `f(params, *, x)` with `params = {"b": ..., "a": ...}`, in which b is not used."""

    def unflatten(leaves):
        first, second, third = leaves
        return ({"b": second, "a": first},), {"x": third}

    avals = [SimpleNamespace(str_short=lambda short_dtypes, t=t: t) for t in ("f32[4]", "i32[7]", "f32[3,4]")]
    text = TEXT.replace("%arg0: tensor<3x4xf32>", "%arg9: tensor<3x4xf32>").replace("%arg0, %0", "%arg9, %0")
    swapped = text.replace(
        """%arg9: tensor<3x4xf32> loc("x"), %arg1: tensor<4xf32> loc("w['a']")""",
        """%arg1: tensor<4xf32> loc("params['a']"), %arg9: tensor<3x4xf32> loc("x")""",
    )
    given = {
        "fun_name": "f",
        "nr_devices": 1,
        "platforms": ("cpu",),
        "in_avals": avals,
        "out_avals": avals[2:],
        "in_tree": SimpleNamespace(unflatten=unflatten),
        "out_tree": SimpleNamespace(unflatten=lambda leaves: {"sum": next(iter(leaves))}),
        "module_kept_var_idx": (0, 2),
        "mlir_module_serialized": artifact(swapped),
    }
    return SimpleNamespace(**(given | changes))


def test_what_jax_exports_keeps_its_structure_and_arguments_that_it_dropped():
    fn = af.from_stablehlo(exported())
    params, x = fn.example_specs
    assert {name: str(spec) for name, spec in params.items()} == {"b": "i32[7]", "a": "f32[4]"}
    assert str(x) == "f32[3,4]"
    given = {"a": W, "b": np.zeros(7, np.int32)}
    np.testing.assert_array_equal(fn(given, x=X)["sum"], X + W)
    np.testing.assert_array_equal(af.compile(fn, given, X)(given, X)["sum"], X + W)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"nr_devices": 4}, "f was exported for 4 devices"), ({"platforms": ("cpu", "cuda")}, "export it for one: plat")],
)
def test_what_jax_exports_for_several_is_refused(changes, message):
    with pytest.raises(ArgumentError, match=message):
        af.from_stablehlo(exported(**changes))


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("module {", ParseError, "the text cannot be read: .*expected operation name"),
        ("", ParseError, "the module has no @main; it has no functions"),
        (TEXT.replace("@main", "@f").replace("private", "public"), ParseError, "no @main; it has @f, @g: rename"),
        (b"\xff\xfe", ParseError, "the bytes are neither MLIR bytecode"),
        ("module {" * 1000, ParseError, "nest 1000 deep; at most 512"),
        (3, ArgumentError, "got builtins.int"),
        (Path("/no/such.mlir"), ArgumentError, "such.mlir: No such file"),
        (one("%0 = stablehlo.abs %a : tensor<3xf32>", "tensor<3xcomplex<f32>>").replace("abs %a : tensor<3xf32>",
         "cbrt %a : tensor<3xcomplex<f32>>"), TraceError, "cbrt: operand x must have a float dtype"),
        (one("%0 = stablehlo.negate %a : tensor<3xf8E4M3FN>", "tensor<3xf8E4M3FN>"), TraceError,
         "elements of f8E4M3FN"),
        (one("%0 = stablehlo.add %a, %a : tensor<3xi4>", "tensor<3xi4>"), TraceError, "elements of i4"),
        (one('%0 = "foo.bar"(%a) : (tensor<3xf32>) -> tensor<3xf32> loc("f"("m.py":5:0))'), TraceError,
         r"m\.py:5 in f: foo\.bar is not among the operations that autofuse translates\n  instead: "),
        (one("%0 = stablehlo.custom_call @lapack_spotrf(%a) : (tensor<3xf32>) -> tensor<3xf32>"), TraceError,
         "calls @lapack_spotrf, which autofuse does not have"),
        (one("%0 = stablehlo.custom_call @xla_python_cpu_callback(%a) : (tensor<3xf32>) -> tensor<3xf32>"), TraceError,
         "calls back into Python"),
        (one("%0 = func.call @main(%a) : (tensor<3xf32>) -> tensor<3xf32>"), TraceError, "calls @main within itself"),
        (one('%0 = "stablehlo.collective_broadcast"(%a) <{replica_groups = dense<[[0]]> : tensor<1x1xi64>}> :'
             " (tensor<3xf32>) -> tensor<3xf32>"), TraceError, "is a message between devices"),
        (one("%0 = stablehlo.abs %a : tensor<3xf32>").replace("module {", "module attributes"
         " {mhlo.num_partitions = 2 : i32} {"), TraceError, "is for 2 devices"),
        (one("%t = stablehlo.create_token : !stablehlo.token\n%0 = stablehlo.abs %a : tensor<3xf32>"), TraceError,
         "is an effect on the host"),
    ],
)  # fmt: skip
def test_bad_programs_are_one_error(source, error, message):
    with pytest.raises(error, match=message):
        af.from_stablehlo(source)


def test_an_artifact_that_is_newer_than_jaxlib_says_so():
    with pytest.raises(
        ParseError, match=r"of StableHLO 99\.0\.0, and this jaxlib reads up to [0-9.]+; install a newer"
    ):
        af.from_stablehlo(artifact().replace(b"StableHLO_v1.0.0", b"StableHLO_v99.0.0"))


@pytest.mark.parametrize(
    "kept", [0.5, *(pytest.param(part, marks=pytest.mark.slow) for part in (0.05, 0.3, 0.8, 0.99))]
)
def test_truncated_bytes_are_an_error(kept):
    for whole in (artifact(), bytecode()) if kept != 0.5 else (artifact(),):
        with pytest.raises(ParseError):
            af.from_stablehlo(whole[: int(len(whole) * kept)])


@pytest.mark.slow
def test_damaged_bytes_end_no_process():
    rng = random.Random(5)
    for _ in range(20):
        flipped = bytearray(bytecode())
        flipped[rng.randrange(20, len(flipped))] ^= 1 << rng.randrange(8)
        with contextlib.suppress(af.AutofuseError):
            af.from_stablehlo(bytes(flipped))


@pytest.mark.parametrize("signal", [6, 11])
def test_a_reader_that_crashes_is_an_error(signal, monkeypatch):
    from autofuse.frontend.stablehlo import trial

    monkeypatch.setattr(trial, "_CHILD", f"import os; os.kill(os.getpid(), {signal})")
    with pytest.raises(ParseError, match=rf"crashes on the bytes \(signal {signal}\)"):
        af.from_stablehlo(bytecode())


@pytest.mark.parametrize(
    ("child", "patience", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGXCPU)", 600, "no end in 1 s of processor time"),
        ("import signal; signal.pause()", 1, "not read in 1 s; either this machine has other work"),
    ],
)
def test_a_reader_that_does_not_return_is_an_error(child, patience, words, monkeypatch):
    from autofuse.frontend.stablehlo import trial

    monkeypatch.setattr(trial, "_DEADLINE_S", 0.5)
    monkeypatch.setattr(trial, "_PATIENCE", patience)
    monkeypatch.setattr(trial, "_CHILD", child)
    with pytest.raises(ParseError, match=words):
        af.from_stablehlo(bytecode())


def test_jaxlib_that_is_missing_is_an_error(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    bindings.cache_clear()
    monkeypatch.setattr(bindings_module, "import_module", missing)
    try:
        with pytest.raises(ArgumentError, match=r"needs jaxlib .* pip install 'autofuse\[jax\]'"):
            af.from_stablehlo(TEXT)
    finally:
        bindings.cache_clear()


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((3, 5), np.float32), r"x: the program takes f32\[3,4\], got float32\[3,5\]"),
        (np.zeros((3, 4)), r"x: the program takes f32\[3,4\], got float64"),
    ],
)
def test_arguments_of_another_type_are_refused(x, message):
    fn = af.from_stablehlo(TEXT)
    for call in (fn, lambda *args: af.compile(fn, *args)):
        with pytest.raises(ArgumentError, match=message):
            call(x, W)


def test_the_command_line_takes_a_module(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("step.mlir").write_text(TEXT)
    command = ["tune", "step.mlir", "--policy", "analytical", "--max-trials", "3", "--no-progress", "-o", "step.json"]
    assert main(command) == 0
    np.testing.assert_array_equal(af.load("step.json")(X, W), X + W)
    Path("broken.mlir").write_text("module {")
    assert main(["tune", "broken.mlir"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
