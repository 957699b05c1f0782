"""`autofuse run`: load a plan, call it, and say what came out and how long it took."""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.api.arrayfiles import read_arguments
from autofuse.api.plan import Plan, load
from autofuse.api.verifying import faults_of, leaves_of
from autofuse.cli.arguments import add_arg_option, parse_arguments
from autofuse.cli.output import WRONG_ANSWER, print_json
from autofuse.cli.parser import count, seed
from autofuse.cli.streams import show
from autofuse.errors import ArgumentError
from autofuse.frontend.spec import Spec
from autofuse.ir import tree
from autofuse.ir.parameters import in_order, names_of
from autofuse.ir.parts import as_parts
from autofuse.ir.types import of_array
from autofuse.lazydataclass import replace
from autofuse.measurement.timer import TimingPolicy, measure, rest
from autofuse.report.quantities import microseconds, nearest

Array = NDArray[Any]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("plan", metavar="PLAN", help="a plan file")
    add_input_options(parser)
    parser.add_argument("--repeat", type=count, help="time this many calls instead of until the time is known to 2 %%")
    parser.add_argument("-o", "--output", type=Path, help=".npz file to write the results to")
    parser.add_argument("--check", action="store_true", help="compare with the interpreter; exit code 1 if wrong")
    parser.add_argument(
        "--on-mismatch",
        choices=("error", "run", "retune"),
        default="error",
        help="what to do with another machine's plan",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """The options that say what a plan is called with."""
    add_arg_option(parser)
    parser.add_argument("--inputs", type=Path, help=".npz with the arguments' values; what nothing gives is random")
    parser.add_argument("--seed", type=seed, default=0, help="seed of random arguments (default 0)")


def run(options: argparse.Namespace) -> int:
    """Run a plan."""
    plan = load(options.plan, on_mismatch=options.on_mismatch)
    values = values_of(plan, options)
    faults = faults_of(plan, values) if options.check else []
    outputs = leaves_of(plan.in_order(values))
    policy = TimingPolicy()
    if options.repeat:
        policy = TimingPolicy(0.0, options.repeat, options.repeat, 0.0, 1e9, 0.0)
    rest(plan.target)
    timing = measure(lambda: plan.in_order(values), policy, plan.target.clock)
    if options.output is not None:
        from autofuse.report.reproduction import save_arrays

        save_arrays(options.output, {f"out{number}": array for number, array in enumerate(outputs)})
    report = {
        "plan": options.plan,
        "name": plan.document.name,
        "kernels": len(plan.kernels),
        "outputs": [_statistics(array) for array in outputs],
        "call_us": timing.median_us,
        "fastest_us": min(timing.samples_us),
        "interval_us": [timing.low_us, timing.high_us],
        "samples": len(timing.samples_us),
        "copied_arguments": list(plan.copied_arguments),
        "checked": options.check,
        "faults": faults,
    }
    if options.json:
        print_json(report)
    else:
        show("\n".join(_lines(report)))
    return WRONG_ANSWER if faults else 0


def values_of(plan: Plan, options: argparse.Namespace) -> tuple[Any, ...]:
    """The values of a plan's parameters, in order: those given, else those of a file, else seeded random ones.

    Once arguments are given by position, the others have to be given too. Raises ArgumentError.
    """
    document = plan.document
    names = names_of(document.parameters)
    given, named = parse_arguments(options.arg)
    unknown = sorted(set(named) - set(names))
    if unknown:
        called = f"{document.name}({', '.join(document.parameters)})"
        raise ArgumentError(f"--arg {unknown[0]}: {called} has no such argument{nearest(unknown[0], names)}")
    rng = np.random.default_rng(options.seed)
    whole = _from_file(plan, options.inputs, rng)
    if given:
        values = in_order(document.parameters, given, named, document.name)
    else:
        values = [named[name] if name in named else whole(name) for name in names]
    return with_random(tuple(values), rng)


def _from_file(plan: Plan, inputs: Path | None, rng: np.random.Generator) -> Callable[[str], Any]:
    """Gives an argument by its name: what a file has of it, and random arrays."""
    document = plan.document
    arrays = [value.name for value in plan.graph.inputs]
    in_file = {} if inputs is None else read_arguments(inputs, arrays, f"--inputs {inputs}")
    children = document.in_tree.children if isinstance(document.in_tree, tree.Branch) else ()
    types = dict(zip(arrays, document.input_types, strict=True))
    inputs_left = iter(plan.graph.inputs)
    own = {
        name: (child, list(islice(inputs_left, tree.count_leaves(child))))
        for name, child in zip(names_of(document.parameters), children, strict=True)
    }

    def value(name: str) -> Any:
        child, leaves = own[name]
        if _has_digest(child):
            raise ArgumentError(f"{document.name}: the values of {name} are part of the plan; give it by --arg")
        found = [in_file[leaf.name] if leaf.name in in_file else _random(types[leaf.name], rng) for leaf in leaves]
        return tree.unflatten(_plain(child), found)

    return value


def _has_digest(structure: tree.Tree) -> bool:
    match structure:
        case tree.Static(tree.Digest()):
            return True
        case tree.Branch():
            return any(map(_has_digest, structure.children))
        case _:
            return False


def _plain(structure: tree.Tree) -> tree.Tree:
    """The structure with namedtuples for dataclasses, whose classes a plan does not hold; a call accepts both."""
    if not isinstance(structure, tree.Branch):
        return structure
    kind = "namedtuple" if structure.kind == "dataclass" else structure.kind
    return replace(structure, kind=kind, make=None, children=tuple(map(_plain, structure.children)))


def with_random(values: tuple[Any, ...], rng: np.random.Generator) -> tuple[Any, ...]:
    """The values, with random arrays for specs."""
    leaves, structure = tree.flatten(values, lambda leaf: isinstance(leaf, np.ndarray | np.generic | Spec))
    arrays = [_random(leaf.type, rng) if isinstance(leaf, Spec) else leaf for leaf in leaves]
    return tuple(tree.unflatten(structure, arrays))


def _random(type_: Any, rng: np.random.Generator) -> Array:
    from autofuse.api.programs import random_array  # imports the search, which other runs do without

    return random_array(type_, rng)


def _statistics(array: Array) -> dict[str, Any]:
    """Type, extremes, mean and checksum of the bytes; of complex numbers extremes and mean of all parts."""
    report: dict[str, Any] = {"type": str(of_array(array)), "crc32": f"{zlib.crc32(array.tobytes()):08x}"}
    array = as_parts(array)
    if array.size and array.dtype != np.bool_:
        wide = array.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        report["not_finite"] = int(wide.size - finite.size)
        if finite.size:
            report |= {"least": float(finite.min()), "greatest": float(finite.max()), "mean": float(finite.mean())}
    return report


def _lines(report: dict[str, Any]) -> Sequence[str]:
    lines = [f"{report['name']}: {report['kernels']} kernel{'s' * (report['kernels'] != 1)}"]
    for number, output in enumerate(report["outputs"]):
        values = [f"{key} {output[key]:.6g}" for key in ("least", "greatest", "mean") if key in output]
        if output.get("not_finite"):
            values.append(f"{output['not_finite']} not finite")
        lines.append(f"  output {number}: {output['type']}  {'  '.join([*values, 'crc32 ' + output['crc32']])}")
    low, high = report["interval_us"]
    lines.append(
        f"  {microseconds(report['call_us'])} per call (median of {report['samples']}, {microseconds(low)} to "
        f"{microseconds(high)}); the fastest {microseconds(report['fastest_us'])}"
    )
    if report["copied_arguments"]:
        lines.append(f"  copied to be contiguous: {', '.join(report['copied_arguments'])}")
    if report["checked"]:
        lines += [f"  WRONG: {fault}" for fault in report["faults"]] or ["  checked: agrees with the interpreter"]
    return lines
