"""Plans as JSON: encoding, and decoding that trusts nothing.

The text holds no code and no paths but the name of the side file. Any defect raises one PlanError that names the path
of the value: `kernels[3].schedule.unroll: must be ...`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from numpy.typing import NDArray

from autofuse.errors import AutofuseError, PlanError
from autofuse.ir import digest, graphtext, tree, verifier
from autofuse.ir.contracts import BoundsCheck
from autofuse.ir.graph import Graph
from autofuse.ir.oprecord import Role
from autofuse.ir.ops.calls import require_anywhere
from autofuse.ir.optable import role_of
from autofuse.ir.tree import Tree
from autofuse.lazydataclass import asdict, dataclass, fields
from autofuse.lower.schedule import Schedule
from autofuse.plan.constants import SideFile, side_file_from
from autofuse.plan.document import (
    FORMAT_VERSION,
    Certificate,
    GraphVariant,
    Launch,
    PlanDocument,
    PlannedKernel,
    RegionPlan,
)
from autofuse.plan.identity import identity_from, identity_to_json
from autofuse.plan.jsonlayout import render
from autofuse.plan.verify import (
    DIGEST,
    KIND,
    MAX_BOUNDS,
    MAX_BOUNDS_TEXT,
    MAX_EXTENT,
    MAX_GROUP_PLACES,
    MAX_KERNELS,
    MAX_NAME,
    MAX_NODES,
    MAX_REGIONS,
    verify,
)
from autofuse.strictjson import Item, parse
from autofuse.targets.registry import names, offered

FORMAT = "autofuse-plan"
_MAX_GRAPH_LINES = 4_000_000
_MAX_LINE = 1 << 20
_GRAPH_DEFECTS = (
    *(AutofuseError, ValueError, TypeError, LookupError, AttributeError),
    *(ArithmeticError, RecursionError, MemoryError),
)
"""What reading a hostile graph or tree may end in; each becomes a PlanError."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A plan as JSON data, and the large constants that stand beside it."""

    data: Mapping[str, Any]
    """Complete but for `constants`, which is null."""
    constants: Mapping[str, NDArray[Any]]
    """By the hash that the graph's text refers to."""


def encode(plan: PlanDocument) -> Encoded:
    """Plain data for a plan. Raises PlanError if the plan does not hang together (see `autofuse.plan.verify`)."""
    verify(plan)
    constants: dict[str, NDArray[Any]] = {}
    lines = graphtext.to_text(plan.graph, constants).rstrip("\n").split("\n")
    data: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "name": plan.name,
        "backend": plan.backend,
        "numerics": plan.numerics,
        "identity": identity_to_json(plan.identity),
        "parameters": list(plan.parameters),
        "in_tree": tree.to_json(plan.in_tree),
        "out_tree": tree.to_json(plan.out_tree),
        "writebacks": list(plan.writebacks),
        "certificate": None if plan.certificate is None else _certificate_to_json(plan.certificate),
        **_decided_to_json(plan),
        "constants": None,
        **({} if plan.variant is None else {"variant": asdict(plan.variant)}),
        **({"contiguous": list(plan.contiguous)} if plan.contiguous else {}),
        **({"bounds": [asdict(check) for check in plan.bounds]} if plan.bounds else {}),
        **({"complex_inputs": list(plan.complex_inputs)} if plan.complex_inputs else {}),
        **({"complex_outputs": list(plan.complex_outputs)} if plan.complex_outputs else {}),
        **({} if plan.replayed else {"starts": _EACH}),
        "graph_digest": plan.graph_digest,
        "graph": lines,
    }
    return Encoded(data, constants)


def to_text(encoded: Encoded, side: SideFile | None) -> str:
    """The file's text: one line per decision, keys in a fixed order. Raises PlanError for numbers that JSON lacks."""
    try:
        return render({**encoded.data, "constants": None if side is None else side.to_json()}) + "\n"
    except ValueError as bad:
        raise PlanError(f"plan: holds a number that is not finite ({bad})") from bad


