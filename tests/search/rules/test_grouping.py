"""Kernels in the making: the order in which they are handed over."""

import pytest

from autofuse.search.rules.grouping import Group, Grouping
from autofuse.testing.partitions import context_of
from autofuse.testing.sketches import Sketch


def chain(length: int) -> Grouping:
    build = Sketch("chain")
    x = build.arg("f32[64]")
    for _ in range(length):
        x = build.op("exp", x)
    return Grouping(context_of(build.finish([x])))


def test_kernels_come_in_layers_and_in_a_layer_by_what_they_write_first():
    build = Sketch("layers")
    x = build.arg("f32[64]")
    a = build.op("exp", x, name="a")
    b = build.op("tanh", a, name="b")
    c = build.op("negate", x, name="c")
    d = build.op("abs", c, name="d")
    e = build.op("add", b, d, name="e")
    partition = Grouping(context_of(build.finish([e, a]))).partition()
    names = [node.name for kernel in partition.kernels for atom in kernel.candidate.atoms for node in atom.nodes]
    assert names == ["a", "c", "b", "d", "e"]


def test_the_order_of_a_long_chain_takes_as_many_looks_as_it_has_kernels(monkeypatch: pytest.MonkeyPatch):
    looks: list[Group] = []
    reads = Grouping.reads

    def counted(self: Grouping, group: Group):
        looks.append(group)
        return reads(self, group)

    grouping = chain(200)
    monkeypatch.setattr(Grouping, "reads", counted)
    grouping.partition()
    assert len(looks) < 4 * 200
