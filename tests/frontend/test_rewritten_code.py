"""Sources of functions: equal code in two files, and a file that comes later."""

import linecache
from pathlib import Path
from types import FunctionType
from typing import Any

from autofuse.frontend.rolling.source import rewritten_code

TEXT = "def summed(x):\n    total = 0.0\n    for row in x:\n        total = total + row\n    return total\n"


def function_of(file: Path) -> FunctionType:
    names: dict[str, Any] = {}
    exec(compile(TEXT, str(file), "exec"), names)
    return names["summed"]


def test_equal_code_of_two_files_keeps_the_name_of_its_own(tmp_path: Path) -> None:
    files = [tmp_path / "one.py", tmp_path / "other.py"]
    for file in files:
        file.write_text(TEXT)
    functions = [function_of(file) for file in files]
    assert functions[0].__code__ == functions[1].__code__
    for _ in range(2):
        for file, function in zip(files, functions, strict=True):
            code = rewritten_code(function)
            assert code is not None
            assert (code.co_filename, code.co_name, code.co_firstlineno) == (str(file), "summed", 1)
    assert rewritten_code(functions[1]) is rewritten_code(functions[1])


def test_a_source_that_is_missing_or_another_is_looked_for_again(tmp_path: Path) -> None:
    file = tmp_path / "later.py"
    function = function_of(file)
    assert rewritten_code(function) is None
    file.write_text(TEXT.replace("+ row", "- row"))
    linecache.checkcache(str(file))
    assert rewritten_code(function) is None
    file.write_text(f"{TEXT}# as it was\n")
    assert rewritten_code(function) is not None
