"""The workload loader: what it accepts, and what it says when a file is not a workload."""

from pathlib import Path

import numpy as np
import pytest

from autofuse.errors import ArgumentError
from autofuse.measurement.workloads import discover, load

GOOD = '''"""Doubles x.

More.
"""
import numpy as np

def twice(x):
    return x * 2

def inputs(size, seed):
    return (np.full(3, seed),)
'''


def write(directory: Path, name: str, text: str) -> Path:
    file = directory / f"{name}.py"
    file.write_text(text)
    return file


def test_load_by_path_and_by_name_give_the_same_program(tmp_path: Path) -> None:
    file = write(tmp_path, "twice", GOOD)
    by_path, by_name = load(file), load("twice", tmp_path)
    assert by_path.file == by_name.file == file
    assert by_path.name == "twice"
    assert by_path.summary == "Doubles x."
    np.testing.assert_array_equal(by_path.function(*by_path.inputs("small", 4)), [8, 8, 8])


def test_two_files_of_one_stem_stay_two_programs(tmp_path: Path) -> None:
    for folder, factor in (("a", 2), ("b", 3)):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, "twice", GOOD.replace("x * 2", f"x * {factor}"))
    first, second = load(tmp_path / "a" / "twice.py"), load(tmp_path / "b" / "twice.py")
    assert (first.function(1), second.function(1)) == (2, 3)


def test_discover_is_sorted_and_passes_over_private_files(tmp_path: Path) -> None:
    for name in ("zeta", "alpha"):
        write(tmp_path, name, GOOD.replace("twice", name))
    write(tmp_path, "_shared", "raise RuntimeError('imported')")
    assert [w.name for w in discover(tmp_path)] == ["alpha", "zeta"]


def test_an_unknown_name_gives_the_nearest_or_lists_the_programs_there(tmp_path: Path) -> None:
    write(tmp_path, "twice", GOOD)
    with pytest.raises(ArgumentError, match=r"'thrice' is no program: .*; did you mean twice\?"):
        load("thrice", tmp_path)
    with pytest.raises(ArgumentError, match=r"'x{79} is no program: .*Programs there: twice"):
        load("x" * 300, tmp_path)
    with pytest.raises(ArgumentError, match=r"^twice\.py: there is no such file"):
        load("twice.py", tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def inputs(size, seed): return ()", r"`broken` is nothing of that name. Add `def broken"),
        ("broken = 3\ndef inputs(size, seed): return ()", r"`broken` is a int"),
        ("def broken(): pass", r"`inputs` is nothing of that name"),
        ("def broken(:", r"importing it failed"),
        ("import no_such_module_at_all", r"importing it failed: No module named"),
    ],
)
def test_a_file_that_is_no_workload_says_what_is_missing(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        load(write(tmp_path, "broken", text))


def test_size_and_the_makers_result_are_checked(tmp_path: Path) -> None:
    program = load(write(tmp_path, "twice", GOOD.replace("(np.full(3, seed),)", "[1]")))
    with pytest.raises(ArgumentError, match="size: must be one of small, full; got 'huge'"):
        program.inputs("huge", 0)
    with pytest.raises(ArgumentError, match="must return a tuple of arguments; got list"):
        program.inputs("small", 0)


def test_discover_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="is not a folder"):
        discover(tmp_path / "absent")
