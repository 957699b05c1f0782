import copy
import json
import random
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from autofuse.errors import PlanError
from autofuse.ir.digest import digest
from autofuse.plan.codec import decode, encode, to_text
from autofuse.plan.document import Certificate, GraphVariant, PlanDocument
from autofuse.plan.verify import verify
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.testing.plans import example_plan

SMALL = example_plan(large=False)
TEXT = to_text(encode(SMALL), None)
DATA = json.loads(TEXT)


def refuses(data: object, message: str | None = None) -> None:
    with pytest.raises(PlanError, match=message):
        decode(json.dumps(data))


def edited(*path: str | int, value: Any) -> dict[str, Any]:
    """The plan's JSON with one value replaced."""
    data = copy.deepcopy(DATA)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return data


def same(a: PlanDocument, b: PlanDocument) -> bool:
    plain = [f.name for f in fields(PlanDocument) if f.name != "graph"]
    return all(getattr(a, name) == getattr(b, name) for name in plain) and digest(a.graph) == digest(b.graph)


def test_round_trip():
    assert same(decode(TEXT), SMALL)


def test_round_trip_with_constants_at_hand():
    large = example_plan()
    encoded = encode(large)
    assert len(encoded.constants) == 2
    text = to_text(encoded, None)
    assert same(decode(text, encoded.constants), large)
    with pytest.raises(PlanError):
        decode(text)


def test_round_trip_without_what_is_optional():
    bare = replace(
        SMALL,
        certificate=None,
        notes=(),
        kernels=tuple(replace(k, predicted_us=None, measured_us=None, bound=None) for k in SMALL.kernels),
    )
    assert same(decode(to_text(encode(bare), None)), bare)


def test_the_variant_of_a_graph_is_kept_with_its_origin():
    assert "variant" not in DATA
    assert SMALL.program_digest == SMALL.graph_digest
    varied = replace(SMALL, variant=GraphVariant("columns=joined", "ab" * 32))
    again = decode(to_text(encode(varied), None))
    assert same(again, varied)
    assert again.program_digest == "ab" * 32
    with pytest.raises(PlanError, match=r"variant\.origin: 'mine' is no digest"):
        verify(replace(SMALL, variant=GraphVariant("columns=joined", "mine")))


def test_text_is_the_same_every_time_and_one_line_holds_one_decision():
    assert to_text(encode(decode(TEXT)), None) == TEXT
    lines = [line.strip() for line in TEXT.splitlines()]
    assert '"name": "loop_exp",' in lines
    assert '"schedule": {"unroll": 8, "vector_bits": 256},' in lines
    assert '"order": [[0, 0], [2, 1], [1, 0]],' in lines
    assert any(line.startswith('"') and "exp" in line for line in lines[lines.index('"graph": [') :])


def test_certificate_says_what_it_may_and_additivity_is_derived():
    assert DATA["certificate"]["optimality"] == "optimal under these costs"
    assert DATA["certificate"]["additivity"] == 0.875
    assert {f.name for f in fields(Certificate)} | {"additivity"} == set(DATA["certificate"])


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            ("kernels", 1, "schedule", "unroll"),
            [8],
            r"schedule.unroll: schedule unroll=\[8\] is out of range: must be a number, a word or a bool",
        ),
        (("kernels", 1, "schedule", "unroll"), "8" * 99, r"kernels\[1\].schedule.unroll: "),
        (("kernels", 1, "schedule", "Speed"), 9, r"kernels\[1\].schedule.Speed: unknown schedule key 'Speed'"),
        (("kernels", 1, "schedule"), [], r"kernels\[1\].schedule: must be an object, got an array"),
        (("kernels", 0, "nodes", 1), "nothing", r"kernels\[0\].nodes\[1\]: the graph has no node 'nothing'"),
        (("kernels", 0, "name"), "rm -rf /", r"kernels\[0\].name"),
        (("kernels", 0, "digest"), "XYZ", r"kernels\[0\].digest: must be a string of the form"),
        (("kernels", 0, "measured_us"), "fast", r"kernels\[0\].measured_us: must be a number"),
        (("order", 0), [0], r"order\[0\]: must have 2 items, has 1"),
        (("order", 0, 1), 1 << 40, r"order\[0\]\[1\]: must be an integer"),
        (("order", 0), [0, 0, "alone"], r"order\[0\]\[2\]: must be 'apart', or not be there"),
        (("order", 0), [0, 0, "apart", 1], r"order\[0\]: has 4 items; at most 3"),
        (("starts",), "graph", "starts: must be one of 'each', got 'graph'"),
        (("identity", "cores"), 2.5, "identity.cores: must be an integer"),
        (("numerics",), "loose", "numerics: must be one of 'strict', 'fast', got 'loose'"),
        (("graph_digest",), "0" * 32, "graph_digest: is 0000.*the file was edited"),
        (("graph",), ["module {"], "graph: "),
        (("in_tree",), {"pickle": "gASV"}, "in_tree: "),
        (("format_version",), 2, "format version 2, this autofuse reads version 1; tune or compile again"),
        (("format",), "other", "is no fusion plan"),
        (("certificate", "k"), True, "certificate.k: must be a number"),
        (("constants",), {"file": "../x.npz"}, "constants: the key 'sha256' is missing"),
        (("variant",), {"choices": "columns=joined"}, "variant: the key 'origin' is missing"),
        (("variant",), {"choices": "", "origin": "no"}, r"variant\.origin: must be a string of the form"),
    ],
)
def test_each_defect_is_named_by_path(path, value, message):
    refuses(edited(*path, value=value), f"^plan: .*{message}")


