from __future__ import annotations

import io

import pytest

from pgque_exporter.terminal import (
    Cell,
    Column,
    Paint,
    count,
    duration,
    printable,
    rate,
    shorten,
    supports_colour,
    table,
    width,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"), (0, "0s"), (0.04, "0s"), (0.26, "0.3s"), (2.1, "2.1s"), (2.04, "2s"), (59.94, "59.9s"),
        (59.96, "1m"), (72, "1m12s"), (3599.4, "59m59s"), (3599.6, "1h"), (4980, "1h23m"), (86340, "23h59m"),
        (86400, "1d"), (266400, "3d2h"), (-3, "-3s"),
    ],
)  # fmt: skip
def test_durations_have_two_units_at_most(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_numbers() -> None:
    assert [count(number) for number in (None, 0, 999, 1234567)] == ["-", "0", "999", "1,234,567"]
    assert [rate(number) for number in (None, 0, 0.01, 0.5, 9.94, 9.96, 1500.4)] == [
        "-", "0/s", "<0.1/s", "0.5/s", "9.9/s", "10/s", "1,500/s",
    ]  # fmt: skip


def test_nothing_that_a_terminal_obeys_passes() -> None:
    text = "a\x1b[2Jb\r\n\tc\x9bd\u202ee\u2028f\ud800"
    shown = printable(text)
    assert shown == "a\\x1b[2Jb\\r\\n\\tc\\x9bd\\u202ee\\u2028f\\ud800"
    assert printable("Zahlungen für Köln, 支払い, 📦") == "Zahlungen für Köln, 支払い, 📦"


def test_widths_are_those_of_a_terminal() -> None:
    assert [width(text) for text in ("abc", "für", "fu\u0308r", "支払い", "📦")] == [3, 3, 3, 6, 2]
    assert shorten("支払い", 6) == "支払い"
    assert shorten("支払い", 5) == "支払…"
    assert shorten("支払い", 4) == "支…"


def test_columns_line_up_whatever_is_in_them() -> None:
    columns = (Column("NAME"), Column("N", right=True), Column("STATE"))
    rows = [
        [Cell("a"), Cell("1"), Cell("ok", "ok")],
        [Cell("支払い"), Cell("1,000"), Cell("critical", "critical")],
    ]
    assert table(columns, rows, Paint(False)) == [
        "  NAME        N  STATE",
        "  a           1  ok",
        "  支払い  1,000  critical",
    ]
    assert table(columns, rows, Paint(True))[1] == "  a           1  \x1b[32mok\x1b[0m"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_that_want_them() -> None:
    assert supports_colour(Terminal(), {})
    assert not supports_colour(io.StringIO(), {})
    assert not supports_colour(Terminal(), {"NO_COLOR": "1"})
    assert not supports_colour(Terminal(), {"TERM": "dumb"})
