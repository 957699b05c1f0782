"""Programs that were read are traced without what stands for NumPy, and become the same graphs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("jaxlib", reason="needs jaxlib: pip install 'autofuse[jax]'")

import autofuse as af
from autofuse.frontend.readprogram import is_read, trace_read
from autofuse.frontend.traced import trace
from autofuse.ir import tree
from autofuse.ir.digest import digest
from tests.frontend.stablehlo.test_programs import FOLDER


class Overwriting:
    """A program that writes its first result into its first argument, and is traced either way."""

    emits_graph = True
    __name__ = "overwriting"

    def __init__(self, program) -> None:
        self._program = program
        self.__signature__ = program.__signature__

    def __call__(self, *arrays):
        results = self._program(*arrays)
        arrays[0].cell.write(results[0].value)
        return results[1:]


def form(traced):
    names = [[value.name for value in node.outputs] for node in traced.graph.nodes]
    trees = tree.to_json(traced.in_tree), tree.to_json(traced.out_tree)
    return digest(traced.graph), names, *trees, traced.writebacks, traced.parameters, traced.contiguous, traced.notes


@pytest.mark.parametrize("name", ["mlp_step", "rnn", "cross_entropy"])
def test_the_graph_is_that_of_the_usual_trace(name):
    fn = af.from_stablehlo(FOLDER / f"{name}.mlir")
    assert is_read(fn, fn.example_specs)
    assert form(trace_read(fn, fn.example_specs, "numpy")) == form(trace(fn, *fn.example_specs))


def test_what_is_written_into_an_argument_is_written_back():
    text = """func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = stablehlo.add %a, %b : tensor<4xf32>
  %1 = stablehlo.multiply %a, %b : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}"""
    fn = Overwriting(af.from_stablehlo(text))
    specs = [af.spec("f32[4]"), af.spec("f32[4]")]
    found = trace_read(fn, specs, "numpy")
    assert found.writebacks == ((0, 1),)
    assert form(found) == form(trace(fn, *specs))


def test_functions_of_pythons_are_not_read():
    fn = af.from_stablehlo(FOLDER / "mlp_step.mlir")
    assert not is_read(lambda x: x, [af.spec("f32[4]")])
    assert not is_read(fn, [[spec] for spec in fn.example_specs])


def test_a_plan_is_made_without_what_stands_for_numpy():
    code = f"""
import json, sys
import autofuse as af
fn = af.from_stablehlo({(FOLDER / "mlp_step.mlir").read_text()!r})
af.compile(fn, *fn.example_specs)
print(json.dumps([name for name in sys.modules if name.startswith("autofuse.frontend.")]))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(json.loads(printed))
    assert loaded.isdisjoint(
        f"autofuse.frontend.{name}" for name in ("traced", "proxy", "implementations", "generators")
    )
