"""The written report: Markdown from rows of figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from figures import COLUMNS, Row, SmallThings, Standing
from interleaved import Ratio
from journal import Record
from standings import NEITHER, OURS, THEIRS, geometric_mean
from variants import AGAIN, AUTOFUSE, NUMPY, PEERS, VARIANTS

SHOWN = (NUMPY, *PEERS, AUTOFUSE)
FEW_DOTS = 0.3
"""A program whose products take less of the time than this is counted as one without many."""


def render(rows: Sequence[Row], small: SmallThings, run: Record, rounds: int) -> str:
    """The whole report."""
    parts = [*heading(run, rounds), ""]
    for column, title in zip(COLUMNS, ("results fresh in every call", "results in memory that is reused"), strict=True):
        parts += [f"## Summary: {title}", "", *summary(rows, column), ""]
    parts += ["## Milliseconds per call, results fresh", "", *times(rows, "fresh"), ""]
    parts += ["## Milliseconds per call, memory reused or donated", "", *times(rows, "reused"), ""]
    parts += ["## Kernels only, milliseconds", "", *kernels(rows), ""]
    parts += ["## Floors", "", *floors(rows), ""]
    parts += ["## Making ready, and memory", "", *costs(rows), ""]
    parts += ["## Calls of next to nothing, and loading a plan", "", *little(small), ""]
    faulty = [row for row in rows if row.faults]
    if faulty:
        parts += ["## What failed, and notes", ""]
        parts += [f"- `{row.program}`, {fault}" for row in faulty for fault in row.faults]
    return "\n".join(parts).rstrip() + "\n"


def summary(rows: Sequence[Row], column: str) -> list[str]:
    """Geometric means, and the programs in which a peer is ahead."""
    best = [(row, standing) for row in rows if (standing := row.best(column))]
    if not best:
        return ["Nothing measured."]
    few = [standing for row, standing in best if row.dot_share is not None and row.dot_share < FEW_DOTS]
    lines = [
        "Ratios are time of the other over time of autofuse: above 1 autofuse is ahead.",
        "",
        "| against | geometric mean | programs | autofuse ahead | neither | other ahead |",
        "|---|---:|---:|---:|---:|---:|",
        _against("**the best of them, program by program**", [standing for _, standing in best]),
        _against(f"the best, programs whose products take under {FEW_DOTS:.0%}", few),
    ]
    for variant in (NUMPY, *PEERS):
        found = [row.against[column][variant] for row in rows if variant in row.against[column]]
        if found:
            lines.append(_against(variant, found))
    ahead = [(row, standing) for row, standing in best if standing.ahead == THEIRS]
    named = ", ".join(f"`{row.program}` ({standing.name}, {standing.text})" for row, standing in ahead)
    noise = sorted(standing.noise for _, standing in best)
    lines += ["", f"A peer is ahead beyond the noise floor in {len(ahead)} of {len(best)}: {named or 'none'}."]
    lines.append(
        f"Noise floor (autofuse against itself): median {noise[len(noise) // 2]:.1%}, largest {noise[-1]:.1%}."
    )
    return lines


def _against(name: str, standings: Sequence[Standing]) -> str:
    counts = [sum(standing.ahead == who for standing in standings) for who in (OURS, NEITHER, THEIRS)]
    mean = geometric_mean(standing.over.value for standing in standings)
    return (
        f"| {name} | {'-' if math.isnan(mean) else f'{mean:.2f}'} | {len(standings)} | "
        + " | ".join(map(str, counts))
        + " |"
    )


def times(rows: Sequence[Row], column: str) -> list[str]:
    """One line per program: every variant's median, and the best of the others against autofuse."""
    lines = [f"| program | {' | '.join(SHOWN)} | best other / autofuse | noise |", "|---|" + "---:|" * (len(SHOWN) + 2)]
    for row in rows:
        found = row.times[column]
        best = row.best(column)
        fastest = min((found[variant].value for variant in SHOWN if variant in found), default=0.0)
        cells = [_emphasised(found.get(variant), fastest) for variant in SHOWN]
        last = ["-", "-"] if best is None else [f"{best.text} {best.name}", f"{best.noise:.1%}"]
        lines.append("| " + " | ".join([f"`{row.program}`", *cells, *last]) + " |")
    return lines


