"""The written report of rules against search: Markdown from figures."""

from __future__ import annotations

from collections.abc import Sequence

from cells import MEASURED, SCHEDULES, SENSELESS, variant
from interleaved import Ratio
from journal import Record
from rivals_figures import Row, against, best_rules, marked, mean, verdicts
from rivals_settings import Study
from standings import NEITHER, OURS, THEIRS, Standing

METHOD = """\
Every policy fuses for one code generator, and every plan gets the same number of measurements, in which its kernels are
measured and their schedules tuned. Plans of a program share their measurements: a kernel under a schedule is measured
once, counts for every plan that asks for it, and is as fast for one as for another. So a ratio compares ways to choose
kernels, not code generators: how the compilers themselves run these programs is another study. A plan is made in one
process and timed in others, all plans of a program in random interleaved blocks; answers are checked against NumPy in
every process. A plan's time is the fastest call of a block, since what else the machine does can only add to it; ratios
are of blocks. Plans of equal kernels, schedules and order are one plan and share their samples. `measured` is the
search alone: it has not seen what the rules make of a program, and their plans are not among those that it chooses from
in the end; `tune` is the same search with both, which is what `autofuse.tune` does; `tune, graph variants` is
`autofuse.tune(variants="auto")`, which also searches among ways to clean the program up, within the same budget.
Policies that choose the same kernels share one plan, and so do measuring searches among the same candidates: what they
have in common is not made twice, with other luck.

*Spaces*: `full` is all candidates; `rule-reachable` is what the kernels of all rules together are, each operation an
atom, with no others to choose. *Oracles*: the analytical model; the same corrected per bottleneck by the measured
kernels of the analytical and the unfused plan; measurements in a loop. *Schedules*: the tuned ones, or the same kernels
and lanes under default ones.

How faithful the rules are: of the pairs of an operation and its reader, `rule:xla-cpu` and `rule:inductor` fuse as the
real XLA:CPU and Inductor do as `rule-fidelity.md` says (XLA:CPU through its optimised HLO, Inductor through its
scheduler). `rule:xla`, `rule:xla-priority` and `rule:grappler` follow their sources and the published descriptions;
there was no GPU and no TensorFlow to hold them against, so what is said of them is said of these sources.

The fastest rule is chosen program by program by the same times, which favours it. Intervals of one program are 95 %
bootstrap intervals over processes and blocks, those of geometric means over programs. The noise floor of a program is
its measured plan against itself, timed as two entries of the shuffle."""


def render(rows: Sequence[Row], run: Record, study: Study) -> str:
    """The whole report."""
    parts = [*heading(run), ""]
    parts += ["## Targets", "", *targets(rows, study), ""]
    parts += ["## The space of choices", "", *factorial(rows, study), ""]
    parts += ["## Policies against the measured plan", "", *policies(rows, study), ""]
    parts += ["## By program", "", *programs(rows, study), ""]
    parts += ["## What parts of the search are worth", "", *ablations(rows, study), ""]
    parts += ["## Which programs are marked", "", *markings(rows, study), ""]
    faulty = [row for row in rows if row.faults]
    if faulty:
        parts += ["## What failed, and notes", ""]
        parts += [f"- `{row.program}`, {fault}" for row in faulty for fault in row.faults]
    return "\n".join(parts).rstrip() + "\n"


def heading(run: Record) -> list[str]:
    """Title, method, machine and command."""
    machine, settings = run["machine"], run["settings"]
    return [
        "# Rules against search",
        "",
        METHOD,
        "",
        f"Size {settings['size']}; {settings['max_trials']} measurements for every plan of a program alike, and "
        f"{settings['trials_per_operation']:g} more for every operation of it, within {settings['budget_s']:g} s; seed "
        f"{settings['tuning_seed']}; {settings['blocks']} blocks of about {settings['block_ms']:g} ms per plan and "
        "process.",
        f"Machine: {machine['model']}, {machine['cores']} cores, {machine['threads']} threads used by plans; "
        f"{machine['system']}; Python {machine['python']}, NumPy {machine['numpy']}.",
        f"Command: `{run['command']}`, begun {run['begun']}, at commit {run['commit']}.",
    ]


def targets(rows: Sequence[Row], study: Study) -> list[str]:
    """One line per target."""
    lines = ["| target | found | verdict |", "|---|---|---|"]
    for verdict in verdicts(rows, study):
        word = "not measured" if verdict.met is None else "**met**" if verdict.met else "**missed**"
        lines.append(f"| {verdict.target} | {verdict.found} | {word} |")
    noise = sorted(row.noise for row in rows if row.against)
    if noise:
        lines += ["", f"Noise floor: median {noise[len(noise) // 2]:.1%}, largest {noise[-1]:.1%}."]
    return lines


