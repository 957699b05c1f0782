"""A target that lacks a piece, answers nonsense or raises: one error names target and piece, and records are kept."""

import itertools
import re
import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

import autofuse as af
from autofuse.cost_models.compiled import CompiledFacts, LaunchFacts
from autofuse.errors import AutofuseError, BackendError, MeasureError, PluginError, SearchError
from autofuse.lower.decisions import Decisions, Rule
from autofuse.targets import base, registry
from autofuse.testing.counted.backend import CountedBackend
from autofuse.testing.counted.device import BATCH, CountedClock, CountedDevice
from autofuse.testing.counted.executable import CountedExecutable, CountedKernel
from autofuse.testing.counted.model import CountedModel
from autofuse.testing.counted.target import CountedTarget
from autofuse.testing.counted.work import features
from autofuse.testing.targets import TargetContract

COUNTED = CountedTarget()
X = np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6)


def program(x):
    return np.exp(x).sum(axis=1)


def broken(*args, **kwargs):
    raise ZeroDivisionError("by hand")


@pytest.fixture
def install(monkeypatch):
    """Puts a target that differs from the counted one in a piece in its place."""

    def put(bases=(CountedTarget,), **pieces):
        made = type("Bad", bases, pieces)
        monkeypatch.setitem(
            registry._made, "counted", type("Backend", (CountedBackend,), {"target": lambda *_: made()})()
        )

    return put


def tune(**options):
    return af.tune(program, X, backend="counted", max_trials=6, progress=False, **options)


def without(kind, piece):
    """The class, but for one piece."""
    return {name: value for name, value in vars(kind).items() if name not in (piece, "__dict__", "__weakref__")}


@pytest.mark.parametrize("piece", ["runners", "clock", "identity", "executable"])
def test_a_target_that_lacks_a_piece(install, piece):
    pieces = without(CountedTarget, piece)
    if piece == "clock":  # which it makes when it is made
        pieces["__init__"] = lambda self: setattr(self, "device", CountedDevice())
    install((), **pieces)
    for ask in (lambda: af.compile(program, X, backend="counted"), tune):
        with pytest.raises(BackendError, match=f"target 'counted' lacks {piece}: see autofuse.targets.base.Target"):
            ask()


def test_a_backend_that_lacks_a_piece_or_has_no_module(monkeypatch):
    monkeypatch.setitem(registry._made, "counted", type("Bare", (), without(CountedBackend, "ready"))())
    with pytest.raises(BackendError, match=r"target 'counted' lacks ready: see autofuse.targets.base.Backend"):
        base.find_backend("counted")
    monkeypatch.delitem(registry._made, "counted")
    monkeypatch.setitem(registry._BACKENDS, "counted", ("autofuse.no_such", "Backend"))
    with pytest.raises(BackendError, match=r"target 'counted': Backend raised ModuleNotFoundError"):
        af.compile(program, X, backend="counted")


def test_a_target_that_cannot_be_made(install):
    install(__init__=broken)
    with pytest.raises(BackendError, match=r"target 'counted': Backend.target raised ZeroDivisionError: by hand"):
        af.compile(program, X, backend="counted")


class Late(CountedKernel):
    """A kernel that breaks in the middle of being timed."""

    def bound(self, inputs, outs):
        calls = []

        def call():
            calls.append(self.run_into(inputs, outs))
            if len(calls) == 3:
                broken()

        return call


def kernels_of(kind):
    """Runners that break in a way of their own."""
    real = CountedTarget.runners
    return lambda self, kernel, schedules: [
        kind(runner.program, runner.takes, runner.clock) for runner in real(self, kernel, schedules)
    ]


class Raising(CountedKernel):
    run_into = broken


class Clocked(CountedTarget):
    """Its clock is read in a way of its own."""

    read = broken

    def __init__(self):
        super().__init__()
        self.clock = type("Odd", (CountedClock,), {"__call__": type(self).read})()


BAD_TIMING = {
    "runners raises": ({"runners": broken}, "Target.runners raised ZeroDivisionError: by hand"),
    "runners gives too few": ({"runners": lambda *args: []}, "Target.runners gave 0 for 1 schedules"),
    "runners gives nothing": ({"runners": lambda *args: None}, "Target.runners raised TypeError"),
    "runners gives no runners": ({"runners": lambda self, kernel, many: [7] * len(many)}, "Runner.run_into raised"),
    "a kernel raises": ({"runners": kernels_of(Raising)}, "Runner.run_into raised ZeroDivisionError: by hand"),
    "a kernel raises later": ({"runners": kernels_of(Late)}, "what Runner.bound gave, or Target.clock, raised Zero"),
    "the clock stands still": (
        {"bases": (Clocked,), "read": lambda clock: 7},
        "Target.clock read 7 before a kernel and 7 after it",
    ),
    "the clock raises": ({"bases": (Clocked,)}, "Target.clock raised ZeroDivisionError: by hand"),
}


