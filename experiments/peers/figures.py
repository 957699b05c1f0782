"""Rows of figures from the raw records. Nothing here measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from floors import floor_ms
from interleaved import Ratio, Samples, noise_floor, ratio
from journal import Journal, Record
from standings import Standing
from variants import AGAIN, AUTOFUSE, COLD, NUMPY, PEERS, VARIANTS

COLUMNS = ("fresh", "reused")


@dataclass(frozen=True, slots=True)
class Row:
    """One program's figures."""

    program: str
    times: Mapping[str, Mapping[str, Ratio]]
    """Milliseconds of a call with their interval, by column (`fresh`, `reused`) and variant."""
    against: Mapping[str, Mapping[str, Standing]]
    """Every other variant against autofuse, by column and variant."""
    kernel_ms: Mapping[str, float]
    """Milliseconds inside kernels by variant; see `kernel_only`."""
    ready_s: Mapping[str, float]
    """Seconds of compiling until the first result, with empty caches; tuning is not in it."""
    tune_s: float | None
    """Seconds of autofuse's tuning."""
    peak_mb: Mapping[str, float]
    """Largest resident memory of the timing process up to its first result, by variant."""
    before_mb: Mapping[str, float]
    """The same before the program is compiled or loaded: imports and arguments."""
    least_mb: float | None
    """Bytes that must move, in 1e6."""
    floor_ms: float | None
    """Their time at the machine's copy rate."""
    dots_ms: float | None
    """The program's matrix products alone, in NumPy's BLAS; 0 for a program without any."""
    profiled_dots: float | None
    """Share of autofuse's kernel time that goes into kernels with a product in them."""
    kernels: int | None
    """Kernels of the plan."""
    faults: tuple[str, ...]
    """What failed, one line each."""

    def best(self, column: str) -> Standing | None:
        """The fastest of the others, NumPy included."""
        found = self.against[column]
        return min(found.values(), key=lambda standing: standing.over.value) if found else None

    @property
    def dot_share(self) -> float | None:
        """The products alone in BLAS over autofuse's call, at most 1."""
        own = self.times["fresh"].get(AUTOFUSE)
        return None if own is None or self.dots_ms is None else min(1.0, self.dots_ms / own.value)

    @property
    def break_even(self) -> float | None:
        """Calls after which tuning has paid against the best peer; infinite where it never does, None if unknown."""
        best, own = self.best("fresh"), self.times["fresh"].get(AUTOFUSE)
        if best is None or own is None or self.tune_s is None or best.name not in self.times["fresh"]:
            return None
        there = self.times["fresh"][best.name].value
        return break_even(self.tune_s, own.value, self.ready_s.get(best.name, 0.0), there)


def break_even(own_s: float, own_ms: float, other_s: float, other_ms: float) -> float:
    """Calls from which on `own_s` before the first call and `own_ms` for each cost less than the other's, in all.

    0 where they do from the first call on; infinite where they never do for good.
    """
    if own_ms >= other_ms:
        return 0.0 if own_ms == other_ms and own_s <= other_s else float("inf")
    return max(0.0, float(np.ceil((own_s - other_s) * 1e3 / (other_ms - own_ms))))


def build_rows(programs: Iterable[str], journal: Journal, rounds: int) -> list[Row]:
    """One row per program from the newest records."""
    copies = journal.latest(kind="copies", status="ok")
    return [_row(program, journal, rounds, copies["rates"] if copies else {}) for program in programs]


def _row(program: str, journal: Journal, rounds: int, rates: Mapping[str, float]) -> Row:
    found = {variant: _rounds(journal, program, variant, rounds) for variant in VARIANTS}
    cold = {v: journal.latest(kind="round", program=program, variant=v, round=COLD, status="ok") for v in VARIANTS}
    done = {variant: [record for record in records if "samples" in record] for variant, records in found.items()}
    samples = {column: _samples(done, column) for column in (*COLUMNS, "empty")}
    facts = journal.latest(kind="facts", program=program, status="ok") or {}
    tuned = journal.latest(kind="tune", program=program, status="ok") or {}
    least = facts.get("least_bytes")
    return Row(
        program=program,
        times={
            column: {variant: milliseconds(found) for variant, found in samples[column].items()} for column in COLUMNS
        },
        against={column: standings(samples[column]) for column in COLUMNS},
        kernel_ms=kernel_only(samples, done),
        ready_s={variant: seconds for variant in VARIANTS if (seconds := _ready_s(done[variant], cold[variant]))},
        tune_s=tuned.get("seconds"),
        peak_mb=_medians(done, "peak_mb"),
        before_mb=_medians(done, "before_mb"),
        least_mb=None if least is None else least / 1e6,
        floor_ms=floor_ms(least, rates) if least is not None and rates else None,
        dots_ms=facts.get("dots_ms"),
        profiled_dots=_profiled_dots(done[AUTOFUSE]),
        kernels=tuned.get("kernels"),
        faults=tuple(dict.fromkeys(_faults(journal, program, found))),
    )


