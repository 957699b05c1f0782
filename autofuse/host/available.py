"""How much memory this process may still have: of the machine, of its control groups, and within its own limits."""

from __future__ import annotations

import resource
from pathlib import Path

from autofuse.host.groups import groups_of, number_of, text_of

_ROOT = Path("/")
_UNLIMITED = 1 << 60


def available_bytes(root: Path = _ROOT) -> int:
    """Bytes that can be allocated without going beyond what is there; 1 << 62 where nothing says how much that is."""
    found = [1 << 62, *_of_machine(root), *_of_address_space(root)]
    found += [total] if (total := memory_bytes(root)) else []
    return max(0, min(found))


def _of_machine(root: Path) -> list[int]:
    """Free memory, and what the system can take back from caches; swap counts."""
    facts = _table(root / "proc/meminfo")
    return [facts["MemAvailable"] + facts.get("SwapFree", 0)] if "MemAvailable" in facts else []


def _of_address_space(root: Path) -> list[int]:
    """What is left of `ulimit -v`."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    used = _table(root / "proc/self/status").get("VmSize", 0)
    return [] if limit == resource.RLIM_INFINITY else [limit - used]


def _table(path: Path) -> dict[str, int]:
    """Lines `Name: 123 kB` as bytes by name."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return {}
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[0].isdigit() and words[1] == "kB":
            found[name] = int(words[0]) << 10
    return found


def memory_bytes(root: Path) -> int:
    """Memory of the machine, or what its control groups grant, if that is less; 0 if neither is known."""
    total = _UNLIMITED
    for line in (text_of(root / "proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) << 10
    for folder in groups_of(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            total = min(total, number_of(folder / name) or _UNLIMITED)
    return total if total < _UNLIMITED else 0
