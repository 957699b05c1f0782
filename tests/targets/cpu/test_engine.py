import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from autofuse.errors import BackendError
from autofuse.host.objectcache import ObjectCache, cache_directory, object_key
from autofuse.targets.cpu.machine import host_machine
from autofuse.targets.cpu.native.engine import FINISHED, Engine
from autofuse.targets.cpu.native.linking import link

ADD_EXTERNAL = """
declare i64 @offset(i64)
define i64 @add_external(i64 %x) {
  %y = call i64 @offset(i64 %x)
  %z = add i64 %y, 1
  ret i64 %z
}
"""
DOUBLE = "define i64 @double(i64 %x) {\n  %y = add i64 %x, %x\n  ret i64 %y\n}\n"

Unary = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


@pytest.fixture
def engine():
    return Engine(cache=ObjectCache(None))


def test_compiled_code_runs_and_calls_symbols_given_by_address(engine):
    offset = Unary(lambda x: x + 100)
    address = ctypes.cast(offset, ctypes.c_void_p).value
    code = link([engine.compile(ADD_EXTERNAL), engine.compile(DOUBLE)], {"offset": address}, ["add_external", "double"])
    assert Unary(code["add_external"])(5) == 106
    assert Unary(code["double"])(21) == 42


def numbered(count):
    return [DOUBLE.replace("@double", f"@double{k}") for k in range(count)]


def test_texts_compiled_side_by_side_give_what_they_give_alone(tmp_path):
    alone, together = Engine(cache=ObjectCache(None)), Engine(cache=ObjectCache(tmp_path))
    texts = numbered(12)
    together.compile(texts[3])
    assert together.compile_all([*texts, texts[0]]) == [alone.compile(text) for text in [*texts, texts[0]]]
    assert (together.cache.hits, together.cache.misses) == (1, 12)
    assert together.compile_all([]) == []


def test_an_error_in_one_of_many_texts_is_raised(engine):
    with pytest.raises(BackendError, match="ret i32 0"):
        engine.compile_all([*numbered(4), "define i64 @f() {\n  ret i32 0\n}\n"])


def test_functions_of_the_c_library_need_no_address(engine):
    text = "declare i64 @labs(i64)\ndefine i64 @f(i64 %x) {\n  %y = call i64 @labs(i64 %x)\n  ret i64 %y\n}\n"
    code = link([engine.compile(text)], exports=["f"])
    assert Unary(code["f"])(-7) == 7


def test_a_parse_error_shows_the_offending_line(engine):
    with pytest.raises(BackendError, match=r"2 \|   ret i32 0"):
        engine.compile("define i64 @f() {\n  ret i32 0\n}\n")


def test_a_verifier_error_shows_the_offending_lines(engine):
    text = "define i64 @f(i64 %x) {\nentry:\n  %z = add i64 %w, 1\n  %w = add i64 %x, 1\n  ret i64 %z\n}\n"
    with pytest.raises(BackendError, match=r"does not dominate(.|\n)*3 \|   %z = add i64 %w, 1"):
        engine.compile(text)


def test_assembly_shows_the_function(engine):
    assert "double:" in engine.emit_assembly(DOUBLE)


def test_a_function_that_is_finished_stays_as_written(engine):
    body = "{\n  %at = alloca i64\n  store i64 %x, ptr %at\n  %y = load i64, ptr %at\n  ret i64 %y\n}\n"
    simplified, finished = (engine.emit_assembly(f"define i64 @f(i64 %x) {how} {body}") for how in ("", FINISHED))
    assert len(simplified.splitlines()) < len(finished.splitlines())


def test_small_functions_are_inlined(engine):
    text = DOUBLE.replace("define i64 @double(i64 %x)", "define internal i64 @double(i64 %x) alwaysinline")
    text += "define i64 @f(i64 %x) {\n  %y = call i64 @double(i64 %x)\n  ret i64 %y\n}\n"
    assert "double" not in engine.emit_assembly(text)