@dataclass(frozen=True, slots=True)
class Decisions:
    """What was decided about a program: a plan less the program itself. Fields as in `PlanDocument`."""

    numerics: Literal["strict", "fast"]
    kernels: tuple[PlannedKernel, ...]
    order: tuple[Launch, ...]
    notes: tuple[str, ...]
    variant: GraphVariant | None
    graph_digest: str


def decisions_to_json(plan: PlanDocument) -> dict[str, Any]:
    """The decisions of a plan as plain data; `decisions_from` reads them back."""
    variant = None if plan.variant is None else asdict(plan.variant)
    return {
        "numerics": plan.numerics,
        "graph_digest": plan.graph_digest,
        "variant": variant,
        **_decided_to_json(plan),
    }


def decisions_from(item: Item) -> Decisions:
    """Read `decisions_to_json` back; raises the item's error, with the path, for anything unfit."""
    keys = item.fields([f.name for f in fields(Decisions)])
    return Decisions(
        numerics="strict" if keys["numerics"].choice("strict", "fast") == "strict" else "fast",
        kernels=tuple(_kernel(kernel) for kernel in keys["kernels"].items(MAX_KERNELS)),
        order=tuple(_launch(launch) for launch in keys["order"].items(MAX_KERNELS)),
        notes=tuple(note.text(10_000) for note in keys["notes"].items(100_000)),
        variant=keys["variant"].maybe(_variant),
        graph_digest=keys["graph_digest"].text(128, DIGEST),
    )


def _decided_to_json(plan: PlanDocument) -> dict[str, Any]:
    return {
        "kernels": [_kernel_to_json(kernel) for kernel in plan.kernels],
        "order": _order_to_json(plan.order),
        "notes": list(plan.notes),
    }


def _kernel_to_json(kernel: PlannedKernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "kind": kernel.kind,
        "nodes": list(kernel.nodes),
        "outputs": list(kernel.outputs),
        "schedule": kernel.schedule.to_json(),
        "predicted_us": kernel.predicted_us,
        "measured_us": kernel.measured_us,
        "bound": kernel.bound,
        "digest": kernel.digest,
        **({"regions": [_region_to_json(region) for region in kernel.regions]} if kernel.regions else {}),
    }


def _region_to_json(region: RegionPlan) -> dict[str, Any]:
    return {"kernels": [_kernel_to_json(kernel) for kernel in region.kernels], "order": _order_to_json(region.order)}


def _order_to_json(order: tuple[Launch, ...]) -> list[list[int | str]]:
    return [[launch.kernel, launch.group_place, *([_APART] if launch.apart else [])] for launch in order]


def _certificate_to_json(certificate: Certificate) -> dict[str, Any]:
    return {**asdict(certificate), "additivity": certificate.additivity}


