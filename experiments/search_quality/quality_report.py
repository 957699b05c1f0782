"""The written report of search quality: Markdown from figures."""

from __future__ import annotations

from collections.abc import Sequence

from journal import Record
from quality_figures import END, SUM, Point, Row, Searched, Verdict, curve, verdicts
from quality_settings import Study

METHOD = """\
Every program is small enough to be solved by force. All kernels that a partition of its space may have are measured
alone under the default schedule, in several processes and in another order in each: every class of candidates, and each
again without the outputs that it may leave out. A kernel's time is the fastest of its calls in a process, and of these
the median over the processes. All partitions are met and priced as the sum of their kernels. A partition is kernels
that can run in order, write every value that is needed once, and none that is not; it may compute atoms again, as often
as is said below. The exact solver chooses among the same kernels at the same prices, without that bound, which checks
that the bound hides nothing.

A search is held against the smallest of these sums, and end to end against the fastest of all plans that were timed:
the cheapest partitions by sum, and what each search chose. All plans run under default schedules, with lanes by the
same measured times, so that partitions are compared and nothing else; the measuring search (`measured`) looks for no
others either, since with tuned schedules another partition may rightly be better. A plan's time is the fastest call of
a block, since what else the machine does can only add to it, and of these the median over blocks and processes. It
makes its own measurements for every seed, from nothing, and is judged by those of the exhaustive run. The share of
classes that it measured counts the classes of the space; kernels of the unfused plan that are none of these are
measured besides. The fastest plan is chosen by the same times, which makes the others look further away.

A target counts as met where every program and seed is as near to the best as it says, or as near as the noise floor:
end to end that of the same plan timed twice, of sums the lower half of the 95 % interval over processes."""


def render(rows: Sequence[Row], searched: Sequence[Searched], run: Record, study: Study) -> str:
    """The whole report."""
    parts = [*heading(run), ""]
    parts += ["## Targets", "", *targets(verdicts(rows, study)), ""]
    parts += ["## Spaces, measured whole", "", *spaces(rows, study), ""]
    parts += ["## From the smallest sum of kernels", "", *gaps(rows, study, SUM), ""]
    parts += ["## From the fastest plan, end to end", "", *gaps(rows, study, END), ""]
    parts += ["## Quality against measurements", "", *points(curve(rows, study)), ""]
    parts += ["## The same search in another process", "", *sameness(rows), ""]
    parts += ["## Time of the search", "", *times(searched), ""]
    faulty = [row for row in rows if row.faults]
    if faulty:
        parts += ["## What failed", ""]
        parts += [f"- `{row.program}`, {fault}" for row in faulty for fault in row.faults]
    return "\n".join(parts).rstrip() + "\n"


def heading(run: Record) -> list[str]:
    """Title, method, machine and command."""
    machine, settings = run["machine"], run["settings"]
    rounds = settings["space_rounds"]
    processes = f"{rounds} process" if rounds == 1 else f"{rounds} processes"
    return [
        "# How near to the best does the search come?",
        "",
        METHOD,
        "",
        f"Size {settings['size']}; spaces measured by {processes}; enumeration stops after "
        f"{settings['most_partitions']:,} partitions; atoms may be computed {settings['repeats']} times in all beyond "
        f"the first; the {settings['top']} cheapest run end to end. "
        f"{settings['blocks']} interleaved blocks of about {settings['block_ms']:g} ms per plan and process; intervals "
        "are 95 % bootstrap intervals over processes and blocks.",
        f"Machine: {machine['model']}, {machine['cores']} cores, {machine['threads']} threads used by plans; "
        f"{machine['system']}; Python {machine['python']}, NumPy {machine['numpy']}.",
        f"Command: `{run['command']}`, begun {run['begun']}, at commit {run['commit']}.",
    ]


def targets(found: Sequence[Verdict]) -> list[str]:
    """One line per target and measure."""
    lines = [
        "| classes measured | from the best | by | runs within | furthest | verdict |",
        "|---|---|---|---:|---|---|",
    ]
    for verdict in found:
        word = "**met**" if verdict.met else "**missed**" if verdict.runs else "not measured"
        lines.append(
            f"| at most {verdict.share:.0%} | at most {verdict.gap:.0%} | {verdict.by} | "
            f"{verdict.within} of {verdict.wanted} | {verdict.worst} | {word} |"
        )
    return lines


