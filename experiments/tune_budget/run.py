"""Whether tuning keeps its budget: python experiments/tune_budget/run.py [--before CHECKOUT] [--quick].

Each program is tuned with each budget in a process of its own, by this checkout and by another one in turn, and timed
from the call of `tune` to its return; then the plans run against each other. Writes tune-budget.jsonl, tune-budget.md
into --out; the same command again does what is missing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code, in_child, tell
from journal import Journal, Record
from provenance import ROOT, machine, open_run

CHILD = Path(__file__).resolve().parent / "child.py"
PROGRAMS = {
    "cartpole_step": "small",
    "softmax": "full",
    "mlp_chain": "full",
    "lstm_sequence": "full",
    "bert_layer": "full",
}
"""Each with its size: calls of a microsecond, memory, products, an unrolled loop, and a layer of BERT."""
LONG_S, LONG = 60.0, ("softmax", "bert_layer")
"""A budget that only these programs are tuned with."""
_GRACE_S = 120.0
_BLOCKS = 15


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--before", type=Path, help="checkout to compare with")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="separated by commas (default %(default)s)")
    parser.add_argument("--budgets", default="5,10,20,60", help="seconds, separated by commas (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one small program with a budget of two seconds")
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    options = parser.parse_args(argv)
    if options.quick:
        options.programs, options.budgets = "cartpole_step", "2"
    return options


def study(options: argparse.Namespace) -> None:
    """All of it; the report is written even when it is interrupted."""
    options.out.mkdir(parents=True, exist_ok=True)
    journal = Journal(options.out / "tune-budget.jsonl", options.fresh)
    run = open_run(journal, {"blocks": _BLOCKS}, machine())
    checkouts = {"now": ROOT}
    if options.before is not None:
        checkouts = {"before": options.before.resolve(), "now": ROOT}
    try:
        for budget in map(float, options.budgets.split(",")):
            for name in options.programs.split(","):
                if budget < LONG_S or name in LONG:
                    _compare(journal, {"program": name, "size": PROGRAMS[name], "budget": budget}, checkouts)
    finally:
        path = options.out / "tune-budget.md"
        path.write_text(render(run, journal))
        print(f"wrote {path}, {journal.path}", file=sys.stderr)


def _compare(journal: Journal, task: Record, checkouts: dict[str, Path]) -> None:
    """Tune with each checkout, and time the plans against each other; all of it, or nothing is recorded."""
    if journal.latest(kind="tune", way="now", **task) is not None:
        return
    with tempfile.TemporaryDirectory() as folder:
        plans = {way: str(Path(folder) / f"{way}.json") for way in checkouts}
        found: dict[str, Record] = {}
        for way, checkout in checkouts.items():
            found[way] = _in(checkout, folder, {**task, "step": "tune", "plan": plans[way]}, task["budget"])
            tell(f"{task['program']} {task['budget']:g} s {way}", found[way])
        race: Record = {}
        if len(plans) > 1 and all(outcome["status"] == "ok" for outcome in found.values()):
            race = _in(ROOT, folder, {**task, "step": "race", "plans": plans, "blocks": _BLOCKS}, 0.0)
            tell(f"{task['program']} {task['budget']:g} s, the plans in turns", race)
    for way, outcome in found.items():
        journal.append({"kind": "tune", **task, "way": way, **outcome, "us": race.get("us", {}).get(way)})


def _in(checkout: Path, cache: str, task: Record, seconds: float) -> Record:
    """A task in a process of that checkout, with a cache of its own."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "XDG_CACHE_HOME": f"{cache}/{checkout.name}"}
    return in_child(CHILD, task, seconds + _GRACE_S, environment)


def render(run: Record, journal: Journal) -> str:
    """The report."""
    rows = [
        "| program | budget (s) | before (s) | of the budget | now (s) | of the budget | kernels, schedules measured "
        "before | now | time of the plan, now / before |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    records = [record for record in journal.records if record.get("kind") == "tune"]
    worst: dict[str, float] = {}
    for now in sorted((r for r in records if r["way"] == "now"), key=lambda r: (r["budget"], r["program"])):
        before = next(
            (r for r in records if r["way"] == "before" and _task(r) == _task(now)), {"status": "missing", "error": "-"}
        )
        for record in (before, now):
            if record["status"] == "ok":
                share = record["seconds"] / record["budget"]
                worst[record["way"]] = max(worst.get(record["way"], 0.0), share)
        ratio = f"{now['us'] / before['us']:.2f}" if now.get("us") and before.get("us") else "-"
        cells = [*_taken(before), *_taken(now), _counts(before), _counts(now), ratio]
        rows.append(f"| {now['program']} | {now['budget']:g} | {' | '.join(cells)} |")
    most = "; ".join(f"{way} at most {share:.2f} of the budget" for way, share in worst.items())
    return "\n".join(
        (
            "# Does tuning keep its budget?",
            "",
            f"{run['machine']['model']} ({run['machine']['threads']} threads), {run['begun']}, commit {run['commit']}. "
            "`python experiments/tune_budget/run.py --before CHECKOUT` makes it again.",
            "",
            "Each program tuned once in a fresh process with an empty cache, from the call of `tune` to its return, "
            f"imports included: {most}. In the end the two plans ran in turns in one process.",
            "",
            *rows,
            "",
        )
    )


def _task(record: Record) -> tuple[str, float]:
    return record["program"], record["budget"]


def _taken(record: Record) -> tuple[str, str]:
    if record["status"] != "ok":
        return record["error"], "-"
    return f"{record['seconds']:.1f}", f"{record['seconds'] / record['budget']:.2f}"


def _counts(record: Record) -> str:
    return f"{record['measured']}, {record['schedules']}" if record["status"] == "ok" else "-"


if __name__ == "__main__":
    sys.exit(exit_code(lambda: study(parse())))
