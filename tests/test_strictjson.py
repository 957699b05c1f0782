import re
import sys

import pytest

from autofuse.errors import PlanError
from autofuse.strictjson import MAX_DEPTH, Item, parse


def read(text: str | bytes) -> Item:
    return parse(text, PlanError, "file")


def test_plain_json_is_read():
    item = read('{"a": [1, 2.5, "x", null]}')
    one, half, text, nothing = item.fields(["a"])["a"].items(at_most=5)
    assert (one.integer(0, 5), half.number(), text.text(), nothing.maybe(Item.text)) == (1, 2.5, "x", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("{}{}", "not JSON"),
        (b"\xff{}", r"not UTF-8 text \(byte 0\)"),
        ('{"a": 1, "a": 2}', "the key 'a' stands twice"),
        ("NaN", "NaN is not finite"),
        ("[Infinity]", "Infinity is not finite"),
        ("1e999", "1e999 is not finite"),
        ("-1e999", "-1e999 is not finite"),
        ("1" * 2000, "more than 1000 digits"),
        ("[" * 100_000, "nested more than"),
        ("[" * 100_000 + "]" * 100_000, "nested more than"),
        ('{"a":' * 100_000, "nested more than"),
    ],
)
def test_anything_else_is_refused(text, message):
    with pytest.raises(PlanError, match=f"^file: .*{message}"):
        read(text)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '["]]]]",' * 100_000, '["\\"]", ' * 100_000])
def test_depth_is_limited_where_python_is_told_to_recurse_far(text):
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(60_000)
    try:
        with pytest.raises(PlanError, match="nested more than"):
            read(text)
        assert read('["[[{{\\"[", [], {"{": "["}]').items(9)[0].text() == '[[{{"['
    finally:
        sys.setrecursionlimit(before)


def test_depth_is_limited_exactly():
    read("[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1))
    with pytest.raises(PlanError, match="nested"):
        read("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda i: i.fields(["missing"]), "file: the key 'missing' is missing"),
        (lambda i: i.fields(["list"]), "file: unknown key"),
        (lambda i: i.members(0), "file: has 3 members"),
        (lambda i: i.items(9), "file: must be an array, got an object"),
        (lambda i: i.members(9)["list"].items(1), "file: list: has 2 items"),
        (lambda i: i.members(9)["list"].items(9, exactly=3), "file: list: must have 3 items"),
        (lambda i: i.members(9)["list"].items(9)[1].integer(0, 9), r"file: list\[1\]: must be an integer .* got 'x'"),
        (lambda i: i.members(9)["yes"].integer(0, 9), "file: yes: must be an integer in 0..9, got True"),
        (lambda i: i.members(9)["yes"].number(), "file: yes: must be a number"),
        (lambda i: i.members(9)["list"].text(), "file: list: must be a string, got an array"),
        (lambda i: i.members(9)["name"].text(2), "file: name: has 3 characters"),
        (lambda i: i.members(9)["name"].text(9, re.compile("[0-9]+")), "file: name: must be a string of the form"),
        (lambda i: i.members(9)["name"].choice("x", "y"), "file: name: must be one of 'x', 'y', got 'abc'"),
    ],
)
def test_checks_name_the_path(check, message):
    with pytest.raises(PlanError, match=message):
        check(read('{"list": [1, "x"], "yes": true, "name": "abc"}'))


def test_half_a_surrogate_pair_is_no_text():
    with pytest.raises(PlanError, match="surrogate"):
        read('"\\ud800"').text()
