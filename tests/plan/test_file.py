import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autofuse.errors import PlanError
from autofuse.plan.file import load, save
from autofuse.testing.plans import example_plan

PLAN = example_plan()


def test_save_and_load(tmp_path):
    path = save(PLAN, tmp_path / "p.json")
    found = load(path)
    assert found.kernels == PLAN.kernels
    for name in ("w", "c"):
        kept = found.graph.value_by_name[name]
        array = found.graph.producers[kept].attrs["value"]
        expected = PLAN.graph.producers[PLAN.graph.value_by_name[name]].attrs["value"]
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert len(names) == 2
    assert re.fullmatch(r"p\.constants-[0-9a-f]{16}\.npz", names[0])
    assert names[1] == "p.json"


def test_small_constants_need_no_side_file(tmp_path):
    save(example_plan(large=False), tmp_path / "p.json")
    assert [p.name for p in tmp_path.iterdir()] == ["p.json"]
    load(tmp_path / "p.json")


def test_files_are_readable_by_whom_the_umask_says(tmp_path):
    before = os.umask(0o027)
    try:
        save(PLAN, tmp_path / "p.json")
    finally:
        os.umask(before)
    assert {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {0o640}


def test_a_plan_and_its_constants_can_move_and_be_renamed(tmp_path):
    save(PLAN, tmp_path / "p.json")
    new = tmp_path / "elsewhere"
    new.mkdir()
    for file in list(tmp_path.glob("p.*")):
        file.rename(new / file.name)
    (new / "p.json").rename(new / "q.json")
    load(new / "q.json")


def test_saving_again_keeps_the_older_constants(tmp_path):
    save(PLAN, tmp_path / "p.json")
    older = (tmp_path / "p.json").read_bytes()
    save(example_plan(large=False), tmp_path / "p.json")
    (tmp_path / "p.json").write_bytes(older)
    load(tmp_path / "p.json")


def test_failure_to_write_leaves_the_old_plan(tmp_path):
    path = save(PLAN, tmp_path / "p.json")
    with pytest.raises(PlanError, match="order"):
        save(replace(PLAN, order=()), path)
    load(path)
    with pytest.raises(PlanError, match="cannot write the plan"):
        save(PLAN, tmp_path / "none" / "p.json")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(PlanError, match="cannot write the plan"):
        save(PLAN, tmp_path / "folder.json")
    assert not list(tmp_path.glob(".*"))


def test_no_file_takes_the_place_of_a_pipe_or_a_device(tmp_path):
    """As whoever may do anything, `-o /dev/full` made that a plan for everybody."""
    pipe, device = tmp_path / "pipe", tmp_path / "device"
    os.mkfifo(pipe)
    device.symlink_to("/dev/null")
    for path in (pipe, device):
        with pytest.raises(
            PlanError, match=f"cannot write the plan to {path}: it is a device, a pipe or a socket; give"
        ):
            save(example_plan(), path)
    assert sorted(tmp_path.iterdir()) == [device, pipe]
    assert pipe.is_fifo()
    assert device.is_symlink()


def test_what_is_no_plan_file_is_refused(tmp_path):
    with pytest.raises(PlanError, match="there is no such plan file"):
        load(tmp_path / "none.json")
    with pytest.raises(PlanError, match="is not a file"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PlanError, match="is not a file"):
        load(tmp_path / "pipe")
    with pytest.raises(PlanError, match="is not a file"):
        load("/dev/zero")
    with pytest.raises(PlanError, match="cannot read"):
        load("a\0b")


def test_messages_name_the_file(tmp_path):
    path = save(PLAN, tmp_path / "p.json")
    data = json.loads(path.read_text())
    data["kernels"][0]["schedule"]["unroll"] = [1000]
    path.write_text(json.dumps(data))
    with pytest.raises(PlanError, match=rf"^{re.escape(str(path))}: kernels\[0\].schedule.unroll: "):
        load(path)


@pytest.mark.parametrize("name", ["../p.constants-{}.npz", "/tmp/p.constants-{}.npz", "p.constants-{}.npz\0"])
def test_side_files_elsewhere_are_refused(tmp_path, name):
    path = save(PLAN, tmp_path / "p.json")
    data = json.loads(path.read_text())
    data["constants"]["file"] = name.format(data["constants"]["sha256"][:16])
    path.write_text(json.dumps(data))
    with pytest.raises(PlanError, match=r"constants.file: must be a string of the form"):
        load(path)


def test_another_plans_constants_are_refused(tmp_path):
    path = save(PLAN, tmp_path / "p.json")
    data = json.loads(path.read_text())
    first, second = data["constants"]["arrays"]
    arrays = data["constants"]["arrays"]
    data["constants"]["arrays"] = {first: arrays[second], second: arrays[first]}
    path.write_text(json.dumps(data))
    with pytest.raises(PlanError, match="the plan says"):
        load(path)


def test_loading_imports_no_backend(tmp_path):
    path = save(PLAN, tmp_path / "p.json")
    program = (
        "import sys; from autofuse.plan.file import load; load(sys.argv[1]); "
        "print([m for m in ('llvmlite', 'sklearn', 'optuna', 'cupy', 'distributed', 'dask') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_plans_of_earlier_versions_still_load():
    """When this fails, files that users keep have become unreadable: raise FORMAT_VERSION, or undo the change."""
    folder = Path(__file__).parent.parent / "golden" / "plans"
    kept = load(folder / "format-1.json")
    assert kept.graph_digest == PLAN.graph_digest
    assert kept.kernels == PLAN.kernels
    assert kept.certificate == replace(PLAN.certificate, refused=None, dominated=None, cut_off=None)  # counted later
