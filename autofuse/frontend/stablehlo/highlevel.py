"""Operations that StableHLO's own passes can write as others, and that have no rule.

Those of CHLO, and those whose shapes, paddings or slices are operands: where these are constants.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

from autofuse.frontend.stablehlo.bindings import bindings, lowered, parsed
from autofuse.frontend.stablehlo.module import Module
from autofuse.frontend.stablehlo.table import RULES

_PREFIX = "chlo."
_KEPT = "mhlo."
"""How an operation is called by a `custom_call` while the passes run, so that they leave it alone."""


REWRITTEN = frozenset(
    f"stablehlo.{name}" for name in ("dynamic_conv", "dynamic_gather", "dynamic_pad", "real_dynamic_slice")
)
"""Those of StableHLO."""


def legalised(module: Module) -> Module:
    """The module with such operations written as others; those that have a rule of their own stay what they are.

    That is done to a copy: JAX keeps modules that it has made.
    """
    if not module.mentions((_PREFIX, *REWRITTEN)):
        return module
    names = {operation.name for operation in module.operations()}
    if names.isdisjoint(REWRITTEN) and all(name in RULES for name in names if name.startswith(_PREFIX)):
        return module
    encoded = BytesIO()
    module.held.operation.write_bytecode(encoded)
    held, found = parsed(encoded.getvalue()), list[Any]()
    held.operation.walk(lambda operation: _collect(operation, found))
    if any(operation.name in REWRITTEN for operation in found):
        lowered(held, "func.func(stablehlo-canonicalize-dynamism)")
    high = [operation for operation in found if operation.name.startswith(_PREFIX)]
    if not all(operation.name in RULES for operation in high):
        for operation in high:
            if _KEPT + operation.name.removeprefix(_PREFIX) in RULES and not len(operation.attributes):
                _hide(operation)
        lowered(held, "func.func(chlo-legalize-to-stablehlo)")
    return Module(held, module.own)


def _collect(operation: Any, found: list[Any]) -> Any:
    if operation.name.startswith(_PREFIX) or operation.name in REWRITTEN:
        found.append(operation)
    return bindings().ir.WalkResult.ADVANCE


def _hide(operation: Any) -> None:
    """Replace an operation by a call of its name, which `customcalls` translates by the operation's rule."""
    ir = bindings().ir
    name = ir.StringAttr.get(_KEPT + operation.name.removeprefix(_PREFIX), operation.context)
    with ir.InsertionPoint(operation), operation.location:
        call = ir.Operation.create(
            "stablehlo.custom_call",
            results=[result.type for result in operation.results],
            operands=list(operation.operands),
            attributes={"call_target_name": name},
        )
    for old, new in zip(operation.results, call.results, strict=True):
        old.replace_all_uses_with(new)
    operation.erase()