def places(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every path into the data, except into the text of the graph."""
    yield path
    if path == ("graph",):
        return
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        yield from places(value, (*path, key))


WRONG: list[Any] = [None, True, -1, 0, 1.5, 10**30, "", "x", "\ud800", "a" * 5000, [], [[]], {}, {"x": 1}, [1, 2, 3]]


def survives(text: str | bytes) -> bool:
    """Whether decoding gives a plan that hangs together; anything but a PlanError passes through."""
    try:
        plan = decode(text)
    except PlanError:
        return False
    verify(plan)
    return True


@pytest.mark.parametrize("wrong", WRONG, ids=lambda value: repr(value)[:12])
def test_a_wrong_value_anywhere_is_one_plan_error(wrong):
    refused = 0
    for path in places(DATA):
        if path:
            refused += not survives(json.dumps(edited(*path, value=wrong)))
    assert refused > 20


def test_missing_and_unknown_keys_anywhere_are_refused():
    for path in places(DATA):
        inner = DATA
        for key in path:
            inner = inner[key]
        if not isinstance(inner, dict) or path[:1] in [("in_tree",), ("out_tree",)]:
            continue
        if "schedule" not in path:  # what can be decided is asked when the kernel is lowered
            refuses(edited(*path, value={**inner, "surprise": 1}) if path else {**inner, "surprise": 1})
        for key in inner:
            if "schedule" not in path and not (path == ("certificate",) and key in OPTIONAL):
                less = {k: v for k, v in inner.items() if k != key}
                refuses(edited(*path, value=less) if path else less, "is missing|is no fusion plan")


OPTIONAL = (
    "additivity",
    "rule",
    "rule_us",
    "refused",
    "dominated",
    "cut_off",
    "function_us",
    "timing",
    "headroom",
    "spent",
)
"""Of a certificate."""


def test_certificates_of_the_first_days_are_read():
    older = {key: value for key, value in DATA["certificate"].items() if key not in OPTIONAL}
    certificate = decode(json.dumps(edited("certificate", value=older))).certificate
    assert (certificate.rule, certificate.rule_us, certificate.refused, certificate.cut_off) == (None,) * 4
    assert certificate.seed == DATA["certificate"]["seed"]


def test_truncation_at_every_byte_is_refused():
    data = TEXT.encode()
    for length in range(len(data.rstrip())):
        with pytest.raises(PlanError):
            decode(data[:length])


def test_random_bytes_never_raise_anything_else():
    source = random.Random(11)
    data = TEXT.encode()
    for _ in range(1500):
        broken = bytearray(data)
        for _ in range(source.randint(1, 3)):
            position = source.randrange(len(broken))
            match source.randrange(3):
                case 0:
                    broken[position] = source.randrange(256)
                case 1:
                    del broken[position]
                case _:
                    broken[position:position] = bytes([source.choice(b'"{}[]:,-0e.\\%()<> \n')])
        survives(bytes(broken))


def test_edited_graphs_never_raise_anything_else():
    source = random.Random(12)
    tokens = sorted({token for line in DATA["graph"] for token in line.replace(",", " ").split()})
    for _ in range(1500):
        lines = list(DATA["graph"])
        number = source.randrange(len(lines))
        words = lines[number].split(" ")
        match source.randrange(4):
            case 0:
                words[source.randrange(len(words))] = source.choice([*tokens, "-1", "f32[99999999999999999999]", "("])
            case 1:
                source.shuffle(words)
            case 2:
                del words[source.randrange(len(words))]
            case _:
                lines.insert(source.randrange(len(lines)), source.choice(lines))
        lines[number] = " ".join(words)
        survives(json.dumps({**DATA, "graph": lines}))


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", "{}", '"plan"', "NaN", "1e999", "[" * 100_000, '{"a":' * 100_000, "\ufeff{}"),
        TEXT.replace('"name": "example"', '"name": "example", "name": "example"'),
        TEXT.replace('"measured_us": 1.5', '"measured_us": NaN'),
        TEXT.replace('"measured_us": 1.5', '"measured_us": 1e999'),
        TEXT.replace('"measured_us": 1.5', '"measured_us": ' + "9" * 5000),
        TEXT.replace('"out_tree": {"leaf": "array"}', '"out_tree": ' + '{"tuple": [' * 3000 + "]}" * 3000),
    ],
    ids=range(15),
)
def test_hostile_json_is_one_plan_error(text):
    assert not survives(text)


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(PlanError, match="not UTF-8"):
        decode(TEXT.encode("utf-16"))


def test_a_plan_that_does_not_hang_together_is_not_written():
    with pytest.raises(PlanError, match="order"):
        encode(replace(SMALL, order=()))


def test_schedules_round_trip():
    odd = cpu_schedule(lane="stream", placement="recompute", split=3)
    plan = replace(SMALL, kernels=(replace(SMALL.kernels[0], schedule=odd), *SMALL.kernels[1:]))
    assert decode(to_text(encode(plan), None)).kernels[0].schedule == odd
