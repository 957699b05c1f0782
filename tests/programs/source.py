"""A NumPy program as source text: made, written to a file, read back, and run as a module."""

from __future__ import annotations

import ast
import hashlib
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_INDENT = "    "
_LIBRARIES = {"np.": "import numpy as np", "scipy.": "import scipy.special", "af.": "import autofuse as af"}


@dataclass(frozen=True, slots=True)
class ProgramText:
    """A function of a few lines and the arguments it is called with, both as text."""

    title: str
    """One line that says what the program is, and how to make it again."""
    inputs: tuple[str, ...]
    """Statements that make the arguments; each argument is a variable of the parameter's name."""
    parameters: tuple[str, ...]
    statements: tuple[str, ...]
    """Statements of the function; one of several lines is a block, and stays together."""
    results: tuple[str, ...]
    """Expressions of what is returned."""
    returned: str = "({})"
    """How they are put together: `{}` stands for the expressions, separated by commas."""

    @property
    def result(self) -> str:
        """The expression that is returned."""
        inside = ", ".join(self.results)
        if self.returned == "({})":
            return inside if len(self.results) == 1 else f"({inside})"
        return self.returned.replace("{}", inside)

    @property
    def text(self) -> str:
        """A module with `inputs()`, which makes fresh arguments, and `program(...)`."""
        names = ", ".join(self.parameters)
        made = [*self.inputs, f"return ({names},)"]
        body = [*self.statements, f"return {self.result}"]
        functions = f"def inputs():\n{_indented(made)}\n\n\ndef program({names}):\n{_indented(body)}\n"
        imports = "\n".join(line for word, line in _LIBRARIES.items() if word in functions)
        return f'"""{self.title}"""\n\n{imports}\n\n\n{functions}'


def _indented(statements: list[str]) -> str:
    return "\n".join(_INDENT + line for statement in statements for line in statement.splitlines())


def read(path: Path) -> ProgramText:
    """The program of a file that `ProgramText.text` wrote (comments are lost)."""
    text = path.read_text()
    module = ast.parse(text)
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    made, program = functions["inputs"], functions["program"]
    returned = program.body[-1]
    assert isinstance(returned, ast.Return)
    assert returned.value is not None
    value = returned.value
    plain = isinstance(value, ast.Tuple) and not any(isinstance(item, ast.Starred) for item in value.elts)
    results = value.elts if isinstance(value, ast.Tuple) and plain else [value]
    return ProgramText(
        title=ast.get_docstring(module) or "",
        inputs=tuple(map(ast.unparse, made.body[:-1])),
        parameters=tuple(argument.arg for argument in program.args.args),
        statements=tuple(map(ast.unparse, program.body[:-1])),
        results=tuple(map(ast.unparse, results)),
        returned="({},)" if plain and len(results) == 1 else "({})",
    )


@dataclass(frozen=True, slots=True)
class Module:
    """A program that was written to a file and loaded."""

    text: ProgramText
    path: Path
    program: Callable[..., Any]
    inputs: Callable[[], tuple[Any, ...]]

    def arguments(self) -> tuple[Any, ...]:
        """Fresh arguments."""
        return self.inputs()


def load(text: ProgramText, folder: Path) -> Module:
    """Write a program to a file of its own and run it as a module: tracing reads the lines of the file."""
    source = text.text
    path = folder / f"program_{hashlib.sha256(source.encode()).hexdigest()[:12]}.py"
    path.write_text(source)
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    exec(compile(source, str(path), "exec"), module.__dict__)
    return Module(text, path, module.program, module.inputs)
