"""The folder of compiled objects stays below its limit: what was used longest ago goes first."""

import os
import subprocess
import sys
import time

import pytest

from autofuse.host.objectcache import ObjectCache, object_key

KEYS = [object_key(str(number)) for number in range(20)]
HOUR = 3600


def filled(tmp_path, limit, count=20, size=1000):
    """A cache of `count` entries; entry n was used `count - n` days ago."""
    generous = ObjectCache(tmp_path)
    now = time.time()
    for number, key in enumerate(KEYS[:count]):
        generous.put(key, bytes(size))
        then = now - 24 * HOUR * (count - number)
        os.utime(generous.path(key), (then, then))
    return ObjectCache(tmp_path, limit)


def kept(cache):
    return [number for number, key in enumerate(KEYS) if cache.path(key).exists()]


def test_the_entries_used_longest_ago_are_removed(tmp_path):
    # an entry is 1000 bytes and a header of 50
    cache = filled(tmp_path, limit=10 * 1050)
    assert cache.prune() == 12
    assert kept(cache) == list(range(12, 20))
    assert cache.prune() == 0


def test_below_the_limit_nothing_is_removed(tmp_path):
    cache = filled(tmp_path, limit=20 * 1050)
    assert cache.prune() == 0
    assert kept(cache) == list(range(20))


def test_reading_an_entry_keeps_it(tmp_path):
    cache = filled(tmp_path, limit=10 * 1050)
    assert cache.get(KEYS[0]) == bytes(1000)
    cache.prune()
    assert kept(cache) == [0, *range(13, 20)]


def test_the_first_entry_of_a_process_looks_at_the_size(tmp_path):
    cache = filled(tmp_path, limit=10 * 1050, count=19)
    (tmp_path / ".pruned").unlink()
    cache.put(KEYS[19], bytes(1000))
    assert kept(cache) == list(range(12, 20))


def test_within_the_hour_only_much_that_is_new_leads_to_another_look(tmp_path):
    cache = filled(tmp_path, limit=10 * 1050, count=18)
    cache.put(KEYS[18], bytes(1000))
    assert len(kept(cache)) == 19
    cache.put(KEYS[19], bytes(1000))
    assert len(kept(cache)) == 8


def test_files_that_a_dead_process_left_half_written_go(tmp_path):
    cache = filled(tmp_path, limit=1)
    folder = cache.path(KEYS[0]).parent
    old, new = folder / ".new-old", folder / ".new-new"
    for path in (old, new):
        path.write_bytes(b"half")
    then = time.time() - 48 * HOUR
    os.utime(old, (then, then))
    cache.prune()
    assert (old.exists(), new.exists()) == (False, True)


def test_processes_that_prune_and_read_at_once(tmp_path):
    filled(tmp_path, limit=1)
    statements = (
        "import sys; from pathlib import Path\n"
        "from autofuse.host.objectcache import ObjectCache, object_key\n"
        "cache = ObjectCache(Path(sys.argv[1]), 5000)\n"
        "for turn in range(60):\n"
        "    key = object_key(str(turn % 20))\n"
        "    assert cache.get(key) in (None, bytes(1000))\n"
        "    cache.put(key, bytes(1000)); cache.prune()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = [subprocess.Popen([sys.executable, "-c", statements, tmp_path], env=environment) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert len(kept(ObjectCache(tmp_path))) <= 6


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_only_be_read_still_answers(tmp_path):
    cache = filled(tmp_path, limit=1)
    os.chmod(cache.path(KEYS[0]).parent, 0o500)
    assert cache.get(KEYS[0]) == bytes(1000)
    cache.prune()
    assert cache.path(KEYS[0]).exists()


def test_no_folder_has_nothing_to_prune():
    assert ObjectCache(None).prune() == 0
