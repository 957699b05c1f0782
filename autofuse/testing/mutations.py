"""Plans changed at random, as a stranger's file might be: as text, as fields, schedules, constants, calls, graph lines.

A change is a pure function of the random generator, so that a seed names it.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

Json = Any
Rng = np.random.Generator
Mutate = Callable[[bytes, Rng], bytes]

_VALUES: tuple[Json, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 64, 255, 1 << 31, 1 << 63, 1 << 70, -(1 << 63), 0.5, 1e300, 1e-300),
    *(
        "",
        "x",
        "auto",
        "cpu",
        "cuda",
        "fast",
        "\x00",
        "\ud800",
        "../../etc/passwd",
        "a" * 5000,
        [],
        {},
        [[]],
        [0],
        {"x": 1},
    ),
)
DECISIONS: dict[str, tuple[Json, ...]] = {
    "lane": ("auto", "grid", "stream", "lane"),
    "vector_bits": (64, 100, 128, 256, 512, 1024, 2048, 1 << 40),
    "unroll": (0, 1, 2, 3, 4, 8, 16, 64, 100),
    "panel_rows": (0, 1, 7, 32, 64, 128, 1024, 100_000, 1 << 20),
    "dots": ("auto", "library", "generated", "blas"),
    "placement": ("scratch", "recompute", "registers"),
    "split": (0, 1, 2, 4, 7, 8, 32, 1000, 1 << 20),
    "stream_stores": (None, True, False, 1),
}
"""Values for the entries of a schedule: of the search, within their ranges, and beyond."""
WILD_SCHEDULE = {"panel_rows": 100_000, "split": 7, "vector_bits": 2048}
"""One that was once accepted for every kernel."""
_WORDS = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*|-?[0-9]+(?:\.[0-9]+)?")
_NAMES = re.compile(r"%[A-Za-z_][A-Za-z0-9_.]*")
_NUMBERS = re.compile(r"(?<![A-Za-z0-9_.%])-?[0-9]+(?:\.[0-9]+)?")
_OPS = re.compile(r"= ([a-z_]+)")
_TYPES = re.compile(r"\b(?:f|i|u|bf)[0-9]+\[[0-9,]*\]|\bbool\[[0-9,]*\]")


def as_text(text: bytes, rng: Rng) -> bytes:
    """Bytes changed, dropped, doubled, or words swapped."""
    data = bytearray(text)
    for _ in range(int(rng.integers(1, 4))):
        data = data or bytearray(b"{")
        at = int(rng.integers(len(data)))
        stop = min(len(data), at + int(rng.integers(1, 30)))
        match int(rng.integers(5)):
            case 0:
                data[at] = int(rng.integers(256))
            case 1:
                del data[at:stop]
            case 2:
                data[at:at] = data[at:stop]
            case 3:
                del data[int(rng.integers(len(data))) :]
            case _:
                data = bytearray(_words_swapped(bytes(data), rng))
    return bytes(data)


def _words_swapped(text: bytes, rng: Rng) -> bytes:
    words = list(_WORDS.finditer(text))
    if len(words) < 2:
        return text
    first, second = sorted((words[int(k)] for k in rng.choice(len(words), 2, replace=False)), key=re.Match.start)
    middle = text[first.end() : second.start()]
    return text[: first.start()] + second.group() + middle + first.group() + text[second.end() :]


def as_fields(text: bytes, rng: Rng) -> bytes:
    """A value of the JSON replaced, dropped, repeated, or two swapped."""
    plan = json.loads(text)
    for _ in range(int(rng.integers(1, 3))):
        places = list(_places(plan))
        holder, key = places[int(rng.integers(len(places)))]
        match int(rng.integers(4)):
            case 0:
                holder[key] = copy.deepcopy(_VALUES[int(rng.integers(len(_VALUES)))])
            case 1:
                del holder[key]
            case 2:
                other, at = places[int(rng.integers(len(places)))]
                holder[key], other[at] = copy.deepcopy(other[at]), copy.deepcopy(holder[key])
            case _:
                if isinstance(holder, list):
                    cast("list[Json]", holder).insert(int(rng.integers(len(holder) + 1)), copy.deepcopy(holder[key]))
                elif isinstance(holder[key], int):
                    holder[key] += int(rng.integers(-2, 3))
    return _dumped(plan)


def _places(value: Json) -> Iterator[tuple[Any, Any]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(cast("Any", members)):
        yield value, key
        yield from _places(inner)


def _dumped(plan: Json) -> bytes:
    return json.dumps(plan, ensure_ascii=True, indent=1).encode()


def as_schedules(text: bytes, rng: Rng) -> bytes:
    """Decisions of kernels' schedules."""
    plan = json.loads(text)
    if rng.random() < 0.1:
        for kernel in plan["kernels"]:
            kernel["schedule"] = dict(WILD_SCHEDULE)
        return _dumped(plan)
    for kernel in plan["kernels"]:
        for name, values in DECISIONS.items():
            if rng.random() < 0.2:
                kernel["schedule"][name] = values[int(rng.integers(len(values)))]
    return _dumped(plan)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the structure of a plan is to change."""

    plan: Json
    kernel: Json
    other: Json
    """A kernel too, perhaps the same."""
    rng: Rng

    def one_of(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]


def as_structure(text: bytes, rng: Rng) -> bytes:
    """Order, lanes, members and outputs of kernels, write-backs: each change keeps the types."""
    plan = json.loads(text)
    for _ in range(int(rng.integers(1, 3))):
        kernel, other = (plan["kernels"][int(rng.integers(len(plan["kernels"])))] for _ in range(2))
        changes = _CHANGES[:4] if kernel is other else _CHANGES
        changes[int(rng.integers(len(changes)))](_Place(plan, kernel, other, rng))
    return _dumped(plan)


def _reorder(at: _Place) -> None:
    """All kernels in any order, or one at another place."""
    order = at.plan["order"]
    if at.rng.random() < 0.3:
        at.rng.shuffle(order)
    else:
        order.insert(int(at.rng.integers(len(order))), order.pop(int(at.rng.integers(len(order)))))


def _relane(at: _Place) -> None:
    """Other lanes, so that other kernels run at the same time."""
    for launch in at.plan["order"]:
        launch[1] = int(at.rng.integers(4))


def _twin(at: _Place) -> None:
    """A kernel twice."""
    number = len(at.plan["kernels"])
    at.plan["order"].append([number, int(at.rng.integers(3))])
    at.plan["kernels"].append({**copy.deepcopy(at.kernel), "name": f"twin_{number}"})


def _lose(at: _Place) -> None:
    """A node, an output or a write-back less."""
    names = at.one_of(at.kernel["nodes"], at.kernel["outputs"], at.plan["writebacks"])
    if names:
        names.pop(int(at.rng.integers(len(names))))


def _share(at: _Place) -> None:
    """A node of one kernel in another too, which perhaps writes it."""
    if not at.other["nodes"]:  # the last one was lost
        return
    node = at.one_of(*at.other["nodes"])
    for key in at.one_of(("nodes",), ("nodes", "outputs")):
        if node not in at.kernel[key]:
            at.kernel[key].append(node)


def _trade(at: _Place) -> None:
    """Nodes or outputs of two kernels swapped, or write-backs in another order."""
    key = at.one_of("nodes", "outputs", "writebacks")
    if key == "writebacks":
        at.rng.shuffle(at.plan["writebacks"])
    else:
        at.kernel[key], at.other[key] = at.other[key], at.kernel[key]


def _merge(at: _Place) -> None:
    """One kernel of two, at the place of either."""
    for key in ("nodes", "outputs"):
        at.kernel[key] += [name for name in at.other[key] if name not in at.kernel[key]]
    plan = at.plan
    gone, kept = plan["kernels"].index(at.other), plan["kernels"].index(at.kernel)
    lost, takes = at.one_of((gone, None), (kept, gone))
    order = [launch for launch in plan["order"] if launch[0] != lost]
    order = [[kept, lane] if number == takes else [number, lane] for number, lane in order]
    plan["order"] = [[number - (number > gone), lane] for number, lane in order]
    del plan["kernels"][gone]


_CHANGES: tuple[Callable[[_Place], None], ...] = (_reorder, _relane, _twin, _lose, _share, _trade, _merge)
"""The first four do not need another kernel."""


def as_graph(text: bytes, rng: Rng) -> bytes:
    """Names, numbers, types and ops in the lines of the graph, whose digest is made right again."""
    plan = json.loads(text)
    lines: list[str] = plan["graph"]
    for _ in range(int(rng.integers(1, 3))):
        number = int(rng.integers(1, len(lines)))
        pattern = (_NAMES, _NAMES, _NUMBERS, _NUMBERS, _OPS, _TYPES)[int(rng.integers(6))]
        whole = "\n".join(lines)
        found = list(pattern.finditer(lines[number]))
        pool = list(pattern.finditer(whole))
        if not found or not pool:
            continue
        chosen = found[int(rng.integers(len(found)))]
        new = pool[int(rng.integers(len(pool)))].group()
        if pattern is _NUMBERS and rng.random() < 0.5:
            new = str(_INTERESTING[int(rng.integers(len(_INTERESTING)))])
        lines[number] = lines[number][: chosen.start()] + new + lines[number][chosen.end() :]
    if rng.random() < 0.4:
        _change_outputs(lines, rng)
    return with_digest(_dumped(plan))


_INTERESTING = (0, 1, 2, 3, -1, 7, 100, 1 << 20, 1 << 40, (1 << 63) - 1)


def _change_outputs(lines: list[str], rng: Rng) -> None:
    """Outputs swapped, repeated, or replaced by any value: an argument, a constant."""
    last = max(number for number, line in enumerate(lines) if line.strip().startswith("return"))
    names = _NAMES.findall(lines[last])
    everything = _NAMES.findall("\n".join(lines[:last]))
    for position in range(len(names)):
        if rng.random() < 0.5:
            pool = names if rng.random() < 0.5 else everything
            names[position] = pool[int(rng.integers(len(pool)))]
    lines[last] = lines[last].partition("return")[0] + "return " + ", ".join(names)


def with_digest(text: bytes) -> bytes:
    """The plan with the digest of the graph that it holds now, if that can be read: else as it is."""
    from autofuse.errors import AutofuseError
    from autofuse.ir import digest
    from autofuse.ir.text import parse_graph

    plan = json.loads(text)
    try:
        plan["graph_digest"] = digest.digest(parse_graph("\n".join(plan["graph"])))
    except (AutofuseError, MemoryError, RecursionError, TypeError, ValueError):
        return text
    return _dumped(plan)


_CALLS = (
    'numpy.linalg.inv[{"operand":0}]{}',
    'scipy.linalg.lu_solve[[{"operand":0},{"operand":0}],{"operand":0}]{}',
    'scipy.linalg.lu_solve[[{"operand":0},{"operand":1}],{"operand":1}]{}',
    'scipy.linalg.lu_solve[[{"operand":0},[123456789,-7,99,1000000,5]],{"operand":1}]{}',
    'numpy.linalg.solve[{"operand":0},{"operand":0}]{"overwrite_a":true}',
    'scipy.linalg.solve[{"operand":0},{"operand":0},false,true,true]{}',
    'scipy.linalg.inv[{"operand":0}]{"overwrite_a":true,"check_finite":false}',
    'numpy.percentile[{"operand":0},50]{"out":{"operand":0}}',
    'numpy.partition[{"operand":0},[99999999]]{}',
    'numpy.fft.irfft[{"operand":0}]{"n":1000000000000}',
    "scipy.linalg.hilbert[10000000]{}",
    'numpy.linalg.matrix_power[{"operand":0},-3]{}',
    'numpy.cov[{"operand":0}]{"ddof":1000000}',
    'numpy.linalg.inv[{"operand":-1}]{}',
    'numpy.linalg.qr[{"operand":0},"raw"]{}',
    'scipy.special.gammaln[{"operand":0}]{"out":{"operand":0}}',
    'scipy.special.gammaln[{"operand":0}]{}',
    'numpy.median[{"operand":0},null,{"operand":0}]{}',
    'numpy.lexsort[[{"operand":0},{"operand":0}]]{}',
    'scipy.linalg.expm[{"operand":0}]{}',
    'scipy.ndimage.gaussian_filter[{"operand":0},1e300]{}',
    'numpy.unwrap[{"operand":0}]{"period":0}',
    'numpy.linalg.svd[{"operand":0}]{"compute_uv":false}',
    'os.system["true"]{}',
    'numpy.load["/etc/passwd"]{}',
)
_TARGET = re.compile(r'call_target_name = "((?:[^"\\]|\\.)*)"')
_UNARY = re.compile(r"^(\s*)(%\S+) = [a-z_0-9]+ (%[^, ]+)(?: |)(?:\{[^}]*\} )?: (\S+)(.*)$")


def as_calls(text: bytes, rng: Rng) -> bytes:
    """A library call put in place of a node of one operand, or a call's own arguments changed."""
    plan = json.loads(text)
    lines: list[str] = plan["graph"]
    called = [number for number, line in enumerate(lines) if _TARGET.search(line)]
    if called and rng.random() < 0.6:
        number = called[int(rng.integers(len(called)))]
        found = _TARGET.search(lines[number])
        assert found is not None
        name = json.loads(f'"{found.group(1)}"')
        fresh = as_text(name.encode(), rng).decode(errors="replace") if rng.random() < 0.5 else _any_call(rng)
        lines[number] = lines[number].replace(found.group(0), f"call_target_name = {json.dumps(fresh)}")
    else:
        plain = [number for number, line in enumerate(lines) if _UNARY.match(line)]
        if plain:
            number = plain[int(rng.integers(len(plain)))]
            found = _UNARY.match(lines[number])
            assert found is not None
            indent, result, operand, type_, rest = found.groups()
            target = json.dumps(_any_call(rng))
            attributes = f"call_target_name = {target}, results = [{type_}]"
            lines[number] = f"{indent}{result} = custom_call {operand} {{{attributes}}} : {type_}{rest}"
    return with_digest(_dumped(plan))


def _any_call(rng: Rng) -> str:
    return _CALLS[int(rng.integers(len(_CALLS)))]


KINDS: dict[str, Mutate] = {
    "text": as_text,
    "fields": as_fields,
    "schedules": as_schedules,
    "structure": as_structure,
    "graph": as_graph,
    "calls": as_calls,
}
"""By name. Side files, caches and databases are changed as text is."""