def _rounds(journal: Journal, program: str, variant: str, rounds: int) -> list[Record]:
    """The newest record of each timing round, as far as there are."""
    numbers = range(COLD + 1, rounds + 1)
    found = (journal.latest(kind="round", program=program, variant=variant, round=number) for number in numbers)
    return [record for record in found if record is not None]


def _samples(done: Mapping[str, Sequence[Record]], column: str) -> dict[str, list[Samples]]:
    return {
        variant: [record["samples"][column] for record in records]
        for variant, records in done.items()
        if records and all(column in record["samples"] for record in records)
    }


def milliseconds(rounds: Sequence[Samples]) -> Ratio:
    """The median call with its 95 % interval over rounds and blocks."""
    one = [[[1e3] for _ in blocks] for blocks in rounds]
    return ratio(rounds, one)


def standings(samples: Mapping[str, list[Samples]]) -> dict[str, Standing]:
    """Every peer, and NumPy, against autofuse, over the rounds that both have."""
    own = samples.get(AUTOFUSE)
    if own is None:
        return {}
    noise = noise_floor(*common(own, samples[AGAIN])) if AGAIN in samples else 0.0
    return {
        peer: Standing(peer, ratio(*common(samples[peer], own)), noise) for peer in (NUMPY, *PEERS) if peer in samples
    }


def common(one: list[Samples], other: list[Samples]) -> tuple[list[Samples], list[Samples]]:
    """As many rounds of both as there are of each."""
    count = min(len(one), len(other))
    return one[:count], other[:count]


def kernel_only(
    samples: Mapping[str, Mapping[str, list[Samples]]], done: Mapping[str, Sequence[Record]]
) -> dict[str, float]:
    """autofuse: the sum of its kernels by its profiler. Peers: a call less a call of an empty program.

    The call is that with reused memory where there is one, for kernels of their own do not allocate. NumPy has neither.
    """
    found: dict[str, float] = {}
    for variant, empty in samples["empty"].items():
        whole = samples["reused"].get(variant) or samples["fresh"].get(variant)
        if whole is not None:
            found[variant] = max(0.0, milliseconds(whole).value - milliseconds(empty).value)
    profiled = [record["kernel_us"]["all"] / 1e3 for record in done[AUTOFUSE] if "kernel_us" in record]
    if profiled:
        found[AUTOFUSE] = float(np.median(profiled))
    return found


def _profiled_dots(records: Sequence[Record]) -> float | None:
    shares = [r["kernel_us"]["dots"] / r["kernel_us"]["all"] for r in records if r.get("kernel_us", {}).get("all")]
    return float(np.median(shares)) if shares else None


def _medians(done: Mapping[str, Sequence[Record]], entry: str) -> dict[str, float]:
    return {variant: float(np.median([r[entry] for r in records])) for variant, records in done.items() if records}


def _ready_s(records: Sequence[Record], cold: Record | None) -> float | None:
    """The cold round's, for those that keep compiled code on disk; the median of the timing rounds for the others."""
    seconds = [record["ready_s"] for record in ([cold] if cold else []) if record["keeps_cache"]]
    seconds = seconds or [record["ready_s"] for record in records if not record["keeps_cache"]]
    return float(np.median(seconds)) if seconds else None


def _faults(journal: Journal, program: str, found: Mapping[str, Sequence[Record]]) -> Iterable[str]:
    for kind in ("facts", "tune"):
        record = journal.latest(kind=kind, program=program)
        if record and record["status"] != "ok":
            yield f"{kind}: {record['error']}"
    for variant, records in found.items():
        for record in records:
            reason = record.get("fault") or record.get("error")
            if reason:
                yield f"{variant}: {reason}"
            yield from (f"{variant}: {note}" for note in record.get("notes", ()))
            if record.get("brief"):
                yield f"{variant}: the form whose results go to given memory did not finish compiling"


@dataclass(frozen=True, slots=True)
class SmallThings:
    """What calls and loading cost."""

    calls_us: Mapping[str, Mapping[str, Ratio]]
    """Microseconds of a call with fresh results, by program of small arrays and variant."""
    loading_ms: Mapping[str, Mapping[str, float]]
    """Median milliseconds of importing, reading and the first call, by state of the cache."""


def small_things(programs: Iterable[str], journal: Journal, rounds: int) -> SmallThings:
    """The figures of the overhead programs and of loading."""
    calls: dict[str, dict[str, Ratio]] = {}
    for program in programs:
        done = {v: [r for r in _rounds(journal, program, v, rounds) if "samples" in r] for v in VARIANTS}
        fresh = _samples(done, "fresh")
        calls[program] = {
            variant: Ratio(*(1e3 * part for part in (ms.value, ms.low, ms.high)))
            for variant, ms in ((variant, milliseconds(found)) for variant, found in fresh.items())
        }
    loading: dict[str, dict[str, float]] = {}
    for cache in ("empty", "filled"):
        numbers = range(COLD + 1, rounds + 1)
        found = [journal.latest(kind="load", cache=cache, round=number, status="ok") for number in numbers]
        records = [record for record in found if record]
        if records:
            entries = ("import_ms", "read_ms", "first_ms")
            loading[cache] = {entry: float(np.median([record[entry] for record in records])) for entry in entries}
    return SmallThings(calls, loading)
