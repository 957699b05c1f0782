"""What the worker does for the collector: kernels are checked before they are timed, and each failure is its own."""

import json

import numpy as np
import pytest

from autofuse.cost_models.compiled import facts_from
from autofuse.errors import BackendError, DeviceLostError, MeasureError
from autofuse.ir.dtypes import I32
from autofuse.ir.graphtext import to_text
from autofuse.lower.schedule import Schedule
from autofuse.measurement import collecting
from autofuse.measurement.timer import Timing
from autofuse.measurement.worker import Wait
from autofuse.plan.identity import identity_to_json
from autofuse.strictjson import Item
from autofuse.targets.cpu.machine import host_machine
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.graphs import random_inputs
from autofuse.testing.partitions import identity_here
from autofuse.testing.sketches import Sketch

SMALL, LARGE = 64, 600
WAIT = Wait(lambda _: None)


def graph_of(side):
    """`exp`, its sum, and what counts it."""
    sketch = Sketch("program")
    x = sketch.arg(f"f32[{side},{side}]")
    e = sketch.op("exp", x, name="e")
    total = sketch.reduce(e, 1, name="total")
    count = sketch.op("convert", e, name="count", dtype=I32)
    return sketch.finish([e, total, count])


def kernel(*names, schedule=None):
    return {"nodes": names, "outputs": names, "schedule": (schedule or Schedule()).to_json(), "target": 0}


EXP, SUM, COUNT = kernel("e"), kernel("total"), kernel("count")


def opened(side=SMALL):
    graph = graph_of(side)
    arrays = {f"input{n}": a for n, a in enumerate(random_inputs(graph, np.random.default_rng(0)))}
    identities = [identity_to_json(identity_here())]
    payload = {"session": "s", "text": to_text(graph), "identities": identities, "held_bytes": 1 << 30}
    assert collecting.open_program(payload, arrays, WAIT) == {}


def prepared(*kernels, check=True):
    answer = collecting.prepare({"session": "s", "kernels": kernels, "check": check}, {}, WAIT)
    return json.loads(json.dumps(answer))["kernels"]


def timed(rounds=2):
    return collecting.time_prepared({"session": "s", "rounds": rounds, "seed": [0, 1]}, {}, WAIT)


@pytest.mark.parametrize("side", [SMALL, LARGE])
def test_kernels_are_prepared_and_timed_in_rounds(side):
    opened(side)
    assert [found["status"] for found in prepared(EXP, SUM, COUNT)] == ["ok"] * 3
    answer = timed(rounds=2)
    for samples in answer["samples_us"]:
        assert 4 <= len(samples) <= 16
        assert min(samples) > 0
    assert len(timed(rounds=1)["samples_us"]) == 3
    assert answer["conditions"] == ""


def test_what_is_prepared_next_takes_the_place_of_what_was():
    opened()
    prepared(EXP, SUM)
    prepared(COUNT)
    assert len(timed()["samples_us"]) == 1


def test_times_are_without_what_a_call_takes_beside_its_kernel(monkeypatch):
    opened()
    prepared(EXP, SUM)
    found = Timing(100.0, 50.0, 100.0, (100.0, 50.0, 4.0), pruned=False)
    monkeypatch.setattr(collecting, "timed", lambda *_: found)
    monkeypatch.setattr(CpuTarget, "entry_us", lambda self, arrays: 4.0 + arrays)
    assert timed(rounds=1)["samples_us"] == [[94.0, 44.0, pytest.approx(0.2)]] * 2


class Spoiling:
    """A runner whose kernel writes something near the right answer, or far from it."""

    def __init__(self, runner, spoil):
        self._runner, self._spoil = runner, spoil

    def run_into(self, inputs, outs):
        self._runner.run_into(inputs, outs)
        self._spoil(outs[0].reshape(-1))
        return True

    def bound(self, inputs, outs):
        return self._runner.bound(inputs, outs)

    def compiled(self):
        return self._runner.compiled()


@pytest.fixture
def spoiled(monkeypatch):
    """Let what kernels write be changed."""
    own = CpuTarget.runners

    def spoil(change):
        monkeypatch.setattr(CpuTarget, "runners", lambda *given: [Spoiling(runner, change) for runner in own(*given)])

    return spoil