def test_a_narrower_target_uses_narrower_registers():
    narrow = host_machine("sse4")
    assert narrow.vector_bits == 128
    text = "define <8 x float> @f(<8 x float> %x) {\n  %y = fadd <8 x float> %x, %x\n  ret <8 x float> %y\n}\n"
    assembly = Engine(narrow, cache=ObjectCache(None)).emit_assembly(text)
    assert "addps" in assembly
    assert "ymm" not in assembly


def test_the_host_machine_states_every_feature():
    target = host_machine()
    assert target.has("sse4.2") or target.architecture != "x86_64"
    assert all(flag[0] in "+-" for flag in target.features.split(","))
    assert not target.has("no-such-feature")


def test_an_object_is_generated_once_per_text_target_and_way(tmp_path):
    first = Engine(cache=ObjectCache(tmp_path))
    data = first.compile(DOUBLE)
    again = Engine(cache=ObjectCache(tmp_path))
    assert again.compile(DOUBLE) == data
    assert (first.cache.misses, again.cache.misses, again.cache.hits) == (1, 0, 1)
    other = Engine(cache=ObjectCache(tmp_path), simplify=False)
    other.compile(DOUBLE)
    narrower = Engine(host_machine("sse4"), cache=ObjectCache(tmp_path))
    narrower.compile(DOUBLE)
    assert (other.cache.misses, narrower.cache.misses) == (1, 1)


def test_a_second_process_generates_no_code(tmp_path):
    program = (
        "from autofuse.targets.cpu.native.engine import Engine\n"
        f"engine = Engine(); data = engine.compile({DOUBLE!r}); print(engine.cache.misses, len(data))"
    )
    environment = {"AUTOFUSE_CACHE": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}

    def run():
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    first, second = run(), run()
    assert (first[0], second[0]) == ("1", "0")
    assert first[1] == second[1]


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: data[:20], lambda _: b"", lambda data: b"x" + data],
    ids=["flipped", "truncated", "empty", "shifted"],
)
def test_a_corrupt_entry_is_a_miss_and_is_replaced(tmp_path, damage):
    cache = ObjectCache(tmp_path)
    key = object_key("a module")
    cache.put(key, b"machine code")
    path = cache.path(key)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get(key) is None
    cache.put(key, b"machine code")
    assert cache.get(key) == b"machine code"


def test_no_temporary_files_stay_behind(tmp_path):
    cache = ObjectCache(tmp_path)
    cache.put(object_key("a"), b"1")
    assert len(list(tmp_path.rglob("*.o"))) == 1
    assert list(tmp_path.rglob(".new-*")) == []


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    cache = ObjectCache(blocked / "objects")
    cache.put("ab" * 32, b"1")
    assert cache.get("ab" * 32) is None


def test_key_parts_do_not_run_together():
    assert object_key("ab", "c") != object_key("a", "bc")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"AUTOFUSE_CACHE": "off", "HOME": "/h"}, None),
        ({"AUTOFUSE_CACHE": "/c", "HOME": "/h"}, Path("/c/objects")),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, Path("/x/autofuse/objects")),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, Path("/h/.cache/autofuse/objects")),
        ({}, None),
    ],
)
def test_where_objects_are_kept(environment, expected):
    assert cache_directory(environment) == expected


def test_perf_gets_a_map_of_function_names(engine, monkeypatch, tmp_path):
    monkeypatch.setenv("AUTOFUSE_PERF", "1")
    monkeypatch.setattr("autofuse.targets.cpu.native.linking._PERF_DIRECTORY", tmp_path)
    code = link([engine.compile(DOUBLE)], exports=["double"])
    (path,) = tmp_path.iterdir()
    address, size, name = path.read_text().split()
    assert (int(address, 16), name) == (code["double"], "double")
    assert int(size, 16) > 0
