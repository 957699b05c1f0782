"""A CUDA graph of explicit nodes, through a stand-in for cuda-bindings that writes down what it is asked."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.errors import BackendError
from autofuse.targets.cuda.codegen.cudakernel import CudaLaunch
from autofuse.targets.cuda.graphs import CallNode, CudaGraph, KernelNode

STREAM = 77


class Recorder:
    """Gives a status first, as cuda-bindings does; copies the addresses that parameters name, as drivers do."""

    CUDA_KERNEL_NODE_PARAMS = SimpleNamespace

    def __init__(self, failing: str = "", addresses: int = 2, together: int = 1) -> None:
        """`addresses`: of each kernel, `together` of them behind one argument."""
        self.failing, self.addresses, self.together = failing, addresses, together
        self.asked: list[tuple[Any, ...]] = []

    def CUfunction(self, handle: int) -> int:
        return handle

    def CUstream(self, pointer: int) -> int:
        return pointer

    def _answer(self, name: str, *told: Any, made: Any = None) -> tuple[Any, ...]:
        self.asked.append((name, *told))
        return (int(name == self.failing),) if made is None else (int(name == self.failing), made)

    def _seen(self, parameters: Any) -> tuple[Any, ...]:
        arguments = ctypes.cast(parameters.kernelParams, ctypes.POINTER(ctypes.c_void_p))
        count = self.addresses // self.together
        values = [ctypes.cast(arguments[n], ctypes.POINTER(ctypes.c_uint64)) for n in range(count)]
        return parameters.func, [value[n] for value in values for n in range(self.together)]

    def cuGraphCreate(self, flags: int) -> tuple[Any, ...]:
        return self._answer("cuGraphCreate", made="graph")

    def cuGraphAddKernelNode(self, graph: Any, before: Any, count: int, parameters: Any) -> tuple[Any, ...]:
        assert count == len(before)
        return self._answer("cuGraphAddKernelNode", before, self._seen(parameters), made=f"node {len(self.asked)}")

    def CUstreamCaptureMode(self, number: int) -> int:
        return number

    def cuStreamCreate(self, flags: int) -> tuple[Any, ...]:
        return self._answer("cuStreamCreate", flags, made=5)

    def cuStreamDestroy(self, stream: Any) -> tuple[Any, ...]:
        return self._answer("cuStreamDestroy", stream)

    def cuStreamBeginCapture(self, stream: Any, mode: Any) -> tuple[Any, ...]:
        return self._answer("cuStreamBeginCapture", stream, mode)

    def cuStreamEndCapture(self, stream: Any) -> tuple[Any, ...]:
        return self._answer("cuStreamEndCapture", stream, made=f"child {len(self.asked)}")

    def cuGraphAddChildGraphNode(self, graph: Any, before: Any, count: int, child: Any) -> tuple[Any, ...]:
        assert count == len(before)
        return self._answer("cuGraphAddChildGraphNode", before, child, made=f"node {len(self.asked)}")

    def cuGraphExecChildGraphNodeSetParams(self, execution: Any, node: Any, child: Any) -> tuple[Any, ...]:
        return self._answer("cuGraphExecChildGraphNodeSetParams", node, child)

    def cuGraphInstantiate(self, graph: Any, flags: int) -> tuple[Any, ...]:
        return self._answer("cuGraphInstantiate", made="execution")

    def cuGraphExecKernelNodeSetParams(self, execution: Any, node: Any, parameters: Any) -> tuple[Any, ...]:
        return self._answer("cuGraphExecKernelNodeSetParams", node, self._seen(parameters))

    def cuGraphLaunch(self, execution: Any, stream: Any) -> tuple[Any, ...]:
        return self._answer("cuGraphLaunch", execution, stream)

    def cuGraphExecDestroy(self, execution: Any) -> tuple[Any, ...]:
        return self._answer("cuGraphExecDestroy")

    def cuGraphDestroy(self, graph: Any) -> tuple[Any, ...]:
        return self._answer("cuGraphDestroy")


def node(*handles: int, after: tuple[int, ...] = (), packed: bool = False) -> KernelNode:
    """A kernel with these launches, that sees addresses 10 and 20."""
    launches = [CudaLaunch(f"f{handle}", (3, 1, 1), (64, 1, 1), 128) for handle in handles]
    return KernelNode(handles, launches, (10, 20), packed, after)


def graph(recorder: Any, *nodes: KernelNode | CallNode) -> CudaGraph:
    return CudaGraph(recorder, lambda: STREAM, nodes)


def test_launches_of_a_kernel_follow_each_other_and_kernels_what_they_need() -> None:
    recorder = Recorder()
    graph(recorder, node(1, 2), node(3), node(4, after=(0, 1)))
    added = [told[1:] for told in recorder.asked if told[0] == "cuGraphAddKernelNode"]
    assert added == [
        ([], (1, [10, 20])),
        (["node 1"], (2, [10, 20])),
        ([], (3, [10, 20])),
        (["node 2", "node 3"], (4, [10, 20])),
    ]


def test_a_replay_is_one_call_and_other_addresses_one_more_each() -> None:
    recorder = Recorder()
    made = graph(recorder, node(1, 2), node(3))
    recorder.asked.clear()
    made({})
    assert recorder.asked == [("cuGraphLaunch", "execution", STREAM)]
    recorder.asked.clear()
    made({1: (30, 40)})
    assert recorder.asked == [
        ("cuGraphExecKernelNodeSetParams", "node 3", (3, [30, 40])),
        ("cuGraphLaunch", "execution", STREAM),
    ]


def test_kernels_that_are_launched_together_take_one_structure() -> None:
    recorder = Recorder(together=2)
    graph(recorder, node(1, packed=True))
    assert ("cuGraphAddKernelNode", [], (1, [10, 20])) in recorder.asked


def test_what_was_made_is_given_back() -> None:
    recorder = Recorder()
    made = graph(recorder, node(1))
    del made
    assert [told[0] for told in recorder.asked[-2:]] == ["cuGraphExecDestroy", "cuGraphDestroy"]


@pytest.mark.parametrize("name", ["cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiate", "cuGraphLaunch"])
def test_a_refusal_names_the_call(name: str) -> None:
    with pytest.raises(BackendError, match=f"{name} failed: 1"):
        graph(Recorder(name), node(1))({})


def called(recorder: Recorder, *after: int) -> CallNode:
    """A call of a library, which starts what it starts in the stream that it is given."""

    def start(pointers: Any, stream: int) -> None:
        recorder.asked.append(("called", list(pointers), stream))

    return CallNode(start, (10, 20), after)


def test_a_call_of_a_library_is_captured_into_a_child_graph() -> None:
    recorder = Recorder()
    graph(recorder, node(1), called(recorder, 0), node(2, after=(1,)))
    names = [told[0] for told in recorder.asked]
    begin = names.index("cuStreamCreate")
    assert names[begin : begin + 7] == [
        *("cuStreamCreate", "cuStreamBeginCapture", "called", "cuStreamEndCapture", "cuGraphAddChildGraphNode"),
        *("cuGraphDestroy", "cuStreamDestroy"),
    ]
    assert ("called", [10, 20], 5) in recorder.asked
    (child,) = [told for told in recorder.asked if told[0] == "cuGraphAddChildGraphNode"]
    assert child[1] == ["node 1"]
    assert recorder.asked[begin + 7][:2] == ("cuGraphAddKernelNode", [f"node {begin + 4}"])


def test_other_addresses_of_a_call_are_another_capture() -> None:
    recorder = Recorder()
    made = graph(recorder, called(recorder))
    recorder.asked.clear()
    made({0: (30, 40)})
    names = [told[0] for told in recorder.asked]
    assert ("called", [30, 40], 5) in recorder.asked
    assert names.index("cuGraphExecChildGraphNodeSetParams") < names.index("cuGraphLaunch")
    assert names.count("cuStreamDestroy") == names.count("cuGraphDestroy") == 1


def test_a_call_that_fails_ends_the_capture_and_leaves_nothing() -> None:
    recorder = Recorder()

    def fails(pointers: Any, stream: int) -> None:
        raise BackendError("refused")

    with pytest.raises(BackendError, match="refused"):
        graph(recorder, CallNode(fails, (10, 20), ()))
    names = [told[0] for told in recorder.asked]
    assert "cuStreamEndCapture" in names
    assert "cuStreamDestroy" in names
    assert "cuGraphInstantiate" not in names


@pytest.mark.parametrize("name", ["cuStreamCreate", "cuStreamBeginCapture", "cuStreamEndCapture"])
def test_a_capture_that_is_refused_is_an_error(name: str) -> None:
    recorder = Recorder(name)
    with pytest.raises(BackendError, match=f"{name} failed: 1"):
        graph(recorder, called(recorder))
