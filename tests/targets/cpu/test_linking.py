"""Objects are placed without LLVM where they hold what kernels do, and by LLVM's linker where they hold more."""

import ctypes
import os
import subprocess
import sys

import pytest

from autofuse.errors import BackendError
from autofuse.host import elf
from autofuse.host.objectcache import ObjectCache
from autofuse.targets.cpu.native import linking, placing
from autofuse.targets.cpu.native.engine import Engine
from autofuse.targets.cpu.native.linking import link

Unary = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)

ADD_EXTERNAL = """
declare i64 @offset(i64)
define i64 @add_external(i64 %x) {
  %y = call i64 @offset(i64 %x)
  %z = add i64 %y, 1
  ret i64 %z
}
"""
COUNTING = """
@count = global i64 40
@zeros = global [1000 x i64] zeroinitializer
@offset_of = external global i64
define i64 @counted(i64 %x) {
  %old = load i64, ptr @count
  %new = add i64 %old, %x
  store i64 %new, ptr @count
  %last = getelementptr i64, ptr @zeros, i64 999
  store i64 %new, ptr %last
  %other = load i64, ptr @offset_of
  %sum = add i64 %new, %other
  ret i64 %sum
}
"""
CALLS_COUNTED = """
declare i64 @counted(i64)
define i64 @twice(i64 %x) {
  %y = call i64 @counted(i64 %x)
  %z = call i64 @counted(i64 %x)
  ret i64 %z
}
"""
TABLE = """
@table = global [1 x ptr] [ptr @negated]
define i64 @negated(i64 %x) {
  %y = sub i64 0, %x
  ret i64 %y
}
define i64 @by_table(i64 %x) {
  %f = load volatile ptr, ptr @table
  %y = call i64 %f(i64 %x)
  ret i64 %y
}
"""


@pytest.fixture
def engine():
    return Engine(cache=ObjectCache(None))


@pytest.fixture
def without_llvm(monkeypatch):
    def refuse(*arguments):
        raise AssertionError(arguments[-1])

    monkeypatch.setattr(linking, "_placed_by_llvm", refuse)


x86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="LLVM's linker does all on other machines")


def test_what_an_object_holds(engine):
    found = elf.read(engine.compile(ADD_EXTERNAL))
    assert {symbol.name: symbol.section == elf.UNDEFINED for symbol in found.symbols if symbol.is_global} == {
        "add_external": False,
        "offset": True,
    }
    assert "offset" in [found.symbols[one.symbol].name for one in found.relocations()]
    assert [(one.name, one.size > 0) for one in elf.functions(engine.compile(ADD_EXTERNAL))] == [("add_external", True)]
    assert elf.read(b"not an object") is None
    assert elf.functions(b"not an object") == ()


@x86_64
def test_objects_share_data_zeros_and_functions(engine, without_llvm):
    offset = ctypes.c_int64(100)
    objects = [engine.compile(CALLS_COUNTED), engine.compile(COUNTING)]
    first = link(objects, {"offset_of": ctypes.addressof(offset)}, ["twice", "count", "zeros"])
    second = link(objects, {"offset_of": ctypes.addressof(offset)}, ["twice"])
    assert Unary(first["twice"])(1) == 142
    offset.value = 200
    assert Unary(first["twice"])(1) == 244
    assert Unary(second["twice"])(1) == 242  # has data of its own
    assert ctypes.c_int64.from_address(first["count"]).value == 44
    assert list((ctypes.c_int64 * 1000).from_address(first["zeros"])) == [0] * 999 + [44]


@x86_64
@pytest.mark.parametrize("away", [1 << 20, 1 << 40])
def test_a_call_goes_straight_or_by_a_slot(engine, monkeypatch, away):
    class Somewhere:
        address = 1 << 41

        def __init__(self, size):
            self.size = size

        def fill(self, image, code_bytes):
            self.image = image

    monkeypatch.setattr(placing, "Memory", Somewhere)
    memory, addresses = placing.place(
        [engine.compile(ADD_EXTERNAL)], {"offset": Somewhere.address + away}, ["add_external"]
    )
    start = addresses["add_external"] - memory.address
    behind = memory.image.index(b"\xe8", start) + 5
    target = behind + int.from_bytes(memory.image[behind - 4 : behind], "little", signed=True)
    if away == 1 << 40:
        jump, held = memory.image[target : target + 8], memory.image[target + 8 : target + 16]
        assert jump == bytes((0xFF, 0x25, 2, 0, 0, 0, 0x0F, 0x0B))
        target = int.from_bytes(held, "little") - memory.address
    assert target == away


@x86_64
def test_code_is_not_writeable_and_data_is_not_code(engine, without_llvm):
    code = link([engine.compile(COUNTING)], {"offset_of": 0}, ["counted", "count"])
    rights = {}
    with open("/proc/self/maps") as maps:
        for line in maps:
            first, _, rest = line.partition("-")
            last, allowed = rest.split()[:2]
            for name in ("counted", "count"):
                if int(first, 16) <= code[name] < int(last, 16):
                    rights[name] = allowed
    assert rights == {"counted": "r-xp", "count": "rw-p"}


@x86_64
def test_memory_of_code_that_nobody_holds_is_given_back(engine, without_llvm):
    def mapped(address):
        with open("/proc/self/maps") as maps:
            return any(line.startswith(f"{address:x}-") for line in maps)

    holder, _ = placing.place([engine.compile(COUNTING)], {"offset_of": 0}, [])
    address = holder.address
    assert mapped(address)
    del holder
    assert not mapped(address)


def test_what_is_not_known_is_linked_by_llvm(engine):
    data = engine.compile(TABLE)
    with pytest.raises(placing.UnknownCodeError, match="relocation 1"):
        placing.place([data], {}, ["by_table"])
    code = link([data], exports=["by_table"])
    assert Unary(code["by_table"])(5) == -5


def test_errors_name_what_is_missing_or_there_twice(engine):
    with pytest.raises(BackendError, match="no definition of offset"):
        link([engine.compile(ADD_EXTERNAL)], exports=["add_external"])
    with pytest.raises(BackendError, match="nothing"):
        link([engine.compile(TABLE)], exports=["nothing"])
    data = engine.compile(TABLE)
    with pytest.raises(BackendError, match="negated"):
        link([data, data], exports=["negated"])


@x86_64
def test_a_process_that_finds_all_it_needs_loads_no_llvm(tmp_path):
    script = (
        "import sys\n"
        "import numpy as np\n"
        "import autofuse as af\n"
        "def double(x):\n"
        "    return np.exp(x) * 2\n"
        "print(af.compile(double, np.zeros(5))(np.zeros(5)).sum(), 'llvmlite' in sys.modules)\n"
    )
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    shown = [
        subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [one.stdout.split() for one in shown] == [["10.0", "True"], ["10.0", "False"]]
