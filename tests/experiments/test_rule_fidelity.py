"""The fidelity study: HLO is read right, kernels are compared right, and the report says both."""

from pathlib import Path
from types import ModuleType

from autofuse.testing.sketches import Sketch, softmax_graph

STUDY = Path(__file__).resolve().parents[2] / "experiments" / "rule_fidelity"
MODULES = ("agreement", "fidelity_report", "hlo")


HLO = """\
HloModule jit_f, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%region_0.4 (a.1: f32[], b.1: f32[]) -> f32[] {
  %a.1 = f32[] parameter(0)
  %b.1 = f32[] parameter(1)
  ROOT %add.9 = f32[] add(%a.1, %b.1), metadata={op_name="jit(f)/af_2/add"}
}

%fused_computation (param_0: f32[8]) -> f32[8] {
  %param_0 = f32[8]{0} parameter(0)
  %exp.1 = f32[8]{0} exponential(%param_0), metadata={op_name="jit(f)/af_1/exp" source_line=3}
  ROOT %copy.1 = f32[8]{0} copy(%exp.1), metadata={op_name="jit(f)/af_7/dot_general"}
}

%parallel_fusion (p: f32[8]) -> f32[] {
  %p = f32[8]{0} parameter(0)
  %constant.1 = f32[] constant(0)
  ROOT %reduce.2 = f32[] reduce(%p, %constant.1), dimensions={0}, to_apply=%region_0.4, metadata={op_name="af_2/sum"}
}

ENTRY %main.9 (x: f32[8]) -> (f32[8], f32[]) {
  %x = f32[8]{0} parameter(0)
  %copy_exp = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused_computation, metadata={op_name="jit(f)/af_1/exp"}
  %call = f32[] call(%copy_exp), to_apply=%parallel_fusion
  ROOT %tuple.3 = (f32[8]{0}, f32[]) tuple(%copy_exp, %call)
}
"""


def test_kernels_of_hlo_are_fusions_calls_looked_into_and_what_stands_alone(study: dict[str, ModuleType]) -> None:
    assert study["hlo"].kernels(HLO) == [("fusion", {1}), ("reduce", {2})]


def kernels(*names: str) -> list[frozenset[str]]:
    return [frozenset(kernel.split()) for kernel in names]


def test_equal_kernels_agree_in_all(study: dict[str, ModuleType]) -> None:
    ours = kernels("peak", "shifted grown", "total share")
    found = study["agreement"].compare(softmax_graph(), list(reversed(ours)), ours)
    assert found.is_exact
    assert (found.same, found.edges, found.agreed) == (3, 5, 5)


def test_a_call_has_not_computed_what_other_kernels_do_and_buffers_are_no_kernels(study: dict[str, ModuleType]) -> None:
    kernels = [("SchedulerNode", {1, 2}), ("ExternKernelSchedulerNode", {1, 2, 3}), ("FusedSchedulerNode", {2, 4})]
    kernels.append(("NopKernelSchedulerNode", {1, 5}))
    found = study["agreement"].that_run([(kind, frozenset(nodes)) for kind, nodes in kernels])
    assert [set(nodes) for _, nodes in found] == [{1, 2}, {3}, {2, 4}]


def test_pairs_that_one_side_fuses_are_named(study: dict[str, ModuleType]) -> None:
    theirs, ours = kernels("peak", "shifted grown total", "share"), kernels("peak", "shifted", "grown total share")
    found = study["agreement"].compare(softmax_graph(), theirs, ours)
    assert not found.is_exact
    assert found.only_theirs == (("shifted", "grown"),)
    assert set(found.only_ours) == {("grown", "share"), ("total", "share")}
    assert (found.edges, found.agreed) == (5, 2)


def test_a_value_that_is_made_twice_is_fused_where_every_reader_makes_it(study: dict[str, ModuleType]) -> None:
    sketch = Sketch("twice")
    x = sketch.arg("f32[64,64]")
    y = sketch.op("exp", x, name="y")
    graph = sketch.finish([sketch.reduce(y, 0, name="columns"), sketch.reduce(y, 1, name="rows")])
    found = study["agreement"].compare(graph, kernels("y columns", "y rows"), kernels("y columns", "rows"))
    assert found.only_theirs == (("y", "rows"),)
    assert found.agreed == 1


def test_what_cannot_be_traced_is_left_out_and_said(study: dict[str, ModuleType]) -> None:
    theirs, ours = kernels("peak", "grown total share"), kernels("peak", "shifted grown total share")
    found = study["agreement"].compare(softmax_graph(), theirs, ours)
    assert found.unseen == ("shifted",)
    assert found.is_exact
    assert found.edges == found.agreed == 3
    assert found.left_out == 2


def test_the_report_sums_up_and_names_what_was_not_compared(study: dict[str, ModuleType]) -> None:
    one = {"system": "xla-cpu", "status": "ok", "program": "softmax", "theirs": 2, "ours": 2, "same": 1}
    one |= {"edges": 5, "agreed": 4, "is_exact": False, "left_out": 2, "only_theirs": [], "only_ours": [["a", "b"]]}
    exact = one | {"program": "random 3", "is_exact": True, "agreed": 5}
    failed = {"system": "xla-cpu", "status": "failed", "program": "gather", "error": "no form"}
    run = {"commit": "abc", "begun": "today", "command": "run", "machine": {"model": "a CPU"}}
    reasons = {"xla-cpu": [{"programs": ["softmax", "other"], "why": "it copies."}]}
    text = study["fidelity_report"].render(run, [one, exact, failed], reasons)
    assert "- workloads: 0 of 1 with the same kernels; 4 of 5 pairs agreed, 80.0%" in text
    assert "| `softmax` | 2 / 2 | 1 | 4 / 5 | 2 | only we fuse a into b |" in text
    assert "- `softmax`: it copies." in text
    assert "- not explained: `softmax`" in study["fidelity_report"].render(run, [one, exact, failed], {})
    assert "`random 3`" not in text
    assert "- not compared: gather: no form" in text
