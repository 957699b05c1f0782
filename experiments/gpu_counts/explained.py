"""Why launches miss limits that are for them: what was found out, by program, gate and function."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

UNKNOWN = "not explained yet"


class Reason(NamedTuple):
    """Why some launches miss a gate."""

    program: str
    functions: str
    """Their names, as a shell pattern."""
    gate: str
    text: str


REASONS = (
    Reason(
        "bert_encoder",
        "epilogue_dot_*_1",
        "bytes asked over needed",
        "it adds the parts of a product and its bias. Each block asks for the bias anew, a row of 3 to 12 KiB that the "
        "caches hold; all else is asked for once.",
    ),
    Reason(
        "bert_encoder",
        "epilogue_dot_add_2_1",
        "KiB in flight",
        "128 rows of 768 are 192 blocks of 128 threads, which all run at once. ptxas lets each have five of its loads "
        "under way, in 34 registers, though sources ask for all of them first.",
    ),
)


def reason(program: str, function: str, gate: str) -> str:
    """Why a launch misses a gate; `UNKNOWN` where nobody has said so."""
    for one in REASONS:
        if one.program == program and one.gate == gate and fnmatchcase(function, one.functions):
            return one.text
    return UNKNOWN
