"""Prices of the candidate space: one per digest class, asked of the cost model in one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autofuse.cost_models.base import CostModel, KernelFacts
from autofuse.lower.tile import Dot, RowGroup, Space, Step, Store, TileProgram
from autofuse.search.prices.residual import ClassPrice
from autofuse.search.space.builder import Candidate


def class_prices(model: CostModel, candidates: Sequence[Candidate]) -> dict[str, ClassPrice]:
    """Price the digest classes of `candidates`; classes that share a program share its price.

    Outputs are taken to be reused memory: fresh pages cost every partition the same, as all write the same outputs.
    """
    programs = {candidate.digest: candidate.program for candidate in candidates}
    distinct = {id(program): program for program in programs.values()}
    prices = model.price([KernelFacts(program) for program in distinct.values()])
    found = {
        key: ClassPrice(float(us), bound, float(floor), float(sigma))
        for key, us, bound, floor, sigma in zip(
            distinct, prices.us, prices.bound, prices.floor_us, prices.sigma, strict=True
        )
    }
    return {digest: found[id(program)] for digest, program in programs.items()}


def bare_prices(model: CostModel, left_out: Mapping[str, tuple[Candidate, Sequence[int]]]) -> dict[str, float]:
    """By digest, the price of a class whose outputs of these numbers are not written; absent where that is not known.

    What they cost is not what writing them takes: a kernel bound by its computations hides it.
    """
    keys = {digest: (id(candidate.program), tuple(numbers)) for digest, (candidate, numbers) in left_out.items()}
    distinct = {keys[digest]: entry for digest, entry in left_out.items()}
    bare = {key: _without(candidate, numbers) for key, (candidate, numbers) in distinct.items()}
    known = {key: program for key, program in bare.items() if program is not None}
    prices = model.price([KernelFacts(program) for program in known.values()])
    found = {key: float(us) for key, us in zip(known, prices.us, strict=True)}
    return {digest: found[key] for digest, key in keys.items() if key in found}


def _without(candidate: Candidate, numbers: Sequence[int]) -> TileProgram | None:
    """The program less some of its outputs; None if a product makes one of them."""
    program = candidate.program
    if not isinstance(program, TileProgram):
        return None
    outputs = [buffer.name for buffer in program.buffers if buffer.space is Space.OUTPUT]
    gone = {outputs[number] for number in numbers}
    if any(isinstance(step, Dot) and step.out.buffer in gone for phase in program.phases() for step in phase.steps):
        return None
    launches = tuple(
        tuple(replace(phase, steps=tuple(_step_without(step, gone) for step in phase.steps)) for phase in launch)
        for launch in program.launches
    )
    return replace(program, buffers=tuple(b for b in program.buffers if b.name not in gone), launches=launches)


def _step_without(step: Step, gone: set[str]) -> Step:
    if not isinstance(step, RowGroup):
        return step
    bodies = [tuple(s for s in stage.body if not (isinstance(s, Store) and s.buffer in gone)) for stage in step.stages]
    return RowGroup(tuple(replace(stage, body=body) for stage, body in zip(step.stages, bodies, strict=True)))