@pytest.mark.usefixtures("near")
@pytest.mark.parametrize("case", BAD_TIMING)
def test_a_target_that_fails_in_the_middle_of_timing(install, case, tmp_path):
    """Each kernel costs one record; the error that ends the run says whose fault it is."""
    pieces, message = BAD_TIMING[case]
    install(**pieces)
    with pytest.raises(MeasureError, match=re.escape(f"target 'counted': {message}")):
        tune(db=tmp_path / "records.db")
    with closing(sqlite3.connect(tmp_path / "records.db")) as records:
        kept = records.execute("select status, message from records").fetchall()
    assert kept
    assert all(status in ("refused", "error") and message in told for status, told in kept)


def executables_of(run):
    """Plans that run in a way of their own."""
    made = type("Odd", (CountedExecutable,), {"run": run})
    real = CountedTarget.executable
    return lambda self, document, kernels=None: (
        lambda built: made(built.document, built.kernels, built.counted, built.memory, built.target)
    )(real(self, document, kernels))


BAD_PLANS = {
    "executable raises": (broken, "Target.executable raised ZeroDivisionError: by hand"),
    "a plan raises": (executables_of(broken), "Executable.run raised ZeroDivisionError: by hand"),
    "a plan gives nothing": (executables_of(lambda self, inputs: None), "Executable.run raised TypeError"),
    "a plan gives too much": (
        executables_of(lambda self, inputs: (inputs[0],) * 3),
        "Executable.run gave 3 results of 1",
    ),
}


@pytest.mark.usefixtures("near")
@pytest.mark.parametrize("case", BAD_PLANS)
def test_a_target_whose_plans_do_not_run(install, case, tmp_path):
    """The kernels' times are kept."""
    executable, message = BAD_PLANS[case]
    install(executable=executable)
    with pytest.raises(MeasureError, match=re.escape(f"target 'counted': {message}")):
        tune(db=tmp_path / "records.db")
    with closing(sqlite3.connect(tmp_path / "records.db")) as records:
        assert records.execute("select count(*) from records where status = 'ok'").fetchone()[0] > 0


def test_a_plan_that_cannot_be_made(install):
    install(executable=broken)
    plan = af.compile(program, X, backend="counted")
    with pytest.raises(BackendError, match=r"target 'counted': Target.executable raised ZeroDivisionError"):
        plan(X)


def limited(**pieces):
    """Limits that differ in a piece."""
    return property(lambda self: replace(COUNTED.limits, **pieces))


def decided(tried):
    """Limits with a decision that goes wrong for each kernel."""
    return limited(decisions=Decisions((Rule(BATCH, tried),)))


IN_THIS_PROCESS = {
    "identity raises": ({"identity": property(broken)}, "Target.identity raised ZeroDivisionError: by hand"),
    "identity is none": ({"identity": "counted"}, "Target.identity gave 'counted'; it must be a Identity"),
    "limits raise": ({"limits": property(broken)}, "Target.limits raised ZeroDivisionError: by hand"),
    "limits are none": ({"limits": 7}, "Target.limits gave 7; it must be a Limits"),
    "decisions are none": ({"limits": limited(decisions=())}, "Limits.decisions gave (); it must be a Decisions"),
    "passes raise": ({"limits": limited(passes=broken)}, "Limits.passes raised ZeroDivisionError: by hand"),
    "workspaces raise": ({"limits": limited(workspaces=broken)}, "Limits.workspaces raised ZeroDivisionError: by hand"),
    "workspaces give nothing": ({"limits": limited(workspaces=str)}, 'Limits.workspaces gave "TileProgram('),
    "passes give nothing": ({"limits": limited(passes=str)}, 'Limits.passes gave "TileProgram('),
    "fingerprint raises": ({"fingerprint": broken}, "Target.fingerprint raised ZeroDivisionError: by hand"),
    "fingerprint is empty": ({"fingerprint": lambda self: ""}, "Target.fingerprint gave ''; it must be a str"),
    "cost_model raises": ({"cost_model": broken}, "Target.cost_model raised ZeroDivisionError: by hand"),
    "executable raises": ({"executable": broken}, "Target.executable raised ZeroDivisionError: by hand"),
    "a plan raises": ({"executable": executables_of(broken)}, "Executable.run raised ZeroDivisionError: by hand"),
    "a plan lacks a piece": ({"executable": lambda *_: 7}, "lacks Executable."),
}


@pytest.mark.parametrize("case", IN_THIS_PROCESS)
def test_a_target_that_fails_in_the_users_own_process(install, case, monkeypatch, tmp_path):
    """Whoever asks, and whatever for: the error says whose fault it is."""
    monkeypatch.delenv("AUTOFUSE_DECISIONS")  # asks for a fingerprint
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path))
    pieces, message = IN_THIS_PROCESS[case]
    install(**pieces)
    with pytest.raises(BackendError, match=rf"target 'counted':? {re.escape(message)}"):
        af.compile(program, X, backend="counted")(X)


