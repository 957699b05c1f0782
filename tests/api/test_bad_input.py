"""Bad input to the search, as a user meets it: one clear error each, from Python and on the command line."""

import errno
import inspect
import os
import sqlite3
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import autofuse as af
from autofuse.cli.main import main
from autofuse.errors import ArgumentError, LegalityError, MeasureError, PlanError, TraceError
from autofuse.measurement.database import Database
from autofuse.plan.store import PlanStore
from autofuse.targets.base import find_target

X = np.linspace(-2, 2, 64, dtype=np.float32).reshape(8, 8)
PROGRAM = """import numpy as np


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
"""


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def crossed(x):
    """Two chains: one step of each in either kernel is a circle."""
    return np.sin(np.exp(x)), np.cos(np.tanh(x))


def kernels(fn):
    """The nodes of `fn`, one kernel each."""
    return [list(kernel.nodes) for kernel in af.compile(fn, X, policy="unfused").kernels]


def of_op(fn, op):
    (name,) = [node.name for node in af.compile(fn, X).document.graph.nodes if node.op == op]
    return name


# ---- rules and partitions --------------------------------------------------------------------------------------------

RULES = {
    "contradictory": (
        [af.Force("exp", "divide"), af.Forbid("exp", "divide")],
        r"Force\('exp', 'divide'\) and Forbid\('exp', 'divide'\) contradict one another",
    ),
    "two owners": ([af.Pin("exp"), af.Force("exp", "divide")], "contradict one another: the first has no place for"),
    "unknown": (
        [af.Forbid("exq", "divide")],
        r"'exq' is no op, node or source line of the program; did you mean exp\?",
    ),
    "circular": ([af.Pin("reduce*", "divide")], "a path leaves these nodes and comes back"),
}


@pytest.mark.parametrize(("rules", "message"), RULES.values(), ids=RULES)
@pytest.mark.parametrize("make", [af.compile, af.tune, af.candidates], ids=["compile", "tune", "candidates"])
def test_rules_that_cannot_be(make, rules, message):
    with pytest.raises((ArgumentError, LegalityError), match=message):
        make(softmax, X, rules=rules)


def test_a_partition_that_lacks_something():
    with pytest.raises(ArgumentError, match="partition: no kernel computes "):
        af.compile(softmax, X, partition=kernels(softmax)[:-1])


def test_a_partition_whose_kernels_wait_for_one_another():
    exp, sin, tanh, cos = (of_op(crossed, op) for op in ("exp", "sin", "tanh", "cos"))
    with pytest.raises(ArgumentError, match=r"these kernels wait for one another: kernel 0 waits for .*; kernel 1"):
        af.compile(crossed, X, partition=[[exp, cos], [tanh, sin]])


def test_a_partition_with_an_unknown_name():
    with pytest.raises(ArgumentError, match="kernel 0: 'divid' is no node of the program; did you mean"):
        af.compile(softmax, X, partition=[["divid"], *kernels(softmax)])


@pytest.mark.parametrize("partition", [[1], 7, "divide", ["divide"], [["divide", 3]], [None]])
def test_a_partition_that_is_no_list_of_names(partition):
    with pytest.raises(ArgumentError, match=r"^partition.* must be a list of"):
        af.compile(softmax, X, partition=partition)


@pytest.mark.parametrize("partition", [[[]], [["x"]], []])
def test_a_partition_of_nothing(partition):
    with pytest.raises(ArgumentError, match="partition: "):
        af.compile(softmax, X, partition=partition)


# ---- files of measurements -------------------------------------------------------------------------------------------


def other_version(path):
    Database(path, find_target().identity).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 1000")
    connection.close()


def other_machine(path):
    here = find_target().identity
    Database(path, replace(here, cores=here.cores + 8)).close()


