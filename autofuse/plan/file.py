"""Plans on disk: `p.json`, and beside it the constants it names. Both appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from autofuse.errors import GraphError, PlanError
from autofuse.plan import constants
from autofuse.plan.atomic import require_replaceable, written_whole
from autofuse.plan.codec import decode, encode, require_portable, to_text
from autofuse.plan.document import PlanDocument
from autofuse.plan.plantext import read_plan


def save(plan: PlanDocument, path: str | os.PathLike[str]) -> Path:
    """Write a plan. Concurrent writers and readers of one path see one whole plan or another.

    The constants file, named after its contents, is written first; an older one stays. Raises PlanError if the plan
    does not hang together or the file cannot be written.
    """
    target = Path(path)
    try:
        require_portable(plan.graph)
    except GraphError as local:
        raise PlanError(f"cannot save the plan {plan.name}: {local}") from local
    encoded = encode(plan)
    try:
        require_replaceable(target)  # before constants are written beside it
        side = constants.write(target.parent, target.stem, encoded.constants) if encoded.constants else None
        text = to_text(encoded, side).encode()
        with written_whole(target.parent) as (file, place):
            file.write(text)
            place(target)
    except OSError as failure:
        raise PlanError(f"cannot write the plan to {target}: {failure.strerror or failure}") from failure
    return target


def load(path: str | os.PathLike[str]) -> PlanDocument:
    """Read and check a plan. Raises PlanError, and nothing else, whatever the file holds."""
    return document_of(read_plan(path), path)


def document_of(text: bytes, path: str | os.PathLike[str]) -> PlanDocument:
    """Check the text of the plan file at `path`. Raises PlanError, and nothing else, whatever it holds."""
    source = Path(path)
    return decode(text, what=str(source), fetch=lambda side: constants.read(source.parent, side))
