"""Gates: what launches on a GPU should keep to, judged from records of `planned`; and a table that may not get worse.

A gate has a limit, which is the aim. What is committed is the value of each launch today (`standing`): `compared` says
what got worse since, and what got better. Launches are known by their functions' names; one that has a new name is
compared with the worst of its program.

The limits are for large programs, and some for launches of some kind: `exemption` says so of a launch, by rule.
Whatever is exempt may not get worse either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from autofuse.targets.cuda.cost.terms import ALONE
from autofuse.targets.cuda.occupancy import MOST_LOST, lost

Record = dict[str, Any]
PROGRAM_BYTES = 64_000_000
"""Arguments and results of a program that the limits are for: of smaller ones, much fits the L2, and launches cost as
much as memory."""
FLIGHT_KIB = 48
"""That an H200 wants under way on each multiprocessor."""
_COMPUTE = frozenset({"compute"})
"""What is in flight does not decide where arithmetic does."""
_TILED = frozenset({"compute", "product"})
"""A product reads its operands once for each tile of results, mostly from the L2, and computes more for a byte."""
_TALL = 128
"""Rows of a block that are enough for an operand that is read once for them, whatever multiplies."""
_SLACK = 0.01
"""Of a value: counts are exact, but are committed with three digits."""


class Gate(NamedTuple):
    """What a launch should keep to."""

    name: str
    limit: float
    at_most: bool
    """False: at least."""
    value: Callable[[Record, int], float | None]
    """Of a launch, on so many multiprocessors; None where it does not apply."""
    shown: str = ".2f"
    """How a value is written."""
    not_for: frozenset[str] = frozenset()
    """Exemptions that hold for it, beside `small`."""
    is_compiled: bool = False
    """Whether it depends on the version of NVRTC."""

    def passes(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    def got_worse(self, before: float, now: float) -> bool:
        slack = _SLACK * max(1.0, abs(before))
        return now > before + slack if self.at_most else now < before - slack

    @property
    def wish(self) -> str:
        return f"{'at most' if self.at_most else 'at least'} {format(self.limit, self.shown)}"


def _repeated(launch: Record, _: int) -> float:
    return _ratio(launch["fetched_bytes"] + launch["written_bytes"], _needed(launch))


def _scattered(launch: Record, _: int) -> float:
    return _ratio(launch["sectors"], launch["ideal_sectors"])


def _wide(launch: Record, _: int) -> float:
    return launch["wide_bytes"] / max(launch["read_bytes"] + launch["written_bytes"], 1)


def _flight(launch: Record, multiprocessors: int) -> float | None:
    """KiB; of launches that read as much, and that memory limits."""
    read = launch["needed_read_bytes"] * launch["blocks"] / launch["ran"]
    if "flight_bytes" not in launch or is_computing(launch) or read < FLIGHT_KIB * 1024 * multiprocessors:
        return None
    resident = min(launch["resident_blocks"], math.ceil(launch["grid"] / multiprocessors))
    return launch["flight_bytes"] * launch["threads"] * resident / 1024


def _lost(launch: Record, multiprocessors: int) -> float | None:
    """Share of the device that has nothing to do in the last wave; of blocks that take tasks in turn, the last turn.

    Where arithmetic limits a launch, blocks of one multiprocessor share its units: a wave that is not full loses what
    multiprocessors without a block would do, and what one that is alone does more slowly.
    """
    held = launch.get("resident_blocks", 0)
    if not held:
        return None
    turns = launch["blocks"] / launch["grid"]
    waited = 1.0 - turns / math.ceil(turns)
    if is_computing(launch):
        each = math.ceil(launch["grid"] / multiprocessors)
        took = each + (ALONE - 1.0) * (each % held == 1)
        return max(1.0 - launch["grid"] / multiprocessors / took, waited) if each > held else waited
    return max(lost(launch["grid"], held, multiprocessors), waited)


def _spilled(launch: Record, _: int) -> float | None:
    return launch["spill_bytes"] + launch["stack_bytes"] if "spill_bytes" in launch else None


def _instructions(launch: Record, _: int) -> float | None:
    if not launch.get("code_bytes") or is_computing(launch):
        return None
    return launch["code_instructions"] / launch["code_bytes"]


def _conflicted(launch: Record, _: int) -> float:
    return _ratio(launch["wavefronts"], launch["ideal_wavefronts"])


def _on_matrix_units(launch: Record, _: int) -> float | None:
    if not launch.get("narrow_products") or "matrix_instructions" not in launch:
        return None
    return float(launch["matrix_instructions"] > 0)


def _operands_again(launch: Record, multiprocessors: int) -> float | None:
    """Once for 128 rows is few enough; so is once for fewer rows, where blocks are no more than multiprocessors."""
    if (chained := launch.get("chained")) is None:
        return None
    fewest = max(math.ceil(chained["rows"] / _TALL), multiprocessors // chained["products"], 1)
    return chained["reads"] / fewest


def is_computing(launch: Record) -> bool:
    """Whether the model says that arithmetic limits a launch."""
    return launch.get("bound") == "compute"


def _needed(launch: Record) -> int:
    return launch["needed_read_bytes"] + launch["needed_written_bytes"]


def _ratio(what: int, of: int) -> float:
    return what / of if of else 1.0


GATES = (
    Gate("bytes asked over needed", 1.05, True, _repeated, not_for=_TILED),
    Gate("sectors over ideal", 1.05, True, _scattered),
    Gate("by wide accesses", 0.95, False, _wide),
    Gate("KiB in flight", FLIGHT_KIB, False, _flight, ".0f", not_for=_COMPUTE, is_compiled=True),
    Gate("last wave loses", MOST_LOST, True, _lost, is_compiled=True),
    Gate("local memory, bytes", 0, True, _spilled, ".0f", is_compiled=True),
    Gate("instructions per byte", 6, True, _instructions, ".1f", not_for=_TILED, is_compiled=True),
    Gate("shared wavefronts over ideal", 1.05, True, _conflicted),
    Gate("16-bit products on matrix units", 1, False, _on_matrix_units, ".0f", is_compiled=True),
    Gate("reads of chained operands over fewest", 1, True, _operands_again),
)
ONE_LAUNCH = frozenset({"adam", "small_heads"})
"""Programs of many small tensors, which one launch should do."""


def exemption(launch: Record, counted: Record) -> str | None:
    """Why some limits are not for a launch of a program: it is `small`, limited by `compute`, or a `product`.

    Small is a program of less than `PROGRAM_BYTES`, and a launch that needs no more than memory gives while it is
    started; no limit is for them. A product is one that memory limits.
    """
    moved = _needed(launch) * launch["blocks"] / launch["ran"]
    if counted["program_bytes"] < PROGRAM_BYTES or moved <= counted["starting_bytes"]:
        return "small"
    if is_computing(launch):
        return "compute"
    return "product" if "narrow_products" in launch else None


def is_asked(gate: Gate, exempt: str | None) -> bool:
    """Whether a gate's limit is for a launch of that exemption."""
    return exempt != "small" and exempt not in gate.not_for


