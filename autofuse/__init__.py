"""autofuse: search, measure and save the best way to fuse a tensor program into kernels.

The names below load their modules when first used, so that `import autofuse` is light and loading a plan never imports
the search.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autofuse.api.compiling import compile  # noqa: A004 - the verb users know
    from autofuse.api.jit import jit
    from autofuse.api.plan import Plan, load
    from autofuse.api.research import candidates, measure
    from autofuse.api.tracing import trace
    from autofuse.api.tuning import tune
    from autofuse.errors import AutofuseError, KeyReuseWarning, NumberWarning, UnrolledLoopWarning
    from autofuse.frontend import random
    from autofuse.frontend.control import cond, while_loop
    from autofuse.frontend.countedloops import fori_loop, scan
    from autofuse.frontend.spec import Spec, spec
    from autofuse.frontend.stablehlo.function import from_stablehlo
    from autofuse.fusion.userrules import Forbid, Force, Pin
    from autofuse.ir.interpreter import interpret

__version__ = "0.1.0"

_WHERE = {
    "AutofuseError": "autofuse.errors",
    "Forbid": "autofuse.fusion.userrules",
    "Force": "autofuse.fusion.userrules",
    "KeyReuseWarning": "autofuse.errors",
    "NumberWarning": "autofuse.errors",
    "Pin": "autofuse.fusion.userrules",
    "Plan": "autofuse.api.plan",
    "Spec": "autofuse.frontend.spec",
    "UnrolledLoopWarning": "autofuse.errors",
    "candidates": "autofuse.api.research",
    "compile": "autofuse.api.compiling",
    "cond": "autofuse.frontend.control",
    "fori_loop": "autofuse.frontend.countedloops",
    "from_stablehlo": "autofuse.frontend.stablehlo.function",
    "interpret": "autofuse.ir.interpreter",
    "jit": "autofuse.api.jit",
    "load": "autofuse.api.plan",
    "measure": "autofuse.api.research",
    "scan": "autofuse.frontend.countedloops",
    "spec": "autofuse.frontend.spec",
    "trace": "autofuse.api.tracing",
    "tune": "autofuse.api.tuning",
    "while_loop": "autofuse.frontend.control",
}
_MODULES = {"random": "autofuse.frontend.random"}

__all__ = [
    "AutofuseError",
    "Forbid",
    "Force",
    "KeyReuseWarning",
    "NumberWarning",
    "Pin",
    "Plan",
    "Spec",
    "UnrolledLoopWarning",
    "__version__",
    "candidates",
    "compile",
    "cond",
    "fori_loop",
    "from_stablehlo",
    "interpret",
    "jit",
    "load",
    "measure",
    "random",
    "scan",
    "spec",
    "trace",
    "tune",
    "while_loop",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = import_module(_MODULES[name])
    elif name in _WHERE:
        value = getattr(import_module(_WHERE[name]), name)
    else:
        raise AttributeError(f"module 'autofuse' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE, *_MODULES})
