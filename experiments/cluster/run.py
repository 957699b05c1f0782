"""How measuring scales with devices: python experiments/cluster/run.py.

Kernels of one program are measured on a local Dask cluster with so many simulated devices: each is built, run in the
shim, checked and timed by a worker of its own. A simulated device's clock is the model's; here its worker waits until
so much time has passed, as it would for a GPU (`paced.py`). In turns called `compiled`, all code was compiled before;
in those called `anew`, none was: then the host's compiler is what there is most to wait for, and it has no more cores
for more devices. The processes are started, and the program is prepared in them, before the time is taken. The numbers
of devices take turns. Writes cluster.jsonl (a record per turn, as soon as it is done) and cluster.md into --out. The
same command again does what is missing. Minutes.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

# What studies have in common, and what the workers find by its full name.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
sys.path.append(str(Path(__file__).resolve().parents[2]))

import numpy as np
from children import exit_code
from journal import Journal, Record
from provenance import ROOT, machine, open_run

from autofuse.fusion.atoms import AtomGraph
from autofuse.ir.digest import subgraph_digest
from autofuse.ir.graph import Graph
from autofuse.lower.schedule import Schedule
from autofuse.measurement.cluster.clusterbench import ClusterBench
from autofuse.measurement.cluster.connecting import leased
from autofuse.measurement.database import Database
from autofuse.measurement.kernelrecords import Trial
from autofuse.targets.base import find_target
from autofuse.testing.sketches import Sketch

BACKEND = "simulated"
RUNNERS = "experiments.cluster.paced"


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--devices", default="1,2", help="numbers of devices, separated by commas (default 1,2)")
    parser.add_argument("--kernels", type=int, default=48, help="measured in each turn (default 48)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each number of devices (default 3)")
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    options = parser.parse_args(argv)
    options.devices = [int(text) for text in options.devices.split(",")]
    return options


def program(kernels: int, number: int) -> Graph:
    """So many kernels that do alike work. `number`, below 2^30: makes them other code than those of another."""
    sketch = Sketch("alike")
    x = sketch.arg("f32[64,256]")
    factors = [2.0 + place + number / (1 << 30) for place in range(kernels)]
    products = [sketch.op("multiply", x, sketch.splat(f, x), name=f"product{n}") for n, f in enumerate(factors)]
    return sketch.finish([sketch.op("exp", product, name=f"exp{n}") for n, product in enumerate(products)])


def trials(graph: Graph) -> list[Trial]:
    """One for each output: the product and its exponential in one kernel."""
    atoms = AtomGraph(graph)
    found: list[Trial] = []
    for output in graph.outputs:
        wanted = {output.name, output.name.replace("exp", "product")}
        chosen = frozenset(atom for atom in atoms.atoms if {node.name for node in atom.nodes} & wanted)
        kernel = atoms.candidate(chosen, (output,))
        found.append(Trial(subgraph_digest(graph, kernel.nodes, kernel.outputs), kernel, Schedule()))
    return found


def measured(graph: Graph, devices: int) -> Record:
    """Measure all kernels on so many devices; seconds, and by whom."""
    target = find_target(BACKEND)
    inputs = [np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)]
    with (
        tempfile.TemporaryDirectory(prefix="autofuse-cluster-") as folder,
        leased(devices, target) as leases,
        Database(Path(folder, "records.db"), leases.identity) as base,
        ClusterBench(graph, inputs, base, leases, runners=RUNNERS) as bench,
    ):
        bench.ready()
        start = perf_counter()
        times = bench.kernels(trials(graph))
        seconds = perf_counter() - start
        shares = [record.measurement.message.partition(",")[0] for record in base.records()]
        noise = {name: round(one.noise, 3) for name, one in leases.introduced.items()}
    failed = [time.message for time in times if time.status != "ok"]
    if failed:
        raise SystemExit(f"a kernel failed: {failed[0]}")
    each = sorted(shares.count(name) for name in {*shares})
    return {"seconds": round(seconds, 3), "kernels": len(times), "each": each, "noise": sorted(noise.values())}


def study(options: argparse.Namespace) -> None:
    """All turns; the report is written even when it is interrupted."""
    journal = Journal(options.out / "cluster.jsonl", options.fresh)
    run = open_run(journal, {"kernels": options.kernels, "backend": BACKEND}, machine())
    try:
        for number in range(options.rounds):
            for devices in options.devices if number % 2 == 0 else options.devices[::-1]:
                if journal.latest(round=number, devices=devices, code="compiled") is None:
                    graph = program(options.kernels, secrets.randbelow(1 << 30))
                    for code in ("anew", "compiled"):
                        turn = {"round": number, "devices": devices, "code": code}
                        journal.append(turn | measured(graph, devices))
                        print(journal.records[-1], file=sys.stderr)
    finally:
        path = options.out / "cluster.md"
        path.write_text(render(run, [record for record in journal.records if "devices" in record]))
        print(f"wrote {path}, {journal.path}", file=sys.stderr)


def render(run: dict[str, Any], turns: Sequence[Record]) -> str:
    """The report."""
    rates: dict[tuple[str, int], list[float]] = {}
    for one in turns:
        rates.setdefault((one["code"], one["devices"]), []).append(one["kernels"] / one["seconds"])
    fewest = min((devices for _, devices in rates), default=1)
    rows = [
        f"| {code} | {devices} | {statistics.median(found):.2f} | {min(found):.2f}-{max(found):.2f} | {len(found)} | "
        f"{statistics.median(found) / statistics.median(rates[code, fewest]):.2f} |"
        for (code, devices), found in sorted(rates.items())
    ]
    here = run["machine"]
    return "\n".join(
        [
            "# Measuring on several devices",
            "",
            f"`{run['command']}`, begun {run['begun']}, commit {run['commit']}.",
            f"{here['model']}, {here['cores']} cores.",
            "",
            "Kernels that are run, checked and timed per second on a local Dask cluster of simulated devices. A device",
            "takes the time that the model says, and computes on the host's cores. Code was compiled before, or",
            "anew, by the host's compiler. No figure of a real GPU is claimed.",
            "",
            "| code | devices | kernels/s, median | range | turns | times the fewest |",
            "|---|---:|---:|---|---:|---:|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(exit_code(lambda: study(parse())))
