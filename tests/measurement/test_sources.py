"""What records are about: kernels that are lowered again from their texts, and what is kept, exported and merged."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from autofuse.errors import MeasureError
from autofuse.ir.digest import digest
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.measurement.database import Database
from autofuse.measurement.records import stamped
from autofuse.measurement.sources import KernelSource, kernel_from, kernel_text
from autofuse.runtime.planlowering import canonical
from autofuse.search.space.classes import class_digest
from autofuse.testing.graphs import random_graph
from autofuse.testing.partitions import TARGET, context_of
from autofuse.testing.rareops import ALL_FAMILIES
from tests.fixtures.recorded import DESCRIPTION, HERE, KERNEL, NOTE, PROGRAM, fill, measured


def _shared(program: TileProgram | OpaqueProgram) -> object:
    """What is equal for programs that become the same code."""
    return digest(program.graph) if isinstance(program, OpaqueProgram) else canonical(program)


@pytest.mark.parametrize("seed", range(6))
def test_a_kernel_is_lowered_from_its_text_as_from_its_program(seed):
    graph = random_graph(np.random.default_rng(seed), 14, families=ALL_FAMILIES)
    for candidate in context_of(graph).space.candidates:
        text = kernel_text(candidate.kernel)
        if not text:  # it reads a constant array
            continue
        again = kernel_from(text, "kernel")
        assert kernel_text(again) == text
        assert class_digest(again) == class_digest(candidate.kernel)
        one, other = (lower(k, Schedule(), "kernel", TARGET.limits) for k in (candidate.kernel, again))
        assert _shared(one) == _shared(other)


def test_what_is_no_kernel_is_refused():
    for text in ("", "hello", "graph kernel(", "\x00"):
        with pytest.raises(MeasureError, match="line 7: is not the text of a graph"):
            kernel_from(text, "line 7")


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path / "r.db", HERE) as opened:
        yield opened


def test_records_are_exported_with_all_that_they_are_about(database):
    fill(database)
    first, *_, unknown = database.exported()
    assert (first.identity, first.kernel, first.program) == (HERE, KERNEL, PROGRAM)
    assert (first.note, first.description) == (NOTE, DESCRIPTION)
    assert (unknown.kernel, unknown.program, unknown.note, unknown.description) == (None, None, None, "")
    line = json.loads(next(database.export()))
    assert line["source"] == {"text": "kernel text", "kind": "loop", "program": "softmax/full"}
    assert line["load"] == 0.25


def test_merging_lines_carries_everything(tmp_path, database):
    fill(database)
    with Database(tmp_path / "other.db") as other:
        assert other.merge(database.export()) == 5
        assert list(other.exported()) == list(database.exported())
        assert other.merge(database.export()) == 0


def test_the_first_that_is_known_stays(database):
    fill(database)
    database.keep([replace(KERNEL, text="another")], [replace(PROGRAM, family="another")])
    assert next(database.exported()).kernel == KERNEL
    assert next(database.exported()).program == PROGRAM


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d.update(load=-1), "line 1: load: must be a number"),
        (lambda d: d.update(description="{}"), "line 1: description: is not the one that `described` names"),
        (lambda d: d["source"].pop("text"), "line 1: source: the key 'text' is missing"),
        (lambda d: d["program"].update(bounds={"x": "y"}), r"line 1: program\.bounds\.x: must be an integer"),
    ],
)
def test_what_is_unfit_refuses_the_whole_merge(tmp_path, database, edit, message):
    fill(database)
    data = json.loads(next(database.export()))
    edit(data)
    with Database(tmp_path / "other.db") as other:
        with pytest.raises(MeasureError, match=message):
            other.merge([json.dumps(data)])
        assert other.records() == []


def test_a_line_of_an_earlier_version_is_the_record_that_it_was(tmp_path, database):
    record = database.add(replace(measured(), load=None))
    data = json.loads(next(database.export()))
    del data["load"], data["described"]
    with Database(tmp_path / "other.db") as other:
        assert other.merge([json.dumps(data)]) == 1
        assert other.records(all_devices=True) == [record]
    assert database.merge([json.dumps(data)]) == 0


def test_a_record_that_says_nothing_new_goes_by_the_name_that_it_always_had():
    m = replace(measured(), load=None, compiled=None)
    fields = {
        "kernel": m.kernel,
        "schedule": "{}",
        "signature": m.signature,
        "policy": m.policy,
        "code_version": m.code_version,
        "status": "ok",
        "message": "",
        "samples_us": list(m.samples_us),
        "input_values": "",
        "created_ns": 7,
    }
    old = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:32]
    assert stamped(m, "device", 7).uid == old
    assert stamped(replace(m, load=0.0), "device", 7).uid != old


def test_over_long_texts_are_refused(database):
    with pytest.raises(MeasureError, match=r"kernel\.text: has"):
        database.keep([KernelSource("k", "x" * (1 << 23), "loop", "p")], [])
    with pytest.raises(MeasureError, match="description"):
        database.describe("x" * (1 << 20))