def decode(
    data: bytes | str,
    constants: Mapping[str, NDArray[Any]] | None = None,
    what: str = "plan",
    *,
    fetch: Callable[[SideFile], Mapping[str, NDArray[Any]]] | None = None,
) -> PlanDocument:
    """Read and check a plan.

    `constants`: large constants at hand, by hash. `fetch` reads the side file if the text names one; without it, the
    constants must be at hand. `what` names the text in messages. Raises PlanError, and nothing else, for any defect.
    """
    item = parse(data, PlanError, what)
    _check_version(item)
    keys = item.fields(_KEYS, optional=_OPTIONAL)
    side = keys["constants"].maybe(side_file_from)
    arrays = {**(constants or {}), **(fetch(side) if side is not None and fetch is not None else {})}
    plan = PlanDocument(
        name=keys["name"].text(MAX_NAME),
        backend=keys["backend"].choice(*names(), told=offered()),
        numerics="strict" if keys["numerics"].choice("strict", "fast") == "strict" else "fast",
        graph=_graph(keys["graph"], arrays),
        graph_digest=keys["graph_digest"].text(128, DIGEST),
        in_tree=_tree(keys["in_tree"]),
        out_tree=_tree(keys["out_tree"]),
        parameters=tuple(p.text() for p in keys["parameters"].items(100_000)),
        writebacks=tuple(w.integer(0, MAX_NODES) for w in keys["writebacks"].items(100_000)),
        kernels=tuple(_kernel(kernel) for kernel in keys["kernels"].items(MAX_KERNELS)),
        order=tuple(_launch(launch) for launch in keys["order"].items(MAX_KERNELS)),
        identity=identity_from(keys["identity"]),
        certificate=keys["certificate"].maybe(_certificate),
        notes=tuple(note.text(10_000) for note in keys["notes"].items(100_000)),
        variant=_variant(keys["variant"]) if "variant" in keys else None,
        contiguous=_places(keys["contiguous"]) if "contiguous" in keys else (),
        complex_inputs=_places(keys["complex_inputs"]) if "complex_inputs" in keys else (),
        complex_outputs=_places(keys["complex_outputs"]) if "complex_outputs" in keys else (),
        bounds=tuple(_bounds_check(check) for check in keys["bounds"].items(MAX_BOUNDS)) if "bounds" in keys else (),
        replayed="starts" not in keys or keys["starts"].choice(_EACH) != _EACH,
    )
    found = _digest(plan.graph, keys["graph"])
    if found != plan.graph_digest:
        keys["graph_digest"].fail(f"is {plan.graph_digest:.24}..., the graph's is {found:.24}...; the file was edited")
    verify(plan)
    return plan


_KEYS = (
    *("format", "format_version", "name", "backend", "numerics", "identity", "parameters", "in_tree", "out_tree"),
    *("writebacks", "certificate", "kernels", "order", "notes", "constants", "graph_digest", "graph"),
)
_OPTIONAL = ("variant", "contiguous", "bounds", "complex_inputs", "complex_outputs", "starts")
_EACH = "each"
"""Kernels are started one by one in every call."""


def _check_version(item: Item) -> None:
    members = item.members(at_most=100)
    if "format" not in members or members["format"].value != FORMAT:
        item.fail(f'is no fusion plan: it lacks "format": "{FORMAT}"')
    if "format_version" not in members:
        item.fail("the key 'format_version' is missing")
    version = members["format_version"].integer(0, 1 << 30)
    if version != FORMAT_VERSION:
        item.fail(f"has format version {version}, this autofuse reads version {FORMAT_VERSION}; tune or compile again")


def _graph(item: Item, constants: Mapping[str, NDArray[Any]]) -> Graph:
    source = "\n".join(line.text(_MAX_LINE) for line in item.items(_MAX_GRAPH_LINES))
    try:
        graph = graphtext.parse_graph(source, constants)
        verifier.verify(graph)
        require_portable(graph)
        return graph
    except _GRAPH_DEFECTS as bad:
        item.fail(str(bad) or type(bad).__name__)


def require_portable(graph: Graph) -> None:
    """Raise GraphError if the graph calls a function that only the process which traced it may call."""
    for node in graph.nodes:
        if role_of(node) is Role.CALL:
            require_anywhere(node.attrs["call_target_name"])
        for region in node.regions:
            require_portable(region)


def _digest(graph: Graph, item: Item) -> str:
    try:
        return digest.digest(graph)
    except _GRAPH_DEFECTS as bad:
        item.fail(str(bad) or type(bad).__name__)


def _tree(item: Item) -> Tree:
    try:
        return tree.from_json(item.value)
    except _GRAPH_DEFECTS as bad:
        item.fail(str(bad) or type(bad).__name__)


