"""Numbered metadata nodes of a kernel's module, and the alias scopes of its buffers."""

from __future__ import annotations

from collections.abc import Sequence

_FIRST = 1000
"""Nodes below belong to `ModuleText`."""
AS_WRITTEN = f"!{_FIRST}"
"""`!llvm.loop` of loops that LLVM shall not unroll: the schedule says how many vectors are in flight."""
NON_TEMPORAL = f"!{_FIRST + 2}"
"""`!nontemporal` of stores that bypass the caches."""


class Metadata:
    """Collects metadata nodes; `render` gives the lines to append to the module."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self.node(f"{{self}}, !{_FIRST + 1}", distinct=True)
        self.node('!"llvm.loop.unroll.disable"')
        self.node("i32 1")

    def node(self, body: str, *, distinct: bool = False) -> str:
        """Add a node; `body` may hold `{self}`. Returns its name, such as `!1003`."""
        name = f"!{_FIRST + len(self._lines)}"
        self._lines.append(f"{name} = {'distinct ' if distinct else ''}!{{{body.replace('{self}', name)}}}")
        return name

    def render(self) -> str:
        """All nodes, one per line."""
        return "\n".join(self._lines)


def alias_scopes(metadata: Metadata, written: Sequence[bool]) -> list[str]:
    """For each buffer, what its loads and stores carry: it shares memory with none of the others.

    Buffers that are only read share one scope: nothing is gained by telling them apart.
    """
    domain = metadata.node("{self}", distinct=True)
    read = metadata.node(f"{{self}}, {domain}", distinct=True)
    scopes = [metadata.node(f"{{self}}, {domain}", distinct=True) if w else read for w in written]
    distinct = list(dict.fromkeys((read, *scopes)))
    tags: dict[str, str] = {}
    for scope in distinct:
        own = metadata.node(scope)
        others = metadata.node(", ".join(other for other in distinct if other != scope)) if len(distinct) > 1 else ""
        tags[scope] = f", !alias.scope {own}" + (f", !noalias {others}" if others else "")
    return [tags[scope] for scope in scopes]
