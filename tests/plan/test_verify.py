import math
from dataclasses import replace

import pytest

from autofuse.errors import PlanError
from autofuse.ir.contracts import BoundsCheck
from autofuse.ir.tree import Branch, Leaf
from autofuse.plan.document import Launch
from autofuse.plan.verify import NAME, safe_name, verify
from autofuse.testing.plans import example_plan

PLAN = example_plan()
FIRST, SECOND, THIRD = PLAN.kernels
CHECK = BoundsCheck("model.py:3 in f", "axis 0 with size 5", -5, 5)


def kernel(**changes):
    return replace(PLAN, kernels=(replace(FIRST, **changes), SECOND, THIRD))


def test_a_whole_plan_passes():
    verify(PLAN)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (replace(PLAN, name="a/b"), "name: 'a/b' is no name"),
        (replace(PLAN, backend="cuda"), "identity.backend: is 'cpu', the plan's backend is 'cuda'"),
        (kernel(name=""), r"kernels\[0\].name: '' is no name"),
        (kernel(name="x" * 201), r"kernels\[0\].name: "),
        (kernel(name="loop exp"), r"kernels\[0\].name: 'loop exp' is no name"),
        (kernel(name="loop_add"), r"kernels\[2\].name: 'loop_add' stands twice"),
        (kernel(kind="<b>"), r"kernels\[0\].kind"),
        (kernel(digest="x"), r"kernels\[0\].digest"),
        (kernel(predicted_us=math.nan), r"kernels\[0\].predicted_us: nan is no time"),
        (kernel(measured_us=-1.0), r"kernels\[0\].measured_us: -1.0 is no time"),
        (kernel(nodes=()), r"kernels\[0\]: a kernel has at least one node"),
        (kernel(outputs=()), r"kernels\[0\]: a kernel has at least one node and one output"),
        (kernel(nodes=("scaled", "y", "y")), r"kernels\[0\].nodes: a name stands twice"),
        (kernel(nodes=("scaled", "z")), r"kernels\[0\].nodes\[1\]: the graph has no node 'z'"),
        (kernel(nodes=("scaled", "x")), r"kernels\[0\].nodes\[1\]: the graph has no node 'x'"),
        (kernel(outputs=("y", "total")), r"kernels\[0\].outputs\[1\]: no node of the kernel makes 'total'"),
        (kernel(nodes=("y",)), r"order\[0\]: kernel 'loop_exp' runs before its inputs are made: scaled"),
        (kernel(outputs=("scaled",)), r"order\[1\]: kernel 'loop_add' runs before its inputs are made: y"),
        (replace(PLAN, order=(Launch(1), Launch(0), Launch(2))), "'reduction_add' runs before its inputs are made: y"),
        (replace(PLAN, order=(Launch(0), Launch(2))), "order: must hold each of the 3 kernels once"),
        (replace(PLAN, order=(Launch(0), Launch(1), Launch(1))), "order: must hold each of the 3 kernels once"),
        (replace(PLAN, order=(Launch(0), Launch(1), Launch(7))), "order: must hold each"),
        (replace(PLAN, order=(Launch(0, -1), Launch(1), Launch(2))), r"order\[0\]: place -1"),
        (
            replace(PLAN, kernels=(FIRST, SECOND), order=(Launch(0), Launch(1))),
            "kernels: no kernel writes the graph's output 'new_x'",
        ),
        (replace(PLAN, in_tree=Leaf()), "in_tree: must be the tuple of the 2 parameters' values"),
        (replace(PLAN, in_tree=Branch("tuple", (0, 1), (Leaf(), Leaf()))), "in_tree: has 2 arrays, the graph has 1"),
        (replace(PLAN, out_tree=Branch("tuple", (), ())), "out_tree: with the writebacks has 1 arrays"),
        (replace(PLAN, contiguous=(1,)), "contiguous: must be numbers of the 1 inputs, ascending"),
        (replace(PLAN, contiguous=(0, 0)), "contiguous: must be numbers of the 1 inputs, ascending"),
        (replace(PLAN, bounds=(CHECK,)), "out_tree: with the writebacks has 3 arrays, the graph has 2"),
        (
            replace(PLAN, bounds=(CHECK,), out_tree=Branch("tuple", (), ())),
            r"bounds: 1 checks need an output i64\[2\] behind the results, the graph has f32\[16\]",
        ),
        (replace(PLAN, writebacks=()), "out_tree: with the writebacks has 1 arrays, the graph has 2"),
        (replace(PLAN, writebacks=(1,)), r"writebacks\[0\]: there is no input 1"),
        (replace(PLAN, writebacks=(0, 0), out_tree=Branch("tuple", (), ())), "an input is written back twice"),
        (
            replace(PLAN, certificate=replace(PLAN.certificate, optimality="proved optimal")),
            "certificate.optimality: must be 'optimal under these costs'",
        ),
        (replace(PLAN, certificate=replace(PLAN.certificate, measured=10)), "10 of 9 classes"),
    ],
)
def test_each_defect_is_named_by_path(plan, message):
    with pytest.raises(PlanError, match=f"^plan: .*{message}"):
        verify(plan)


def test_a_node_may_be_computed_twice():
    verify(replace(PLAN, kernels=(FIRST, replace(SECOND, nodes=("scaled", "y", "total")), THIRD)))


@pytest.mark.parametrize("text", ["f", "<lambda>", "model.forward", "3d", "", "größe", "_", "a" * 500, "x/../y"])
def test_any_text_gives_a_safe_name(text):
    assert NAME.fullmatch(safe_name(text))
    assert len(safe_name(text)) <= 200