def standing(counted: Record) -> Record:
    """What is committed of a program: figures of `count_plan`, as gates see them."""
    return {
        "launches": sum(launch["times"] for launch in counted["launches"]),
        "replay_calls": counted["replay_calls"],
        "kernels": {
            launch["function"]: {
                gate.name: float(f"{value:.4g}")
                for gate in GATES
                if (value := gate.value(launch, counted["multiprocessors"])) is not None
            }
            for launch in counted["launches"]
        },
    }


class Difference(NamedTuple):
    """Lines for people."""

    worse: list[str]
    better: list[str]


def compared(name: str, before: Record, now: Record, *, same_compiler: bool) -> Difference:
    """What of a program got worse and better, given two results of `standing`.

    `same_compiler`: whether both were compiled by one version of NVRTC; without, gates that depend on it are left out.
    """
    found = Difference([], [])
    for what in ("launches", "replay_calls"):
        _note(found, f"{name}: {what.replace('_', ' ')}", before[what], now[what], now[what] > before[what])
    for function, values in now["kernels"].items():
        for gate in GATES:
            if gate.name not in values or (gate.is_compiled and not same_compiler):
                continue
            value, known = values[gate.name], _before(gate, function, before["kernels"])
            is_worse = not gate.passes(value) and (known is None or gate.got_worse(known, value))
            is_equal = known is None or not (gate.got_worse(known, value) or gate.got_worse(value, known))
            if is_worse or not (is_equal or (gate.passes(value) and gate.passes(known or 0.0))):
                _note(found, f"{name}: {function}: {gate.name} ({gate.wish})", known, value, is_worse)
    return found


def _before(gate: Gate, function: str, kernels: Mapping[str, Mapping[str, float]]) -> float | None:
    """The value of the function of that name, else the worst of the program; None: it had none."""
    if function in kernels:
        return kernels[function].get(gate.name)
    known = [values[gate.name] for values in kernels.values() if gate.name in values]
    return (max if gate.at_most else min)(known, default=None)


def _note(found: Difference, what: str, before: float | None, now: float, is_worse: bool) -> None:
    if before != now:
        (found.worse if is_worse else found.better).append(f"{what}: {'none' if before is None else before} -> {now}")