def nothing(flat):
    pass


def poisons(flat):
    flat[7] = np.nan if flat.dtype.kind == "f" else -1


def one_bit(flat):
    flat[7] = np.nextafter(flat[7], np.inf) if flat.dtype.kind == "f" else flat[7]


def a_hundredth(flat):
    flat[:] += (flat.max() / 100).astype(flat.dtype) if flat.dtype.kind == "f" else 1


def few(flat):
    flat[7:9] += 1


@pytest.mark.parametrize(
    ("side", "of", "change", "status"),
    [
        (SMALL, EXP, nothing, "ok"),
        (SMALL, EXP, poisons, "wrong"),
        (SMALL, EXP, a_hundredth, "wrong"),
        (SMALL, COUNT, few, "wrong"),
        (LARGE, EXP, nothing, "ok"),
        (LARGE, EXP, one_bit, "ok"),
        (LARGE, EXP, poisons, "wrong"),
        (LARGE, EXP, a_hundredth, "wrong"),
        (LARGE, SUM, a_hundredth, "wrong"),
        (LARGE, COUNT, few, "ok"),  # where a decision was close
        (LARGE, COUNT, a_hundredth, "wrong"),
    ],
)
def test_wrong_answers_are_found(spoiled, side, of, change, status):
    opened(side)
    spoiled(change)
    (found,) = prepared(of)
    assert found["status"] == status
    assert bool(found["message"]) == (status != "ok")
    assert bool(timed()["samples_us"][0]) == (status == "ok")
    assert prepared(of, check=False)[0]["status"] == "ok"


def test_what_fails_costs_only_itself(monkeypatch):
    opened()
    own = CpuTarget.runners

    def some(target, candidate, schedules):
        if candidate.outputs[0].name == "total":
            return [BackendError("not this one")]
        if candidate.outputs[0].name == "count":
            raise ZeroDivisionError("by hand")
        return own(target, candidate, schedules)

    monkeypatch.setattr(CpuTarget, "runners", some)
    found = prepared(EXP, SUM, COUNT, EXP)
    assert [one["status"] for one in found] == ["ok", "refused", "refused", "ok"]
    assert "not this one" in found[1]["message"]
    assert [bool(samples) for samples in timed()["samples_us"]] == [True, False, False, True]


def test_a_lost_device_ends_the_job(monkeypatch):
    opened()

    def lost(*_):
        raise DeviceLostError("gone")

    monkeypatch.setattr(CpuTarget, "runners", lost)
    with pytest.raises(DeviceLostError):
        prepared(EXP, SUM)


def test_a_program_must_be_open():
    collecting._open.clear()
    with pytest.raises(MeasureError, match="no such program"):
        prepared(EXP)
    with pytest.raises(MeasureError, match="no such program"):
        timed()


def test_what_the_compiler_said_is_told():
    opened()
    (known,) = prepared(EXP)
    assert (known["compiled"] is not None) == (host_machine().architecture == "x86_64")
    if known["compiled"] is not None:
        facts = facts_from(Item(known["compiled"], "compiled", MeasureError, "prepare"))
        assert facts.launches[0].code_bytes > 0


def test_unusual_values_are_told():
    opened()
    assert prepared(EXP)[0]["unusual"] is False
    graph = graph_of(SMALL)
    x = np.full((SMALL, SMALL), 1e-40, np.float32)  # subnormal
    payload = {
        "session": "s",
        "text": to_text(graph),
        "identities": [identity_to_json(identity_here())],
        "held_bytes": 1 << 30,
    }
    collecting.open_program(payload, {"input0": x}, WAIT)
    assert prepared(EXP)[0]["unusual"] is True


def test_what_is_not_finite_must_be_what_it_should_be():
    right = np.array([1.0, np.inf, -np.inf, np.nan, 2.0], np.float32)
    assert not collecting._far_off(right.copy(), right).any()
    for place, value in ((1, -np.inf), (1, 3e38), (3, 1.0), (0, np.nan), (4, np.inf)):
        out = right.copy()
        out[place] = value
        assert list(np.flatnonzero(collecting._far_off(out, right))) == [place]