def _kernel(item: Item) -> PlannedKernel:
    keys = item.fields([f.name for f in fields(PlannedKernel) if f.name != "regions"], optional=("regions",))
    return PlannedKernel(
        name=keys["name"].text(MAX_NAME),
        kind=keys["kind"].text(40, KIND),
        nodes=tuple(node.text() for node in keys["nodes"].items(MAX_NODES)),
        outputs=tuple(value.text() for value in keys["outputs"].items(MAX_NODES)),
        schedule=_schedule(keys["schedule"]),
        predicted_us=keys["predicted_us"].maybe(Item.number),
        measured_us=keys["measured_us"].maybe(Item.number),
        bound=keys["bound"].maybe(Item.text),
        digest=keys["digest"].text(128, DIGEST),
        regions=tuple(_region(region) for region in keys["regions"].items(MAX_REGIONS)) if "regions" in keys else (),
    )


def _region(item: Item) -> RegionPlan:
    keys = item.fields([f.name for f in fields(RegionPlan)])
    return RegionPlan(
        tuple(_kernel(kernel) for kernel in keys["kernels"].items(MAX_KERNELS)),
        tuple(_launch(launch) for launch in keys["order"].items(MAX_KERNELS)),
    )


def _schedule(item: Item) -> Schedule:
    for key, decision in item.members(at_most=100).items():
        try:
            Schedule.from_json({key: decision.value})
        except PlanError as bad:
            decision.fail(str(bad))
    return Schedule.from_json(item.value)


def _places(item: Item) -> tuple[int, ...]:
    return tuple(number.integer(0, MAX_NODES) for number in item.items(100_000))


def _bounds_check(item: Item) -> BoundsCheck:
    keys = item.fields([f.name for f in fields(BoundsCheck)])
    texts = (keys["where"].text(MAX_BOUNDS_TEXT), keys["what"].text(MAX_BOUNDS_TEXT))
    return BoundsCheck(*texts, keys["low"].integer(-MAX_EXTENT, 0), keys["high"].integer(0, MAX_EXTENT))


def _variant(item: Item) -> GraphVariant:
    keys = item.fields([f.name for f in fields(GraphVariant)])
    return GraphVariant(keys["choices"].text(1000), keys["origin"].text(128, DIGEST))


_APART = "apart"
"""Stands behind the place of a kernel that is started by itself."""


def _launch(item: Item) -> Launch:
    parts = item.items(at_most=3)
    apart = len(parts) == 3
    kernel, place = parts[:2] if apart else item.items(at_most=2, exactly=2)
    if apart and parts[2].text(20) != _APART:
        parts[2].fail(f"must be {_APART!r}, or not be there")
    return Launch(kernel.integer(0, MAX_KERNELS), place.integer(0, MAX_GROUP_PLACES - 1), apart)


_CERTIFICATE_READERS: dict[str, Callable[[Item], Any]] = {
    "str": lambda item: item.text(1000),
    "int": lambda item: item.integer(-(1 << 63), 1 << 64),
    "int | None": lambda item: item.maybe(lambda count: count.integer(0, 1 << 64)),
    "float | None": lambda item: item.maybe(Item.number),
    "str | None": lambda item: item.maybe(lambda name: name.text(1000)),
}
_LATER_KEYS = ("rule", "rule_us", "refused", "dominated", "cut_off", "function_us", "timing", "headroom", "spent")
"""Of certificates: files of this format's first days lack them."""


_FORMER_KEYS = {"physical_bound_us": "floor_bound_us", "words": "optimality"}
"""What keys of certificates were called, in files that lack the names of today."""


def _certificate(item: Item) -> Certificate:
    readers = {f.name: _CERTIFICATE_READERS[str(f.type)] for f in fields(Certificate)}
    former = {now: old for old, now in _FORMER_KEYS.items() if old in item.members(at_most=100)}
    required = [former.get(name, name) for name in readers if name not in _LATER_KEYS]
    keys = item.fields(required, optional=("additivity", *_LATER_KEYS))
    # additivity is written for readers; it is derived from the two times
    found = {name: former.get(name, name) for name in readers}
    return Certificate(**{name: readers[name](keys[key]) for name, key in found.items() if key in keys})
