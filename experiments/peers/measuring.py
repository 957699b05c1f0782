"""What the study measures, in which order, and what of it is there already.

Everything runs in processes of its own, and each record is on disk before the next measurement starts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from children import in_child, tell
from journal import Journal, Record
from provenance import commit, digest
from variants import AGAIN, AUTOFUSE, COLD, HERE, KEEPS_CACHE, applicable, code_digest, environment, framework

from autofuse.errors import ArgumentError
from autofuse.measurement.workloads import Workload

CHILD = HERE / "child.py"
LIMIT_S = 1200.0
"""No process takes longer."""
ROUND_LIMIT_S = 180.0
"""Nor does one that compiles and times one variant."""
LOADED = "bert_layer"
"""The program whose plan is loaded by the clock."""


def settings_of(options: argparse.Namespace) -> Record:
    """All that must be equal for records to be comparable."""
    return {
        "size": options.size,
        "seed": options.seed,
        "budget": options.budget,
        "blocks": options.blocks,
        "block_seconds": options.block_ms / 1e3,
        "threads": len(os.sched_getaffinity(0)),
    }


def list_frameworks(threads: int) -> Record:
    """What the catalogue task finds. Raises ArgumentError where it cannot run."""
    found = in_child(CHILD, {"kind": "catalogue"}, LIMIT_S, environment(threads))
    if found["status"] != "ok":
        raise ArgumentError(f"the frameworks cannot be listed: {found['error']}")
    return found


class Measurements:
    """The records of one run over some programs."""

    def __init__(
        self,
        journal: Journal,
        options: argparse.Namespace,
        programs: list[Workload],
        catalogue: Mapping[str, list[str]],
    ) -> None:
        """Nothing is measured yet."""
        self.journal = journal
        self.options = options
        self.programs = programs
        self.catalogue = catalogue
        self.settings = settings_of(options)

    def make_all(self) -> None:
        """Everything, in order; what holds is not made again."""
        self._once({"kind": "copies"}, {})
        for program in self.programs:
            self._once(key(program, "facts"), {"file": str(program.file)})
        for program in self.programs:
            self._tune(program)
        if not self.journal.latest(kind="round"):
            shutil.rmtree(self.options.work / "caches", ignore_errors=True)
        self._time_round(COLD)
        for index in range(1, self.options.rounds + 1):
            self._time_round(index)
            self._time_loading(index)

    def variants(self, program: Workload) -> list[str]:
        """Those that the program runs under."""
        facts = self.journal.latest(**key(program, "facts"))
        dots = bool(facts and facts.get("dots"))
        return applicable(program.name, self.catalogue, dots, self.options.variants)

    def _once(
        self, what: Record, task: Record, env: Mapping[str, str] | None = None, limit_s: float = LIMIT_S
    ) -> Record:
        """The record `what`: found where it is there and ok, else measured now."""
        known = self.journal.latest(**what)
        if known and known["status"] == "ok":
            return known
        job = {**what, **self.settings, **task}
        outcome = in_child(CHILD, job, limit_s, env or environment(self.settings["threads"]))
        record = what | {"commit": commit()} | outcome | ({"brief": True} if task.get("brief") else {})
        if record["status"] == "ok" and what["kind"] == "tune":
            record["digest"] = digest(Path(task["plan"]))
        self.journal.append(record)
        name = " ".join(str(what[entry]) for entry in ("kind", "program", "variant", "round", "cache") if entry in what)
        tell(name, {**record, "faults": {"fault": record["fault"]} if "fault" in record else {}})
        return record

    def _plan(self, program: Workload) -> Path:
        return self.options.work / f"{program.name}-{self.options.size}.json"

    def _caches(self, variant: str) -> Path:
        """Shared by programs: what a compiler makes once for all of them is not made, and counted, again."""
        return self.options.work / "caches" / f"{self.options.size}-{variant.replace(' ', '-')}"

    def _tune(self, program: Workload) -> None:
        if not {AUTOFUSE, AGAIN} & set(self.variants(program)):
            return
        what, path = tune_key(program), self._plan(program)
        known = self.journal.latest(**what)
        if known and known["status"] == "ok" and not (path.exists() and digest(path) == known["digest"]):
            self.journal.append(what | {"status": "failed", "error": f"{path} is no longer the plan that was recorded"})
        path.parent.mkdir(parents=True, exist_ok=True)
        self._once(what, {"file": str(program.file), "plan": str(path)})

    def _time_round(self, index: int) -> None:
        """One process for every program and variant: programs in random order, and within one its variants."""
        rng = np.random.default_rng([self.settings["seed"], index])
        for number in rng.permutation(len(self.programs)):
            program = self.programs[number]
            variants = self.variants(program)
            if index == COLD:
                variants = [variant for variant in variants if framework(variant) in KEEPS_CACHE]
            for position in rng.permutation(len(variants)):
                self._time_one(program, variants[position], index)

    def _time_one(self, program: Workload, variant: str, index: int) -> None:
        """One process. The cold round finds nothing of the program in the compilers' caches on disk, the others all."""
        side = framework(variant)
        what = key(program, "round") | {"variant": variant, "round": index, "code": code_digest(side)}
        task: Record = {"file": str(program.file), "cold": index == COLD}
        if side == "autofuse":
            tuned = self.journal.latest(**tune_key(program))
            if tuned is None or tuned["status"] != "ok":
                return
            what["plan_digest"] = tuned["digest"]
            task["plan"] = str(self._plan(program))
        env = environment(self.settings["threads"], self._caches(variant))
        first = self.journal.latest(**{**what, "round": COLD})
        if not (first and first.get("brief")):
            made = self._once(what, task, env, ROUND_LIMIT_S)
            if made["status"] == "ok" or side == "autofuse":
                return
        # some compilers do not finish where results go to given memory: at least the other column is measured
        self._once(what, {**task, "brief": True}, env, ROUND_LIMIT_S)

    def _time_loading(self, index: int) -> None:
        """From a plan's file to the first result, without compiled objects on disk and then with them."""
        program = next((program for program in self.programs if program.name == LOADED), None)
        tuned = program and self.journal.latest(**tune_key(program))
        if program is None or not tuned or tuned["status"] != "ok" or AUTOFUSE not in self.variants(program):
            return
        with tempfile.TemporaryDirectory() as folder:
            env = environment(self.settings["threads"], extra={"AUTOFUSE_CACHE": folder})
            task = {"file": str(program.file), "plan": str(self._plan(program))}
            for cache in ("empty", "filled"):
                what = key(program, "load") | {"round": index, "cache": cache, "plan_digest": tuned["digest"]}
                self._once(what, task, env)


def key(program: Workload, kind: str) -> Record:
    """The key of one of a program's records."""
    return {"kind": kind, "program": program.name, "source": digest(program.file)}


def tune_key(program: Workload) -> Record:
    """The key of the record of its plan."""
    return key(program, "tune") | {"code": code_digest("autofuse")}