def spaces(rows: Sequence[Row], study: Study) -> list[str]:
    """What was measured and enumerated."""
    lines = [
        f"Partitions with at most {study.repeats} repeated computations of atoms. Last column: how far what the exact "
        "solver chose is from the smallest sum.",
        "",
        "| program | nodes | atoms | candidates | classes | kernels measured | failed | partitions | seconds | "
        "smallest sum us | exact solver |",
        "|---|" + "---:|" * 10,
    ]
    for row in rows:
        space = row.space
        if space is None:
            lines.append(f"| `{row.program}` |" + " - |" * 10)
            continue
        count = f"{space.partitions:,}" if space.complete else f"more than {space.partitions:,}"
        lines.append(
            f"| `{row.program}` | {space.nodes} | {space.atoms} | {space.candidates} | {space.classes} | "
            f"{space.kernels} | {space.failed} | {count} | {space.seconds:.1f} | {space.best_us:.1f} | "
            f"{space.exact_gap:+.1%} |"
        )
    return lines


def gaps(rows: Sequence[Row], study: Study, by: str) -> list[str]:
    """Distance of every search's choice, by program; of the measuring one, the median over seeds at each target."""
    shares = study.target_shares
    names = [*study.policies, *(f"measured, {share:.0%}" for share in shares)]
    last = ["noise floor", "fastest"] if by == END else []
    lines = [
        "`measured, 30%`: the search that was allowed most of those that measured at most 30 % of the classes; median "
        "over seeds, the furthest in brackets.",
        "",
        f"| program | {' | '.join([*names, *last])} |",
        "|---|" + "---:|" * (len(names) + len(last)),
    ]
    for row in rows:
        cells = [_one(row, policy, by) for policy in study.policies]
        cells += [_seeds(row, share, by) for share in shares]
        if by == END:
            cells += ["-" if row.noise is None else f"{row.noise:.1%}", row.fastest or "-"]
        lines.append(f"| `{row.program}` | " + " | ".join(cells) + " |")
    return lines


def _one(row: Row, policy: str, by: str) -> str:
    choice = row.by_policy(policy)
    if choice is None:
        return "-"
    if by == SUM:
        return f"{choice.gap:+.1%}"
    if choice.over is None:
        return "-"
    over = choice.over
    return f"{over.value - 1.0:+.1%} [{over.low - 1.0:+.1%}, {over.high - 1.0:+.1%}]"


def _seeds(row: Row, share: float, by: str) -> str:
    distances = [distance for choice in row.within(share) if (distance := choice.distance(by)) is not None]
    if not distances:
        return "-"
    ordered = sorted(distances)
    return f"{ordered[len(ordered) // 2]:+.1%} ({ordered[-1]:+.1%})"


def points(found: Sequence[Point]) -> list[str]:
    """Quality by allowance, over programs and seeds."""
    if not found:
        return ["Not measured."]
    lines = [
        "Over all programs and seeds: median and middle half. Six tenths of the measurements that are allowed are for "
        "the search, the others for kernels of the plans that it is compared with in the end.",
        "",
        "| allowed, of the classes | runs | classes measured | from the smallest sum | furthest |",
        "|---:|---:|---|---|---:|",
    ]
    for point in found:
        low, middle, high = point.measured
        near, gap, far = point.gap
        lines.append(
            f"| {point.share:.0%} | {point.runs} | {middle:.0%} ({low:.0%} to {high:.0%}) | "
            f"{gap:+.1%} ({near:+.1%} to {far:+.1%}) | {point.worst:+.1%} |"
        )
    return lines


def sameness(rows: Sequence[Row]) -> list[str]:
    """Plans tuned twice from the same records."""
    found = [row for row in rows if row.same is not None]
    if not found:
        return ["Not measured."]
    equal = [row for row in found if row.same and row.same["equal"]]
    lines = [
        "Same seed, same count of measurements, same records, two processes: the plan files are to be equal byte for "
        "byte.",
        "",
        f"Equal: {len(equal)} of {len(found)}: {'**met**' if len(equal) == len(found) else '**missed**'}.",
    ]
    for row in found:
        if row.same and not row.same["equal"]:
            places = row.same["differs"]
            more = f" and {len(places) - 4} more" if len(places) > 4 else ""
            lines.append(f"- `{row.program}` differs in {', '.join(places[:4])}{more}")
    return lines


def times(found: Sequence[Searched]) -> list[str]:
    """Search time against the size of the graph."""
    if not found:
        return ["Not measured."]
    lines = [
        "`autofuse.compile` with the analytical model, tracing and cleaning up included, imports not: median, least, "
        "and most over processes. Cut off: sets from which enumeration did not go on because of a bound.",
        "",
        "| program | nodes | atoms | candidates | classes | cut off | kernels | seconds |",
        "|---|" + "---:|" * 7,
    ]
    for one in found:
        low, middle, high = one.seconds
        lines.append(
            f"| `{one.program}` | {one.nodes} | {one.atoms} | {one.candidates} | {one.classes} | {one.cut_off} | "
            f"{one.kernels} | {middle:.2f} ({low:.2f} to {high:.2f}) |"
        )
    return lines
