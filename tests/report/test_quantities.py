"""Numbers, tables and near names."""

from __future__ import annotations

import pytest

from autofuse.report.quantities import bytes_text, microseconds, nearest, table


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0.0213, "0.021 us"),
        (3.14159, "3.14 us"),
        (99.96, "100 us"),
        (999.4, "999 us"),
        (999.6, "1.00 ms"),
        (12_345.0, "12.3 ms"),
        (2.5e6, "2.50 s"),
    ],
)
def test_times_have_three_digits(us: float, text: str) -> None:
    assert microseconds(us) == text


def test_sizes() -> None:
    assert [bytes_text(n) for n in (7, 2048, 5 << 20, 3 << 30)] == ["7 B", "2.0 KiB", "5.0 MiB", "3.0 GiB"]


def test_near_names() -> None:
    assert nearest("sofmax", ["softmax", "dense"]) == "; did you mean softmax?"
    assert nearest("zzz", ["b", "a"]) == "; there is a, b"
    assert nearest("zzz", []) == ""


def test_tables_align_numbers_to_the_right() -> None:
    assert table(("name", "us"), [("a", "1.0"), ("long", "12.0")]) == "name    us\na      1.0\nlong  12.0\n"
