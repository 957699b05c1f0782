"""Processes of a batch: none is timed before all are ready or gone, and one at a time."""

import sys
from pathlib import Path

import pytest

COMMON = Path(__file__).parents[2] / "experiments" / "common"
CHILD = """
import json, sys, time
sys.path.append({common!r})
from turns import await_turn
task = json.load(open(sys.argv[1]))
time.sleep(task["ready_s"])
ready = time.monotonic()
if task["dies"]:
    sys.exit("gone")
await_turn()
begun = time.monotonic()
time.sleep(0.05)
json.dump({{"ready": ready, "begun": begun, "ended": time.monotonic()}}, open(sys.argv[2], "w"))
"""


@pytest.fixture
def common(monkeypatch):
    monkeypatch.syspath_prepend(str(COMMON))
    for name in ("children", "turns", "journal"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import children
    import turns

    yield children, turns
    for name in ("children", "turns", "journal"):
        sys.modules.pop(name, None)


def test_processes_of_a_batch_are_timed_one_after_another_when_all_are_ready(tmp_path, common):
    from concurrent.futures import ThreadPoolExecutor

    children, turns = common
    script, lock = tmp_path / "child.py", tmp_path / "lock"
    script.write_text(CHILD.format(common=str(COMMON)))
    lock.touch()
    tasks = [{"ready_s": 0.0, "dies": False}, {"ready_s": 0.3, "dies": False}, {"ready_s": 0.2, "dies": True}]
    descriptors = [turns.taken(lock) for _ in tasks]
    with ThreadPoolExecutor(3) as pool:
        first, second, third = pool.map(
            lambda task, turn: children.in_child(script, task, 20.0, turn=turn), tasks, descriptors
        )
    assert third["status"] == "failed"
    assert min(first["begun"], second["begun"]) >= max(first["ready"], second["ready"])
    assert first["begun"] >= second["ended"] or second["begun"] >= first["ended"]
