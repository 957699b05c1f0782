"""The variables of a traced function, as its loops and branches see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import CellType, FunctionType
from typing import Any, Final

from autofuse.frontend.forks import Fork


class Unbound:
    """Stands for a variable without a value."""


UNBOUND: Final = Unbound()


class Frame:
    """The variables that functions share with the one that they are defined in."""

    def __init__(self, *functions: Callable[..., Any]) -> None:
        self._cells: dict[str, CellType] = {}
        for function in functions:
            names: tuple[str, ...] = function.__code__.co_freevars
            self._cells.update(zip(names, function.__closure__ or (), strict=True))

    def tell(self, fork: Fork, names: Iterable[str]) -> None:
        """Have a region know its variables. `names`: those that it binds."""
        fork.around = {id(cell) for cell in self._cells.values()}
        fork.variables = {id(self._cells[name]) for name in names if name in self._cells}

    def get(self, names: Iterable[str]) -> dict[str, Any]:
        """What variables are bound to."""
        return {name: content_of(self._cells[name]) if name in self._cells else UNBOUND for name in names}

    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._cells)

    def cell(self, name: str) -> CellType | None:
        """Where a variable is held."""
        return self._cells.get(name)

    def shares_all(self, function: Any) -> bool:
        """Whether a function knows nothing but these variables: one that each iteration defines anew is the same."""
        if not isinstance(function, FunctionType) or function.__defaults__ or function.__kwdefaults__:
            return False
        mine = {id(cell) for cell in self._cells.values()}
        return all(id(cell) in mine for cell in function.__closure__ or ())

    def set(self, contents: Mapping[str, Any]) -> None:
        """Bind variables, or unbind them."""
        for name, value in contents.items():
            if name in self._cells:
                bind(self._cells[name], value)


def content_of(cell: CellType) -> Any:
    """What a variable is bound to; UNBOUND if it is not."""
    try:
        return cell.cell_contents
    except ValueError:
        return UNBOUND


def bind(cell: CellType, value: Any) -> None:
    """Bind a variable, or unbind it."""
    if value is not UNBOUND:
        cell.cell_contents = value
    elif content_of(cell) is not UNBOUND:
        del cell.cell_contents
