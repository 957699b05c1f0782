"""What compilers say of kernels, as data."""

import json

import pytest

from autofuse.cost_models.compiled import CompiledFacts, LaunchFacts, facts_from, facts_to_json
from autofuse.errors import MeasureError
from autofuse.strictjson import parse

TOLD = LaunchFacts(32, 192, 4096, 512, (0, 64, 128), 1610)
UNTOLD = LaunchFacts(40, 8, 16, 0)


def read(data):
    return facts_from(parse(json.dumps(data), MeasureError, "facts"))


@pytest.mark.parametrize("launches", [(), (TOLD,), (UNTOLD, TOLD), (LaunchFacts(0, 0, 0, 0, (), 0),)])
def test_they_are_read_as_they_were_written(launches):
    facts = CompiledFacts(launches)
    assert read(facts_to_json(facts)) == facts


def test_what_is_not_known_is_left_out():
    (data,) = facts_to_json(CompiledFacts((UNTOLD,)))
    assert data == {"registers": 40, "spill_bytes": 8, "private_bytes": 16, "shared_bytes": 0}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"registers": -1}, r"facts: \[0\]\.registers: must be an integer"),
        ({"spill_bytes": 1.5}, r"facts: \[0\]\.spill_bytes: must be an integer"),
        ({"vector_spills": [64, 192]}, r"vector_spills: must not add up to more than spill_bytes, 192; got 256"),
        ({"vector_spills": [192, 0]}, r"facts: \[0\]\.vector_spills: must not end with 0"),
        ({"vector_spills": None}, r"facts: \[0\]\.vector_spills: must be an array"),
        ({"code": 7}, "unknown key 'code'"),
    ],
)
def test_what_is_no_such_data_is_an_error_that_names_it(change, problem):
    (data,) = facts_to_json(CompiledFacts((TOLD,)))
    with pytest.raises(MeasureError, match=problem):
        read([data | change])


def test_a_field_that_is_missing():
    (data,) = facts_to_json(CompiledFacts((TOLD,)))
    del data["shared_bytes"]
    with pytest.raises(MeasureError, match="the key 'shared_bytes' is missing"):
        read([data])
