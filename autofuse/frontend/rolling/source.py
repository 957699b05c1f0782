"""From a function to its rewritten copy: its source is found, compared with its code, rewritten and compiled."""

from __future__ import annotations
import __future__

import ast
import dis
import inspect
import linecache
import textwrap
from collections.abc import Iterator
from functools import reduce
from operator import or_
from tokenize import TokenError
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from autofuse.frontend.rolling.returns import PREFIX
from autofuse.frontend.rolling.rewriting import rewritten

_FLAGS = reduce(or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names))
_rewritten: WeakKeyDictionary[CodeType, CodeType] = WeakKeyDictionary()
"""What was made of functions that are still there: most are traced more than once."""
_CALLING = ("PRECALL", "PUSH_NULL", "CACHE", "NOP", "EXTENDED_ARG")
_UNSEEN = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def rewritten_code(function: FunctionType) -> CodeType | None:
    """The code of a function with its control flow as calls; None where its source is not at hand, or is another.

    Generators and coroutines stay as they are.
    """
    code = function.__code__
    if code.co_flags & _UNSEEN:
        return None
    known = _rewritten.get(code)
    if known is None or known.co_filename != code.co_filename:  # equal code may stand in two files
        known = _from_source(code, function.__globals__)
        if known is not None:  # a source that is not at hand may be, later
            _rewritten[code] = known
    return known


def _from_source(code: CodeType, names: dict[str, Any]) -> CodeType | None:
    """The rewritten code. `names`: of the module, which may know where its source is (one in an archive)."""
    linecache.checkcache(code.co_filename)
    first = code.co_firstlineno
    lines = linecache.getlines(code.co_filename, names)[first - 1 :]
    try:
        module = ast.parse(textwrap.dedent("".join(inspect.getblock(lines))))
    except (SyntaxError, TokenError):
        return None
    definition = module.body[0] if module.body else None
    if not isinstance(definition, ast.FunctionDef) or definition.name != code.co_name:
        return None
    ast.increment_lineno(definition, first - 1)
    definition.decorator_list = []
    if not _is_same(_compiled(definition, code), code):
        return None
    return _named(_compiled(rewritten(definition), code), code)


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of all functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def _compiled(definition: ast.FunctionDef, code: CodeType) -> CodeType:
    """The code of a definition whose free variables are those of `code`; its own name may be a global that it reads."""
    outer: list[ast.stmt] = [definition]
    if definition.name not in code.co_freevars:
        outer.insert(0, ast.Global([definition.name]))
    if code.co_freevars:
        targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in code.co_freevars]
        outer.insert(0, ast.Assign(targets, ast.Constant(None)))
    parameters = ast.arguments([], [], None, [], [], None, [])
    factory = ast.FunctionDef(f"{PREFIX}factory", parameters, outer, [], None, None)
    module = ast.fix_missing_locations(ast.Module([factory], []))
    whole = compile(module, code.co_filename, "exec", code.co_flags & _FLAGS, dont_inherit=True)
    made = next(constant for constant in whole.co_consts if isinstance(constant, CodeType))
    return next(
        constant
        for constant in made.co_consts
        if isinstance(constant, CodeType) and constant.co_name == definition.name
    )


def _is_same(made: CodeType, code: CodeType) -> bool:
    """Whether the source is that of the code: a file may have been edited since it was loaded."""
    same = (
        _instructions(made) == _instructions(code)
        and made.co_names == code.co_names
        and made.co_varnames == code.co_varnames
        and set(made.co_freevars) == set(code.co_freevars)
        and len(made.co_consts) == len(code.co_consts)
    )
    return same and all(map(_same_constant, made.co_consts, code.co_consts))


def _instructions(code: CodeType) -> list[tuple[str, object]]:
    """What code does. A method of a module that the file imports is called by other instructions than one of a name."""
    found: list[tuple[str, object]] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname not in _CALLING:
            jumps = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
            value = None if jumps or isinstance(instruction.argval, CodeType) else instruction.argval
            found.append((instruction.opname.replace("METHOD", "ATTR"), value))
    return found


def _same_constant(a: object, b: object) -> bool:
    if isinstance(a, CodeType) and isinstance(b, CodeType):
        return _is_same(a, b)
    return repr(a) == repr(b)


def _named(code: CodeType, like: CodeType) -> CodeType:
    """Code whose parts have the names of the user's functions: reports and errors show them."""

    def renamed(part: CodeType, name: str, qualname: str) -> CodeType:
        own = not part.co_name.startswith(PREFIX)
        name, qualname = (part.co_name, f"{qualname}.<locals>.{part.co_name}") if own else (name, qualname)
        constants = tuple(renamed(c, name, qualname) if isinstance(c, CodeType) else c for c in part.co_consts)
        return part.replace(co_name=name, co_qualname=qualname, co_consts=constants)

    constants = tuple(
        renamed(c, like.co_name, like.co_qualname) if isinstance(c, CodeType) else c for c in code.co_consts
    )
    return code.replace(co_qualname=like.co_qualname, co_consts=constants)