def factorial(rows: Sequence[Row], study: Study) -> list[str]:
    """Every cell under both kinds of schedules: the gain over the unfused plan under default schedules."""
    lines = [
        "Geometric means of the time of the unfused plan under default schedules over that of each cell: higher is "
        "faster. In brackets the interval over programs; `marked`: over the marked programs only.",
        "",
        "| choice | space | oracle | cell | default schedules | tuned schedules | tuned, marked |",
        "|---|---|---|---|---:|---:|---:|",
    ]
    for cell in (cell for cell in study.cells if not cell.off):
        gains = [_gain(rows, variant(cell.name, schedules)) for schedules in reversed(SCHEDULES)]
        gains.append(_gain(marked(rows), variant(cell.name, "tuned")))
        words = [cell.choice, cell.space, cell.oracle, f"`{cell.name}`", *gains]
        lines.append("| " + " | ".join(words) + " |")
    return [*lines, "", "Not run, as it makes no sense:", "", *(f"- {what}: {why}" for what, why in SENSELESS)]


def _gain(rows: Sequence[Row], name: str) -> str:
    return mean_text(mean([row.gain[name].value for row in rows if name in row.gain]))


def policies(rows: Sequence[Row], study: Study) -> list[str]:
    """Every other policy, schedules tuned, against the measured plan."""
    best = best_rules(rows, study)
    lines = [
        "Time of the other over time of the measured plan, both with tuned schedules: above 1 the measured one is "
        "faster.",
        "",
        "| against | geometric mean | marked programs | measured ahead | neither | other ahead |",
        "|---|---:|---:|---:|---:|---:|",
        _against(
            "**the fastest rule, program by program**",
            [standing for _, standing in best],
            [standing for row, standing in best if row.marks],
        ),
    ]
    for cell in study.cells:
        if cell.name != MEASURED and not cell.off:
            lines.append(_against(f"`{cell.name}`", against(rows, cell.name), against(marked(rows), cell.name)))
    return lines


def _against(name: str, found: Sequence[Standing], of_marked: Sequence[Standing]) -> str:
    means = [mean_text(mean([standing.over.value for standing in some])) for some in (found, of_marked)]
    counts = [str(sum(standing.ahead == who for standing in found)) for who in (OURS, NEITHER, THEIRS)]
    return "| " + " | ".join([name, *means, *counts]) + " |"


def programs(rows: Sequence[Row], study: Study) -> list[str]:
    """One line per program."""
    others = [*study.rules, "greedy", "analytical", "unfused"]
    lines = [
        "The measured plan's milliseconds, then the others over it, tuned schedules. An asterisk: a marked program.",
        "",
        f"| program | ms | fastest rule | {' | '.join(others)} | kernels: rule, measured | noise |",
        "|---|---:|---:|" + "---:|" * len(others) + "---:|---:|",
    ]
    for row in rows:
        best = row.best(study.rules)
        us = row.us.get(MEASURED)
        cells = [
            f"`{row.program}`{'*' if row.marks else ''}",
            "-" if us is None else f"{us / 1e3:.3g}",
            "-" if best is None else f"{best.text} {best.name}",
            *(f"{row.against[name].over.value:.2f}" if name in row.against else "-" for name in others),
            f"{row.kernels.get(best.name, '-') if best else '-'}, {row.kernels.get(MEASURED, '-')}",
            f"{row.noise:.1%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def ablations(rows: Sequence[Row], study: Study) -> list[str]:
    """The measuring search without one of its parts, against itself."""
    lines = [
        "Time without the part over time with it, tuned schedules, same budget: above 1 the part pays. A part may also "
        "cost, as measuring what it adds takes time from other kernels.",
        "",
        "| the measuring search | geometric mean | marked programs | slower | neither | faster | where it costs most |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for cell in (cell for cell in study.cells if cell.off):
        found = [(row.program, row.against[cell.name]) for row in rows if cell.name in row.against]
        worst = sorted(found, key=lambda pair: -pair[1].over.value)[:3]
        named = ", ".join(f"`{program}` {standing.over.value:.2f}" for program, standing in worst)
        standings = [standing for _, standing in found]
        line = _against(cell.name, standings, against(marked(rows), cell.name))
        lines.append(f"{line} {named or '-'} |")
    return lines


def markings(rows: Sequence[Row], study: Study) -> list[str]:
    """The rule, and what each program is marked for."""
    lines = [
        f"By the graph alone (`marks.py`): at least {study.joins} concatenation, or {study.shared} result of 4 KiB or "
        f"more with several users that is dear to repeat, or {study.folds} reductions or scans on one path, or "
        f"{study.small_kernels} operations whose results are below {study.small_bytes >> 10} KiB.",
        "",
    ]
    lines += [f"- `{row.program}`: {', '.join(row.marks) or 'not marked'}" for row in rows]
    return lines


def mean_text(value: Ratio | None) -> str:
    """A geometric mean with its interval."""
    return "-" if value is None else str(value)