def _emphasised(found: Ratio | None, fastest: float) -> str:
    if found is None:
        return "-"
    text = number(found.value)
    return f"**{text}**" if found.value == fastest else text


def number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return "-"
    if value == 0.0:
        return "0"
    return f"{value:.{min(4, max(0, 2 - math.floor(math.log10(abs(value)))))}f}"


def kernels(rows: Sequence[Row]) -> list[str]:
    """Time inside kernels."""
    shown = [variant for variant in (*PEERS, AUTOFUSE) if any(variant in row.kernel_ms for row in rows)]
    lines = [
        "autofuse: the sum over the kernels by `plan.profile`. The others: a call with reused memory (else with fresh "
        "results) **minus the call overhead**, measured in the same process on a compiled program of the same "
        "arguments that reads one value of each.",
        "",
        f"| program | {' | '.join(shown)} |",
        "|---|" + "---:|" * len(shown),
    ]
    for row in rows:
        lines.append(
            f"| `{row.program}` | " + " | ".join(number(row.kernel_ms.get(variant)) for variant in shown) + " |"
        )
    return lines


def floors(rows: Sequence[Row]) -> list[str]:
    """What bounds the programs from below."""
    lines = [
        "Least MB: every argument read once, every result written once. Floor: that at the rate of a copy by all "
        "threads whose arrays are as large, measured in this run. Dots alone: the program's matrix products one after "
        "another in NumPy's BLAS into memory that is there. Share of dots: those over autofuse's call with fresh "
        "results. In brackets: the share of plan.profile's time in kernels that hold a product.",
        "",
        "| program | kernels | least MB | floor ms | autofuse, reused, / floor | dots alone ms | share of dots |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        own = row.times["reused"].get(AUTOFUSE) or row.times["fresh"].get(AUTOFUSE)
        over = own.value / row.floor_ms if own and row.floor_ms else None
        share = "-" if row.dot_share is None else f"{row.dot_share:.0%}"
        if row.profiled_dots:
            share += f" ({row.profiled_dots:.0%})"
        cells = [
            "-" if row.kernels is None else str(row.kernels),
            number(row.least_mb),
            number(row.floor_ms),
            number(over),
            number(row.dots_ms),
            share,
        ]
        lines.append(f"| `{row.program}` | " + " | ".join(cells) + " |")
    return lines


def costs(rows: Sequence[Row]) -> list[str]:
    """Compile and tuning seconds, break-even, memory."""
    lines = [
        "Seconds from arguments in memory to the first result: compilation with empty caches for the peers, whose "
        "compilers have compiled something else before; loading the tuned plan for autofuse; its tuning beside it. "
        "Break-even: calls until tuning has paid for itself against the best other, whose compilation counts too. "
        "Memory: largest resident MB up to the first result in the timing process, in brackets what it was before the "
        "program was compiled or loaded.",
        "",
        f"| program | {' | '.join(f'{variant} s' for variant in SHOWN[1:])} | tuning s | break-even calls | "
        "autofuse MB | jax MB | torch MB |",
        "|---|" + "---:|" * (len(SHOWN) + 4),
    ]
    for row in rows:
        cells = [number(row.ready_s.get(variant)) for variant in SHOWN[1:]]
        cells += [number(row.tune_s), calls_text(row.break_even)]
        cells += [_memory(row, variant) for variant in (AUTOFUSE, "jax", "torch")]
        lines.append(f"| `{row.program}` | " + " | ".join(cells) + " |")
    return lines


def calls_text(calls: float | None) -> str:
    """A count of calls; `never` for infinitely many."""
    if calls is None:
        return "-"
    return "never" if math.isinf(calls) else f"{calls:,.0f}"


def _memory(row: Row, variant: str) -> str:
    if variant not in row.peak_mb:
        return "-"
    return f"{row.peak_mb[variant]:,.0f} ({row.before_mb[variant]:,.0f})"


def little(small: SmallThings) -> list[str]:
    """Call overhead and loading."""
    shown = [
        variant for variant in VARIANTS if variant != AGAIN and any(variant in row for row in small.calls_us.values())
    ]
    lines: list[str] = []
    if shown:
        lines += [f"| microseconds per call | {' | '.join(shown)} |", "|---|" + "---:|" * len(shown)]
    for program, found in small.calls_us.items() if shown else ():
        cells = [number(found[variant].value) if variant in found else "-" for variant in shown]
        lines.append(f"| `{program}` | " + " | ".join(cells) + " |")
    if small.loading_ms:
        lines += [
            "",
            "`bert_layer` from its plan file to the first result, in a new process whose arguments are made:",
            "",
            "| compiled objects on disk | importing `autofuse.load` ms | reading the plan ms | first call ms |",
            "|---|---:|---:|---:|",
        ]
    for cache, found in small.loading_ms.items():
        said = {"empty": "none", "filled": "all"}[cache]
        lines.append(f"| {said} | " + " | ".join(number(found[e]) for e in ("import_ms", "read_ms", "first_ms")) + " |")
    return lines or ["Not measured."]


METHOD = """\
Each program of `datasets/workloads/` runs as it stands under NumPy and autofuse, and as follows under its peers.
**jax**: the same function over `jax.numpy` under `jit`; programs that write in place are written functionally.
**jax idiomatic**: with the ops of `jax.nn` and `jax.lax` where they have them.
**torch**: `torch.compile`, mode default, of the same function, which TorchDynamo translates from NumPy; four programs
that it cannot translate are written over tensors line by line. **torch idiomatic**: as a torch user writes it, with
torch's own ops, weights laid out as torch's modules keep them. **torch autotune**: mode "max-autotune", without
freezing, as weights are arguments here for everybody: Inductor then tries its C++ template on products of two
activations only. Programs without products are not run under it, since it changes no other code. Every graph is whole
(`fullgraph=True`), without gradients, and a recompilation while timing raises.
**numba**: loop nests under `njit(parallel=True)` without fastmath, for programs that are such loops.
**autofuse**: tuned in one process, loaded and timed in others.

Results fresh: each call's result is dropped before the next call, as in a loop, and each framework's own allocator
decides whether the next result meets warm memory or new pages. Memory reused: autofuse `plan(*args, out=...)`; Numba
fills the same arrays; JAX is given the last results back as donated arguments, which XLA overwrites; a graph compiled
by torch cannot have static outputs, so its results are copied to tensors that are arguments, by stores fused into its
kernels where Inductor can do that; `adam` there is torch's own fused kernel, in place and not compiled. NumPy is timed
so only where the program itself writes into its arguments.
Arguments are in each framework's own memory before timing; a call counts until its results are there
(`block_until_ready`). dtypes and thread counts are equal for all. Every variant's answer is checked against NumPy's
in every process before it is timed, with reused memory too where the arguments stay as they are."""


def heading(run: Record, rounds: int) -> list[str]:
    """Title, method, machine and command, from the run's own record."""
    machine, settings = run["machine"], run["settings"]
    versions: Mapping[str, str] = machine["versions"]
    return [
        "# autofuse beside NumPy, JAX, torch.compile and Numba",
        "",
        METHOD,
        "",
        f"Size {settings['size']}, seed {settings['seed']}, tuned with a budget of {settings['budget']:g} s. "
        "One round with no program in the compilers' caches on disk, for compile times only; then "
        f"{rounds} timing rounds, each a new process per program and variant, programs in random order and within one "
        f"its variants; in a process {settings['blocks']} blocks per column in random order, a block being one untimed "
        f"call and then calls for about {settings['block_seconds'] * 1e3:g} ms. Times are medians; intervals are 95 % "
        "bootstrap intervals over rounds and blocks. The noise floor is autofuse against itself, timed as two entries "
        "of the shuffle; a lead inside it counts for neither. The best other is chosen by the same times, which "
        "favours it.",
        "",
        f"Machine: {machine['model']}, {machine['cores']} cores, {settings['threads']} threads for every variant, "
        f"L1d {machine['l1d_bytes'] >> 10} KiB, L2 {machine['l2_bytes'] >> 10} KiB, L3 {machine['l3_bytes'] >> 20} MiB"
        f", {machine['memory_bytes'] >> 30} GiB, {machine['isa']}; {machine['system']}.",
        f"Software: {', '.join(f'{name} {version}' for name, version in versions.items())}; NumPy's BLAS "
        f"{machine['blas']}.",
        f"Command: `{run['command']}`, begun {run['begun']}, at commit {run['commit']}.",
    ]
