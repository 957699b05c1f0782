"""Which classes are the user's, and which objects are of these. It imports nothing of tracing: each call asks."""

from __future__ import annotations

import os
import sys
from types import FunctionType
from typing import Any

import numpy as np

from autofuse.frontend.location import OWN_FOLDER
from autofuse.ir import tree
from autofuse.ir.devicearrays import is_device_array

_STDLIB = os.path.dirname(os.__file__)
ARRAY_LIBRARIES = ("numpy", "scipy")
"""Libraries whose functions are traced, so that their classes are not."""


def is_users_file(file: str) -> bool:
    """Whether code in a file is neither Python's own nor this package's."""
    if file.startswith(("<frozen", OWN_FOLDER)):
        return False
    return not file.startswith(_STDLIB) or is_installed(file)


def has_own_methods(cls: type) -> bool:
    """Whether the class is written in Python by the user (its methods may make arrays)."""
    return any(
        isinstance(member, FunctionType) and is_users_file(member.__code__.co_filename) for member in vars(cls).values()
    ) and (cls.__module__.split(".")[0] not in (*ARRAY_LIBRARIES, "autofuse"))


def is_users_class(cls: type) -> bool:
    """Whether a class is the user's, or of a library in Python, also where all its methods are inherited."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    theirs = cls.__module__ == "__main__" or (file is not None and file.endswith(".py") and is_users_file(file))
    return has_own_methods(cls) or (theirs and cls.__module__.split(".")[0] not in (*ARRAY_LIBRARIES, "autofuse"))


def is_installed(file: str) -> bool:
    """Whether a file is an installed library's."""
    return "site-packages" in file or "dist-packages" in file


def file_of(cls: type) -> str:
    """The file that defines a class; empty where there is none."""
    return str(getattr(sys.modules.get(cls.__module__), "__file__", "") or "")


def has_attributes(value: Any) -> bool:
    """Whether a value is an object that a method may read: one of a user's class, no array and no container."""
    whole = tree.is_static(value) or is_array(value) or isinstance(value, type | tuple | list | dict)
    return not whole and is_users_class(type(value))


def is_array(value: Any) -> bool:
    """Whether a value is an array or a number of NumPy's, or an array of a device."""
    return isinstance(value, np.ndarray | np.generic) or is_device_array(value)
