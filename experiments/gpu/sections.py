"""The sections of the GPU study, the most valuable first, and how the time is divided among them.

A section has a share of the time that is left when it begins, beside the shares of those behind it: what one does not
need, the others have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aims import AIMS
from forms import FORMS
from journal import Journal, Record
from questions import QUESTIONS

from autofuse.measurement.workloads import discover

COUNTED = Path(__file__).resolve().parents[1] / "gpu_counts" / "programs"
FIRST = (
    "softmax",
    "layer_norm_residual",
    "gelu_mlp",
    "adam",
    "attention",
    "bert_layer",
    "small_heads",
    "fused_add_sum",
)
"""Programs that matter most; the others follow."""
_TUNED = ("softmax", "layer_norm_residual", "gelu_mlp", "attention", "small_heads")
_RACED = ("small_heads", "bert_layer", "adam", "lstm_sequence")
WORST = 5
"""Kernels that are looked at closely."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the study is asked for."""

    code: str
    """Of autofuse, as it is now: what others measured counts as not measured."""
    backend: str
    programs: tuple[str, ...]
    """And forms; empty: all."""
    peers: tuple[str, ...]
    size: str
    contract: bool
    """Whether tests that need a GPU are run."""
    jobs: int
    """Steps at once where no times are taken, and in a batch that gets ready together."""
    database: str
    """File for schedule records."""


@dataclass(frozen=True, slots=True)
class Section:
    """Tasks that belong together."""

    name: str
    share: float
    tasks: Callable[[Plan, Journal], Sequence[Record]]
    """Asked when the section begins: the last one depends on what the others found."""
    untimed: bool = False
    """Whether no times are taken, so that steps may run beside each other."""
    in_turn: bool = False
    """Whether steps get ready beside each other, and are timed one after another (`turns.py`)."""


def chosen(plan: Plan, names: Sequence[str]) -> list[str]:
    """Those that are asked for."""
    return [name for name in names if not plan.programs or name in plan.programs]


def _environment(plan: Plan, _: Journal) -> list[Record]:
    """A simulated device has no rates but the model's."""
    return [{"step": "environment"}, *([{"step": "calibrate"}] if plan.backend == "cuda" else [])]


def _correct(plan: Plan, _: Journal) -> list[Record]:
    forms: list[Record] = [{"step": "form", "program": name} for name in chosen(plan, list(FORMS))]
    return [*forms, *([{"step": "contract"}] if plan.contract else [])]


def _counted(plan: Plan, _: Journal) -> list[Record]:
    files = {program.name: str(program.file) for program in (*discover(COUNTED), *discover())}
    names = [*(program.name for program in discover(COUNTED)), *FIRST]
    return [
        {"step": "counted", "program": name, "file": files[name], "size": plan.size} for name in chosen(plan, names)
    ]


def _aims(plan: Plan, _: Journal) -> list[Record]:
    return [{"step": "aim", "program": name, "size": plan.size} for name in AIMS if not plan.programs]


def _questions(plan: Plan, _: Journal) -> list[Record]:
    return [{"step": "question", "program": name, "size": plan.size} for name in QUESTIONS if not plan.programs]


def _missed(plan: Plan, journal: Journal) -> list[Record]:
    """What analytical plans do not reach, the longest first."""
    records = _of_now(plan, journal, "aim")
    over = {r["program"]: r["aim_us"] for r in records if r["kernels_us"] > r["aim_us"]}
    longest = sorted(over, key=lambda name: -over[name])
    return [{"step": "aim-tuned", "program": name, "size": plan.size} for name in longest]


def _programs(plan: Plan, _: Journal) -> list[Record]:
    """Those that matter most first."""
    others = [program.name for program in discover() if program.name not in FIRST]
    return [{"step": "plan", "program": name, "size": plan.size} for name in chosen(plan, (*FIRST, *others))]


def _peers(plan: Plan, _: Journal) -> list[Record]:
    """The same by others, which take longest to get ready."""
    others = [program.name for program in discover() if program.name not in FIRST]
    return [
        {"step": step, "program": name, "size": plan.size}
        for names in (chosen(plan, FIRST), chosen(plan, others))
        for step in plan.peers
        for name in names
    ]


def _tuned(plan: Plan, _: Journal) -> list[Record]:
    rest = {"size": plan.size, "database": plan.database}
    return [{"step": "tune", "program": name, **rest} for name in chosen(plan, _TUNED)]


def _raced(plan: Plan, _: Journal) -> list[Record]:
    return [{"step": "race", "program": name, "size": plan.size} for name in chosen(plan, _RACED)]


def _worst(plan: Plan, journal: Journal) -> list[Record]:
    """The kernels whose predictions were furthest off; what is launched together has a share of a time only."""
    found = sorted(misjudged(_of_now(plan, journal, "plan")), key=lambda one: -one[0])[:WORST]
    return [{"step": "profile", "program": name, "kernel": kernel, "size": plan.size} for _, name, kernel in found]


def _of_now(plan: Plan, journal: Journal, step: str) -> list[Record]:
    """What a step found with the code as it is now, of each program the newest."""
    records = (r for r in journal.records if r.get("step") == step and r.get("code") == plan.code)
    return list({str(r["program"]): r for r in records if r["status"] == "ok"}.values())


def misjudged(plans: Sequence[Record]) -> Iterator[tuple[float, str, str]]:
    """How many times off, program and kernel, of each kernel of plans that were measured."""
    for record in plans:
        for kernel in record["kernels"]:
            is_alone = kernel["kind"] not in ("library", "interpreter") and not any(
                "together" in said for said in kernel["launch"]
            )
            if kernel["predicted_us"] and kernel["us"] and is_alone:
                ratio = kernel["us"] / kernel["predicted_us"]
                yield max(ratio, 1 / ratio), record["program"], kernel["name"]


SECTIONS = (
    Section("environment and calibration", 0.06, _environment),
    Section("correctness of every form", 0.14, _correct, untimed=True),
    Section("aims", 0.10, _aims, in_turn=True),
    Section("open questions", 0.12, _questions, in_turn=True),
    Section("programs", 0.16, _programs, in_turn=True),
    Section("kernels beside their counts", 0.08, _counted, in_turn=True),
    Section("missed aims, tuned", 0.08, _missed),
    Section("peers", 0.14, _peers, in_turn=True),
    Section("schedule records", 0.06, _tuned),
    Section("graphs and streams", 0.03, _raced, in_turn=True),
    Section("the worst kernels", 0.03, _worst),
)
"""Right first; then what was built since a GPU was last at hand; then what takes long, and changes least."""
OF_THE_DEVICE = frozenset(("environment", "calibrate", "cupy", "jax", "torch"))
"""Steps that no change of autofuse changes: known once, they stay known."""


def time_of(section: Section, sections: Sequence[Section], left_s: float) -> float:
    """Seconds for one of the sections that are asked for, which begins when so much is left."""
    behind = sum(one.share for one in sections[sections.index(section) :])
    return left_s * section.share / behind
