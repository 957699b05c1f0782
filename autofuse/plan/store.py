"""Plans by what they are for: a folder that answers (graph digest, device, numerics)."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from autofuse.errors import PlanError
from autofuse.lazydataclass import dataclass
from autofuse.plainfile import require_path
from autofuse.plan.document import PlanDocument
from autofuse.plan.file import load, save
from autofuse.plan.identity import Identity, compare, identity_hash
from autofuse.plan.verify import DIGEST

_REASONS_KEPT = 100


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What a store was asked since it was opened."""

    hits: int
    misses: int
    """Lookups without an answer, the invalid ones included."""
    invalid: int
    """Lookups that found an entry which could not be used."""
    reasons: tuple[str, ...]
    """Why, for the latest misses, the newest last."""


class PlanStore:
    """A folder of plans, one atomic file per entry. Safe for many threads and processes at once."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Use `folder`, which is made when the first plan is put. Raises PlanError if it exists and is no folder."""
        require_path("store", folder)
        self.folder = Path(folder)
        if os.path.exists(folder) and not os.path.isdir(folder):
            raise PlanError(f"{self.folder} is not a folder; give the folder of a plan store")
        self._lock = threading.Lock()
        self._hits = self._misses = self._invalid = 0
        self._reasons: deque[str] = deque(maxlen=_REASONS_KEPT)

    def path(self, graph_digest: str, identity: Identity, numerics: str = "strict") -> Path:
        """The file of an entry. Raises PlanError if the digest is none."""
        if not DIGEST.fullmatch(graph_digest):
            raise PlanError(f"{graph_digest!r:.80} is no graph digest")
        mode = "" if numerics == "strict" else "-fast"
        return self.folder / f"{graph_digest}-{identity_hash(identity)}{mode}.json"

    def get(
        self,
        graph_digest: str,
        identity: Identity,
        numerics: str = "strict",
        unwanted: Callable[[PlanDocument], str | None] | None = None,
    ) -> PlanDocument | None:
        """The plan for this graph on this device, or None. A damaged entry is a miss (see `stats`), never an error.

        `unwanted`: says why a sound plan is no use to the caller, which makes it a miss; None for one that is of use.
        Digests do not see names: a function with other parameter names, or with its arrays nested otherwise, may have
        the same graph. A caller that traced such a function puts its own `name`, `parameters`, `in_tree`, `out_tree`,
        `writebacks`, `contiguous` and `bounds` into the plan with `dataclasses.replace`.
        """
        path = self.path(graph_digest, identity, numerics)
        if not os.path.exists(path):  # nor is there a file of a name that the system cannot hold
            return self._miss(f"no entry for graph {graph_digest:.16} on this device", invalid=False)
        try:
            plan = load(path)
        except PlanError as bad:
            return self._miss(str(bad), invalid=True)
        if plan.program_digest != graph_digest or plan.numerics != numerics or compare(plan.identity, identity):
            return self._miss(f"{path}: holds a plan for something else than its name says", invalid=True)
        reason = None if unwanted is None else unwanted(plan)
        if reason is not None:
            return self._miss(f"{path}: {reason}", invalid=False)
        with self._lock:
            self._hits += 1
        return plan

    def put(self, plan: PlanDocument) -> Path:
        """Keep a plan, replacing an older one for the same key. Raises PlanError if the folder cannot be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as failure:
            raise PlanError(f"cannot make the plan store {self.folder}: {failure.strerror or failure}") from failure
        return save(plan, self.path(plan.program_digest, plan.identity, plan.numerics))

    def stats(self) -> StoreStats:
        """Counts since the store was opened, and why lookups missed."""
        with self._lock:
            return StoreStats(self._hits, self._misses, self._invalid, tuple(self._reasons))

    def _miss(self, reason: str, invalid: bool) -> None:
        with self._lock:
            self._misses += 1
            self._invalid += invalid
            self._reasons.append(reason)
