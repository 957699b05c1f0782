"""Traced functions as programs that policies start from, and the arrays that they are measured with."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError
from autofuse.frontend.tracedprogram import Traced, is_array
from autofuse.ir import dtypes, tree
from autofuse.ir.devicearrays import is_device_array
from autofuse.ir.digest import digest
from autofuse.ir.graph import Value
from autofuse.ir.parts import as_complex, as_parts, complex_places, in_parts
from autofuse.ir.types import TensorType
from autofuse.passes.choices import DEFAULT, Choices, read_choices
from autofuse.passes.pipeline import Numerics, clean, finished
from autofuse.plan.document import PlanDocument
from autofuse.plan.verify import safe_name
from autofuse.report.dump import dump_graphs
from autofuse.search.plans.planning import Program
from autofuse.search.variants.variants import varied
from autofuse.targets.base import Target

AUTO = "auto"
"""For `variants=`: search among the ways to clean a program up."""


def traced_program(traced: Traced, choices: Choices = DEFAULT, numerics: Numerics = "strict") -> Program:
    """Clean up a traced function's graph."""
    cleaned = clean(traced.graph, numerics)
    program = Program(
        name=safe_name(traced.graph.name),
        graph=finished(cleaned),
        cleaned=cleaned,
        in_tree=traced.in_tree,
        out_tree=traced.out_tree,
        parameters=traced.parameters,
        writebacks=tuple(number for number, _ in traced.writebacks),
        contiguous=traced.contiguous,
        bounds=traced.bounds,
        notes=traced.notes,
        numerics=numerics,
        complex_inputs=complex_places(traced.graph.inputs),
        complex_outputs=complex_places(traced.graph.outputs),
    )
    if choices != DEFAULT:
        program = varied(program, choices)
    dump_graphs(traced.graph, program.graph)
    return program


def is_of(document: PlanDocument, program: Program) -> bool:
    """Whether a plan computes a program: its graph is the program's, or the variant of it that the plan says it is."""
    if document.variant is None:
        return document.graph_digest == digest(program.graph)
    try:
        choices = read_choices(document.variant.choices)
    except ArgumentError:  # choices of another version
        return False
    return document.graph_digest == digest(finished(clean(program.to_vary, program.numerics, choices)))


def program_of(document: PlanDocument) -> Program:
    """The program that a plan computes, without what was noted of how it does."""
    return Program(
        document.name,
        document.graph,
        document.in_tree,
        document.out_tree,
        document.parameters,
        document.writebacks,
        variant=document.variant,
        contiguous=document.contiguous,
        bounds=document.bounds,
        numerics=document.numerics,
        complex_inputs=document.complex_inputs,
        complex_outputs=document.complex_outputs,
    )


def fixed_choices(variants: str | Choices) -> Choices:
    """What a program is cleaned up with before anything is searched. Raises ArgumentError."""
    if isinstance(variants, Choices):
        return variants
    try:
        return DEFAULT if variants == AUTO else read_choices(variants)
    except ArgumentError as error:
        raise ArgumentError(f'variants={error}; or give "auto" or "default"') from None


def measuring_inputs(
    traced: Traced, inputs: str | os.PathLike[str] | None, seed: int, target: Target
) -> list[NDArray[Any]]:
    """Concrete arrays for the program's inputs: the caller's own, those of a file, or seeded random ones for specs.

    Complex numbers are given as their parts, as the program's cleaned-up graph takes them.
    `target`: where arrays of the caller's that are not NumPy's lie.
    """
    leaves, _ = tree.flatten(traced.values, is_array)
    names = [value.name for value in traced.graph.inputs]
    from autofuse.api.arrayfiles import read_arguments

    given = {} if inputs is None else read_arguments(inputs, names, f"inputs={os.fspath(inputs)!r}")
    rng = np.random.default_rng(seed)
    arrays: list[NDArray[Any]] = []
    for value, leaf in zip(traced.graph.inputs, leaves, strict=True):
        if value.name in given:
            array = np.asarray(given[value.name])
            if array.shape != value.type.shape or array.dtype != value.type.dtype.numpy:
                raise ArgumentError(f"inputs: {value.name} must be {value.type}, got {array.dtype}{list(array.shape)}")
        elif isinstance(leaf, np.ndarray | np.generic):
            array = np.asarray(leaf)
        elif is_device_array(leaf):
            array = target.arrays.fetched(leaf)
        else:
            array = _random_argument(value, rng)
        arrays.append(as_parts(np.ascontiguousarray(array).reshape(value.type.shape)))
    return arrays


def _random_argument(value: Value, rng: np.random.Generator) -> NDArray[Any]:
    """Data to measure with. Raises ArgumentError where there is no memory for them."""
    try:
        return random_array(value.type, rng)
    except MemoryError:
        need = f"{value.type.nbytes / 2**30:.4g} GiB"
        raise ArgumentError(
            f"{value.name}: {value.type} takes {need}, and twice that to make, which this machine cannot give; tuning"
            " needs the data: give a smaller spec, or compile without measuring"
        ) from None


def random_array(type_: TensorType, rng: np.random.Generator) -> NDArray[Any]:
    """Seeded data for a spec: standard normals, small non-negative integers, coin flips."""
    if type_.dtype.is_complex:
        return as_complex(random_array(in_parts(type_), rng))
    if type_.dtype.is_float:
        return rng.standard_normal(type_.shape).astype(type_.dtype.numpy)
    if type_.dtype == dtypes.BOOL:
        return rng.random(type_.shape) < 0.5
    return rng.integers(0, 8, type_.shape).astype(type_.dtype.numpy)