LATE = {
    "features raise": ({"features": broken}, "Target.features raised ZeroDivisionError: by hand"),
    "features are none": ({"features": lambda self, kernel: 7}, "Target.features gave 7; it must be a KernelFeatures"),
    "a decision raises": ({"limits": decided(broken)}, "Decisions.choices raised ZeroDivisionError: by hand"),
}


@pytest.mark.usefixtures("near")
@pytest.mark.parametrize("case", LATE)
def test_a_target_that_fails_when_schedules_are_tuned(install, case, tmp_path):
    """What was measured before is kept, and there is a plan."""
    pieces, message = LATE[case]
    install(**pieces)
    with pytest.raises(BackendError, match=re.escape(f"target 'counted': {message}")) as caught:
        tune(db=tmp_path / "records.db")
    assert caught.value.best is not None
    with closing(sqlite3.connect(tmp_path / "records.db")) as records:
        assert records.execute("select count(*) from records where status = 'ok'").fetchone()[0] > 0


@pytest.mark.parametrize("piece", ["decisions", "identity_type", "prepare", "ready"])
def test_a_backend_with_a_piece_that_raises(monkeypatch, piece, tmp_path):
    path = af.compile(program, X, backend="counted").save(tmp_path / "plan.json")
    raising = broken if piece in ("prepare", "ready") else property(broken)
    monkeypatch.setitem(registry._made, "counted", type("Backend", (CountedBackend,), {piece: raising})())
    with pytest.raises(BackendError, match=f"target 'counted': Backend.{piece} raised ZeroDivisionError: by hand"):
        base.find_backend("counted").decisions if piece == "decisions" else af.load(path)


class Priceless(CountedModel):
    __module__ = "elsewhere"

    def price(self, kernels):
        return replace(super().price(kernels), us=np.full(len(kernels), np.nan))


class Dear(CountedModel):
    __module__ = "elsewhere"
    price = broken


def test_a_cost_model_that_gives_nonsense_raises_or_is_none(install):
    for model, fault in ((Priceless, "gave us"), (Dear, "raised ZeroDivisionError: by hand")):
        install(cost_model=lambda self, model=model: model(self.device))
        with pytest.raises(PluginError, match=rf"analytical of target counted': price\(\) {fault}"):
            af.compile(program, X, backend="counted")
    install(cost_model=lambda self: 7)
    with pytest.raises(SearchError, match=r"analytical of target counted' gives a int, which has no price\(\)"):
        af.compile(program, X, backend="counted")


def test_a_device_that_cannot_be_described(install):
    pieces = without(CountedTarget, "device") | {"device": property(broken), "__init__": lambda self: None}
    install((), **pieces, clock=COUNTED.clock)
    with pytest.raises(SearchError, match=r"target 'counted': Target.device raised ZeroDivisionError: by hand"):
        af.compile(program, X, backend="counted", model="autofuse.testing.counted.model:CountedModel")


class Idle(CountedKernel):
    """It says that it ran."""

    def run_into(self, inputs, outs):
        return True


class Vague(CountedKernel):
    """Its compiler says something else each time."""

    def compiled(self):
        return CompiledFacts((LaunchFacts(next(count), 0, 0, 0),))


count = itertools.count()

NOTICED = {
    "test_it_says_what_it_is": {"fingerprint": lambda self: str(id(self))},
    "test_threads_that_it_has_not_are_refused": {},  # what the fixture puts there takes any number
    "test_its_identity_survives_json": {"identity": property(lambda self: "counted")},
    "test_features_are_counts": {"features": lambda self, kernel: replace(features(kernel), launches=-1)},
    "test_prices_are_finite_and_not_below_the_floor": {"cost_model": lambda self: Priceless(self.device)},
    "test_runners_give_the_interpreters_answers": {"runners": kernels_of(Idle)},
    "test_a_runner_says_what_its_compiler_knows_or_nothing": {"runners": kernels_of(Vague)},
    "test_what_is_no_kernel_is_an_error_returned_and_not_raised": {"runners": broken},
    "test_the_clock_moves_with_the_work": {"bases": (Clocked,), "read": lambda clock: 7},
    "test_a_plan_gives_the_interpreters_answers": {"executable": executables_of(lambda self, inputs: (inputs[0],))},
    "test_what_is_written_back_is_where_the_plan_says": {
        "executable": executables_of(lambda self, inputs: (inputs[0] + inputs[1], inputs[0] * 2))
    },
}


class Spoilt(TargetContract):
    """Not collected: its name does not begin with Test."""

    name = "counted"


@pytest.mark.parametrize("test", NOTICED)
def test_the_contract_suite_notices(install, test):
    getattr(Spoilt(), test)()
    install(**NOTICED[test])
    with pytest.raises((AssertionError, AutofuseError, pytest.fail.Exception)):
        getattr(Spoilt(), test)()
