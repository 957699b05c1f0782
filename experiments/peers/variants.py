"""The variants of the study: names, which programs have which, and the process that each runs in."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

NUMPY, AUTOFUSE, AGAIN = "numpy", "autofuse", "autofuse again"
PEERS = ("jax", "jax idiomatic", "torch", "torch autotune", "torch idiomatic", "numba")
VARIANTS = (NUMPY, *PEERS, AUTOFUSE, AGAIN)
QUICK = (NUMPY, "jax", "torch", "torch idiomatic", "numba", AUTOFUSE)
"""The variants of a quick look."""

SHARED_CODE = ("child.py", "prepared.py")
CODE = {
    "numpy": ("numpy_side.py",),
    "jax": ("jax_side.py", "jax_programs.py", "../common/namespaces.py"),
    "torch": ("torch_side.py", "torch_programs.py", "torch_idioms.py"),
    "numba": ("numba_side.py", "numba_programs.py"),
    "autofuse": ("autofuse_side.py",),
}
"""The files that make a framework's side, by framework: the first word of a variant."""

KEEPS_CACHE = ("torch", "numba")
"""Frameworks that keep compiled code on disk here. JAX does so only when asked; autofuse's tuning is timed apart."""

COLD = 0
"""The round before which compilers' caches on disk hold nothing of the programs: it gives compile times only."""

THREAD_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "NPROC")
"""What OpenMP, MKL, OpenBLAS, Numba and XLA's CPU client read."""


def framework(variant: str) -> str:
    """The first word of a variant."""
    return variant.split()[0]


def applicable(
    program: str, catalogue: Mapping[str, Collection[str]], dots: bool, wanted: Collection[str]
) -> list[str]:
    """The variants that `program` runs under, of those wanted.

    `catalogue` names the programs that have a hand-written form, by variant; a framework that is not installed is in
    `catalogue["missing"]`. Mode "max-autotune" tries other kernels for products only, so a program without `dots` has
    the same code under it and is not timed twice.
    """
    return [
        variant
        for variant in VARIANTS
        if variant in wanted
        and framework(variant) not in catalogue["missing"]
        and (dots or "autotune" not in variant.split())
        and program in catalogue.get(variant, (program,))
    ]


@cache
def code_digest(side: str) -> str:
    """Short name of the code behind a framework's times, so that records are made again when that changes.

    autofuse is measured from this checkout, so all its sources count.
    """
    files = [HERE / name for name in (*SHARED_CODE, *CODE[side])]
    if side == "autofuse":
        tops = ("autofuse", "cost_models", "search")
        files += sorted(file for top in tops for kind in ("*.py", "*.ll") for file in (ROOT / top).rglob(kind))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]


def environment(threads: int, caches: Path | None = None, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of a child process: equal thread counts for all, and a folder for compilers' caches."""
    counts = dict.fromkeys(THREAD_COUNTS, str(threads))
    folders = {}
    if caches is not None:
        folders = {
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            "NUMBA_CACHE_DIR": str(caches / "numba"),
        }
    return {**os.environ, **counts, **folders, "JAX_PLATFORMS": "cpu", "TORCHINDUCTOR_FREEZING": "0", **(extra or {})}