def other_program(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()


def cut_off(path):
    Database(path, find_target().identity).close()
    path.write_bytes(path.read_bytes()[:5000])


FILES = {
    "another version": (other_version, r"t\.db has record format 1000, this autofuse uses"),
    "another machine": (other_machine, r"t\.db holds another machine's measurements \(cores .*autofuse db merge"),
    "another program": (other_program, r"t\.db is a SQLite file, but not a record database of autofuse"),
    "text": (lambda path: path.write_text("measurements\n" * 1000), r"t\.db: .*this is no record database"),
    "cut off": (cut_off, r"t\.db: .*the file is damaged"),
    "a folder": (lambda path: path.mkdir(), r"t\.db is not a file, but a folder"),
}


@pytest.mark.parametrize(("make", "message"), FILES.values(), ids=FILES)
def test_a_file_that_holds_no_measurements_of_this_machine(tmp_path, capsys, make, message):
    path, program = tmp_path / "t.db", tmp_path / "program.py"
    make(path)
    with pytest.raises(MeasureError, match=message):
        af.tune(softmax, X, db=path, budget=1.0, progress=False)
    program.write_text(PROGRAM)
    assert main(["tune", f"{program}:softmax", "--arg", "f32[8,8]", "--db", str(path), "--budget", "1"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("autofuse: ")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("size", [0, 1, 50, 100, 101, 1000, 4095, 4096, 4097, 9000])
def test_a_file_cut_off_anywhere_is_a_new_one_or_an_error(tmp_path, size):
    path, here = tmp_path / "t.db", find_target().identity
    Database(path, here).close()
    path.write_bytes(path.read_bytes()[:size])
    with suppress(MeasureError), Database(path, here) as base:
        assert base.records() == []


# ---- plan files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.5, 0.9, 0.999])
def test_a_plan_file_cut_off_anywhere(tmp_path, capsys, share):
    path = af.compile(softmax, X).save(tmp_path / "p.json")
    text = path.read_bytes().rstrip()
    path.write_bytes(text[: int(share * len(text))])
    for on_mismatch in ("error", "run", "retune"):
        with pytest.raises(PlanError, match=r"p\.json"):
            af.load(path, on_mismatch=on_mismatch)
    for command in ("run", "explain"):
        assert main([command, str(path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_disk_that_is_full_when_a_plan_is_saved(tmp_path, monkeypatch):
    plan = af.compile(softmax, X)
    path = plan.save(tmp_path / "p.json")
    before = path.read_bytes()

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PlanError, match=r"cannot write the plan to .*p\.json: No space left on device"):
        plan.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["p.json"]


# ---- options of a kind that they cannot be ---------------------------------------------------------------------------

NO_SWITCHES = ("no", 1, None, np.zeros(2))
NO_PATHS = {"number": 3, "bytes": b"x", "object": object(), "NUL": "a\0b", "half a pair": "\ud800"}
JUNK = {
    "kwargs": (3, [1], {1: X}, "x"),
    "threads": (1.5, "2", True),
    "variants": (3.5, b"x", object(), np.zeros(3), [3], None, 0, True, ()),
    **dict.fromkeys(("roll", "check_bounds", "cold", "progress"), NO_SWITCHES),
    **dict.fromkeys(("db", "inputs"), tuple(NO_PATHS.values())),
    "rules": ("a\0b", np.zeros(3)),
    "static": (3, "x", np.zeros(2)),
    **dict.fromkeys(("policy", "model", "legality", "numerics", "on_unsupported", "backend"), (np.zeros(3),)),
    "seed": (1.5, -1, "x"),
}


@pytest.mark.parametrize("make", [af.compile, af.tune, af.candidates, af.trace], ids=lambda make: make.__name__)
@pytest.mark.parametrize("option", JUNK)
def test_an_option_of_the_wrong_kind_is_refused_by_its_name(make, option):
    if option not in inspect.signature(make).parameters:
        pytest.skip("it has no such option")
    for value in JUNK[option]:
        with pytest.raises(ArgumentError, match=option) as refused:
            make(softmax, X, **{option: value})
        assert len(str(refused.value)) < 500


@pytest.mark.parametrize("make", [af.compile, af.tune, af.candidates, af.trace, af.jit], ids=lambda make: make.__name__)
def test_what_is_no_function_is_refused(make):
    for value in (3, "softmax", X, [softmax], {}):
        with pytest.raises(ArgumentError, match="must be a function, got"):
            make(value)


@pytest.mark.parametrize("option", ["store", "check_bounds", "roll", "threads", "variants", "policy", "on_miss"])
def test_options_of_jit_are_looked_at_when_it_decorates(option):
    for value in (3.5, np.zeros(3), object()):
        if option != "policy" or isinstance(value, np.ndarray):  # any object may be a policy
            with pytest.raises(ArgumentError, match=option):
                af.jit(softmax, **{option: value})


@pytest.mark.parametrize("path", NO_PATHS.values(), ids=NO_PATHS)
def test_what_cannot_be_the_name_of_a_file_is_refused(path):
    plan = af.compile(softmax, X)
    for call in (af.load, plan.save, PlanStore):
        with pytest.raises(ArgumentError, match="must be the name of a file or folder"):
            call(path)


OTHERS = {
    "interpret": (lambda: af.interpret(3, X), ArgumentError, "needs a graph"),
    "measure": (lambda: af.measure(3), ArgumentError, "needs a kernel of af.candidates"),
    "spec": (lambda: af.spec(2.5), ArgumentError, "must be text such as"),
    "spec of text in a shape": (lambda: af.spec(["2"]), ArgumentError, "must be text such as"),
    "schedule": (lambda: af.Pin("exp", schedule=3), ArgumentError, "must be a dict"),
    "on_mismatch": (lambda: af.load("p.json", on_mismatch=X), ArgumentError, "on_mismatch="),
    "names": (lambda: af.compile(softmax, X).why_not(X, X), ArgumentError, "takes names of nodes"),
    "find": (lambda: af.candidates(softmax, X).find(3), ArgumentError, "takes names of nodes"),
    "a long name of a store": (lambda: PlanStore("a" * 5000).folder, None, ""),
}


@pytest.mark.parametrize(("call", "kind", "message"), OTHERS.values(), ids=OTHERS)
def test_other_entries_say_what_they_need(call, kind, message):
    if kind is None:
        call()
    else:
        with pytest.raises(kind, match=message):
            call()


def same(state):
    return state


LOOPS = {
    "scan": (lambda: af.scan(3, 0.0, X), "scan needs a function, got 3"),
    "scan of a number": (lambda: af.scan(lambda c, x: (c, x), 0.0, 3.0), "got a number among xs"),
    "scan of half a length": (lambda: af.scan(lambda c, x: (c, x), 0.0, None, 2.5), "whole number as its length"),
    "scan of rows of two shapes": (lambda: af.scan(lambda c, x: (c + x, c), 0.0, X), r"has the shapes \(\) and \(8,\)"),
    "fori_loop": (lambda: af.fori_loop(0, 3, None, X), "fori_loop needs a function"),
    "fori_loop to text": (lambda: af.fori_loop(0, "3", lambda i, x: x, X), "whole number as a bound, got '3'"),
    "fori_loop to a fraction": (lambda: af.fori_loop(0, 2.5, lambda i, x: x, X), "whole number as a bound"),
    "while_loop": (lambda: af.while_loop(None, same, X), "while_loop needs a function"),
    "cond": (lambda: af.cond(True, same, 3, X), "cond needs a function, got 3"),
}


@pytest.mark.parametrize(("call", "message"), LOOPS.values(), ids=LOOPS)
def test_loops_say_what_they_need_in_a_trace_and_outside(call, message):
    with pytest.raises(TraceError, match=message):
        call()
    with pytest.raises(TraceError, match="state is" if "shapes" in message else message):
        af.trace(lambda x: (call(), x)[1], X)


LONG = "x" * 9000
LONG_TEXTS = {
    "policy": lambda: af.compile(softmax, X, policy=LONG),
    "backend": lambda: af.compile(softmax, X, backend=LONG),
    "device": lambda: af.compile(softmax, X, device=LONG),
    "gpu": lambda: af.compile(softmax, X, backend="cuda", device=LONG),
    "model": lambda: af.compile(softmax, X, model=LONG),
    "variants": lambda: af.compile(softmax, X, variants=f"columns={LONG}"),
    "rules": lambda: af.compile(softmax, X, rules=[af.Forbid(LONG, "divide")]),
    "schedule": lambda: af.compile(softmax, X, rules=[af.Pin("exp", schedule={LONG: 1})]),
    "partition": lambda: af.compile(softmax, X, partition=[[LONG]]),
    "spec": lambda: af.spec(f"f32[{LONG}]"),
    "dtype": lambda: af.spec((2,), LONG),
    "on_miss": lambda: af.jit(softmax, on_miss=LONG),
    "module": lambda: af.from_stablehlo(LONG),
    "pad": lambda: af.trace(lambda x: np.pad(x, 1, mode=LONG), X),
    "norm": lambda: af.trace(lambda x: np.linalg.norm(x, LONG), X),
    "rotation": lambda: af.trace(lambda x: af.random.key(LONG), X),
}


@pytest.mark.parametrize("call", LONG_TEXTS.values(), ids=LONG_TEXTS)
def test_what_came_is_cut_where_it_is_long(call):
    with pytest.raises(af.AutofuseError) as raised:
        call()
    assert len(str(raised.value)) < 800
