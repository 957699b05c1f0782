"""Structures of arguments and results in the layout that the native entry walks (`tree.ll`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.tree import Branch, Digest, Leaf, Static, Tree

_ARRAY, _SCALAR, _STATIC, _FLOAT = 0, 1, 2, 6
_CONTAINERS: dict[str, tuple[int, type]] = {"tuple": (3, tuple), "list": (4, list), "dict": (5, dict)}
_DEEPEST = 64
_NOTHING: tuple[()] = ()


class TreeData:
    """The words of one tree, and the objects they point to."""

    def __init__(self, words: list[int], kept: list[Any]) -> None:
        self._words: NDArray[np.int64] = np.array(words, np.int64)
        self._kept = kept

    @property
    def address(self) -> int:
        """Address of the first word."""
        return self._words.ctypes.data


def tree_data(trees: tuple[Tree, ...]) -> TreeData | None:
    """Trees, one after another; None if they hold anything but arrays, statics, and plain tuples, lists and dicts."""
    words: list[int] = []
    kept: list[Any] = [_NOTHING]
    return TreeData(words, kept) if all(_write(tree, words, kept, 0) for tree in trees) else None


def _write(tree: Tree, words: list[int], kept: list[Any], depth: int) -> bool:
    match tree:
        case Leaf(scalar=True):
            words += [_SCALAR, id(_NOTHING)]
        case Leaf():
            words.append(_ARRAY)
        case Static(value=Digest()):
            return False
        case Static(value=value):
            kept.append(value)
            words += [_FLOAT if type(value) is float else _STATIC, id(value)]
        case Branch():
            return _write_branch(tree, words, kept, depth)
    return True


def _write_branch(tree: Branch, words: list[int], kept: list[Any], depth: int) -> bool:
    if tree.kind not in _CONTAINERS or depth == _DEEPEST:
        return False
    kind, type_ = _CONTAINERS[tree.kind]
    words += [kind, id(type_), len(tree.children)]
    if tree.kind == "dict":
        kept += tree.keys
        words += [id(key) for key in tree.keys]
    return all(_write(child, words, kept, depth + 1) for child in tree.children)
