"""The report's page from given facts: true sentences, whole HTML, nothing from outside, nothing injected."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from html.parser import HTMLParser

import pytest

from pgque_pipeline.report.charts.budget import FLOOR, budget_chart, down_to_floor
from pgque_pipeline.report.charts.frame import HEIGHT, TOP, linear, logarithmic, runs, seconds, time_ticks
from pgque_pipeline.report.charts.heat import SHADES, heat_map, shade
from pgque_pipeline.report.charts.outlook import outlook_chart
from pgque_pipeline.report.charts.series import flow_chart, lag_chart
from pgque_pipeline.report.charts.timeline import timeline
from pgque_pipeline.report.facts import Facts, Flow, Incidents, Week
from pgque_pipeline.report.findings import findings, headline
from pgque_pipeline.report.markup import element, text
from pgque_pipeline.report.page import page
from pgque_pipeline.report.words import (
    Clock,
    Names,
    brief_duration,
    counted,
    duration,
    listed,
    number,
    percent,
)
from tests.pipeline.report_facts import AS_OF, BEGIN, HOUR, facts

HOSTILE = "</title><script>alert(1)</script>\"'&<b onload=x>\u202egnp\x1b[31m" + "q" * 300
_VOID = {"meta", "br", "!doctype"}


class Reader(HTMLParser):
    """What a page holds; fails where an element isn't closed in turn."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    def values(self, name: str) -> list[str]:
        return [value or "" for _, key, value in self.attributes if key == name]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(given: Facts | None) -> Reader:
    return Reader(page(given))


def test_the_first_screen_says_what_needs_attention() -> None:
    given, clock = facts(), Clock("Europe/Berlin")
    assert headline(given) == (
        "1 of 2 promises broken; 2 incidents, 1 still going on; 1 consumer on the way to be blocked."
    )
    found = [
        (one.level, one.title, one.sentence.replace("\u00a0", " "))
        for one in findings(given, clock, Names(given.scope))
    ]
    assert [(level, title.replace("\u00a0", " ")) for level, title, _ in found] == [
        ("critical", "billing / ledger will be blocked in 5 h"),
        ("critical", "Promise broken: lag of billing / ledger"),
        ("warning", "consumer_lag of billing / ledger is going on"),
        ("warning", "consumer_lag of billing / ledger took 20 h"),
        ("warning", "17 dead letters wait to be looked at"),
        ("ok", "1 promise kept"),
    ]
    # 10:00 UTC is 12:00 in Berlin's summer.
    assert found[0][2] == (
        "If it goes on like this, its lag of 1 h passes the rotation period of 2 h on Mon 30 Mar, 17:00, "
        "in 4 h at the earliest, or not at all."
    )
    assert (
        found[1][2] == "95.0 % instead of 99 %: lag of at most a minute. It spent 5 times its error budget."
    )
    assert found[2][2] == "Warning since Mon 30 Mar, 11:00; that is 1 h."
    assert found[3][2] == "From Fri 6 Mar, 05:00 to Sat 7 Mar, 01:00, 10 h critical, 10 h of it unwatched."
    assert found[4][2] == "Most of one kind: 17 of billing, “no such <text>”."


def test_where_all_is_well_it_says_so() -> None:
    given = facts()
    well = replace(
        given,
        objectives=[replace(given.objectives[0], broken=0)],
        incidents=Incidents(),
        forecasts=[],
        growing=0,
        dead_letters=[],
    )
    assert headline(well) == "All 2 promises kept; no incident."
    [only] = findings(well, Clock("UTC"), Names(well.scope))
    assert (only.level, only.title) == ("ok", "All 2 promises kept")
    words = read(well).text
    assert "No check was warning or critical." in words
    assert "No lag of 1 consumer grows towards its rotation period." in words


def test_the_page_is_whole_and_asks_for_nothing() -> None:
    html = page(facts())
    found = Reader(html)
    assert not {"script", "link", "img", "iframe", "object", "form"} & found.tags.keys()
    assert not {name for _, name, _ in found.attributes if name.startswith("on") or name in ("src", "style")}
    assert [value for value in found.values("href") if not value.startswith("#")] == []
    assert re.findall(r"url\((?!#)|@import|https?://(?!www\.w3\.org/2000/svg)", html) == []
    ids = found.values("id")
    assert len(ids) == len(set(ids))
    assert {value[1:] for value in found.values("href")} <= {*ids}
    style = html.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in html.replace("&#x27;", "'")
    assert "default-src 'none'" in html.replace("&#x27;", "'")


def test_every_picture_has_words_and_a_table() -> None:
    html = page(facts())
    pictures = re.findall(r"<svg[^>]*role=\"img\".*?</svg>", html, re.DOTALL)
    assert len(pictures) == 6
    for one in pictures:
        assert re.search(r"<title>[^<]+</title><desc>[^<]+</desc>", one)
    assert html.count("<table>") == 8
    assert "<caption" not in html


def test_what_is_said_of_period_zone_and_gaps() -> None:
    words = read(facts()).text.replace("\u00a0", " ")
    assert "2 March 2026, 01:00 to 30 March 2026, 12:00" in words
    assert "Europe/Berlin" in words
    assert "1 gap of 10 h in all, in which nobody watched" in words
    assert "3 lines and points of the input could not be used." in words
    assert "17 dead letters of 1 kind" in words
    assert "Generated" not in words


def test_generated_data_are_called_so() -> None:
    assert "Generated. These data are generated" in read(facts(generated=True)).text


def test_names_are_text_whatever_they_hold() -> None:
    tame, hostile = read(facts("q" * 10, "c" * 10)), read(facts(HOSTILE, HOSTILE))
    assert hostile.tags == tame.tags
    assert Counter(name for _, name, _ in hostile.attributes) == Counter(
        name for _, name, _ in tame.attributes
    )
    assert "</title><script>alert(1)</script>" in hostile.text
    html = page(facts(HOSTILE, HOSTILE))
    assert not {char for char in html if char in "\u202e\x1b"}


def test_a_warehouse_without_points_makes_a_page_too() -> None:
    assert "There is nothing to report yet" in read(None).text


def test_sections_without_content_are_left_out_and_linked_to_from_nowhere() -> None:
    given = replace(facts(), dead_letters=[], refused_count=0, flows=[], lags=[], objectives=[], weeks=[])
    given = replace(given, unjudged=["health", "lag", "delivery"])
    found = read(given)
    assert not {"dead-letters", "quarantine", "flow", "lag", "promises"} & {*found.values("id")}
    assert {value[1:] for value in found.values("href")} <= {*found.values("id")}
    assert "There is no baseline yet" in found.text
    assert "Nothing in the data is about health, lag and delivery" in found.text


def test_what_is_left_out_is_counted() -> None:
    given = facts()
    many = replace(
        given,
        scope=replace(given.scope, database_count=1200),
        incidents=replace(given.incidents, count=5000, track_count=700),
        flow_count=3000,
        lag_count=4000,
        dead_letter_groups=90,
    )
    words = read(many).text
    assert "shop and 1,199 others" in words
    assert "4,998 other incidents not shown." in words
    assert "Shown: 1 check, those that were in trouble longest" in words
    assert "Shown: 1 queue of 3,000, those that send most." in words
    assert "89 other kinds not shown." in words
    assert "shop: billing / ledger" in words


# --- pictures ------------------------------------------------------------------------------------


def test_scales_keep_everything_within_the_picture() -> None:
    for values in ([0.0], [0.3], [7.0, 12.0], [1e9], [1e-9]):
        for scale in (linear(values), seconds(values), logarithmic(values)):
            places = [scale.place(value) for value in (*values, *scale.ticks)]
            assert min(places) >= TOP - 0.01
            assert max(places) <= HEIGHT - 24 + 0.01
            assert len(scale.ticks) <= 9
    assert linear([12.0]).ticks == [0, 5, 10, 15]
    assert seconds([5000.0]).ticks == [0, 1800, 3600, 5400]
    assert logarithmic([2.0, 7000.0]).ticks == [1, 10, 60, 600, 3600, 21600]


def test_days_of_the_axis_are_local_and_weeks_begin_on_mondays() -> None:
    clock = Clock("America/New_York")
    ticks = [*time_ticks(BEGIN, AS_OF, clock)]
    assert [words for _, words in ticks] == ["2 Mar", "9 Mar", "16 Mar", "23 Mar", "30 Mar"]
    assert all(clock.local(moment).hour == 0 for moment, _ in ticks)
    assert [words for _, words in time_ticks(AS_OF - 12 * HOUR, AS_OF, Clock("UTC"))] == [
        "30 Mar", "03:00", "06:00", "09:00",
    ]  # fmt: skip


def test_a_line_breaks_where_nothing_is_known() -> None:
    points = [(BEGIN + HOUR * index, 1.0) for index in (0, 1, 2, 5, 6, 20)]
    assert [len(run) for run in runs(points, gap=HOUR * 1.5)] == [3, 2, 1]
    entity = facts().flows[0].entity
    flow = Flow(entity, 1, [(moment, 1.0, None) for moment, _ in points])
    drawn = flow_chart("q", flow, BEGIN, BEGIN + HOUR * 24, Clock("UTC"))
    [area] = re.findall(r'class="area c1" d="([^"]+)"', drawn)
    assert area.count("M") == 2
    assert drawn.count("<circle") == 1
    assert "line c2" not in drawn  # nothing is known of what was acknowledged


def test_a_budget_that_is_overdrawn_ends_at_the_floor() -> None:
    points = [(BEGIN, 1.0), (BEGIN + HOUR, 0.0), (BEGIN + 2 * HOUR, -2.0), (BEGIN + 3 * HOUR, -3.0)]
    kept, when = down_to_floor(points)
    assert when == BEGIN + 1.5 * HOUR
    assert kept == [*points[:2], (when, FLOOR)]
    assert down_to_floor(points[:2]) == (points[:2], None)
    given = facts()
    drawn = budget_chart("b", given.objectives[0].worst, BEGIN, AS_OF, Clock("UTC"))
    assert drawn.count('class="mark') == 1
    assert drawn.count('class="line') == 2


def test_a_week_has_a_cell_for_each_hour() -> None:
    entity = facts().flows[0].entity
    drawn = heat_map("q", Week(entity, {0: 1.0, 100: 4.0}))
    assert drawn.count("<rect") == 168
    assert drawn.count('class="none"') == 166
    assert drawn.count(f"h{SHADES}") == 1
    assert "busiest on Fri at 04:00 with 4 events a second" in drawn
    assert (shade(0, 0), shade(0, 4), shade(4, 4)) == (0, 0, SHADES)
    assert "no hour has a baseline yet" in heat_map("q", Week(entity, {}))


def test_the_timeline_draws_turns_over_a_ground_of_not_knowing() -> None:
    given = facts()
    names = Names(given.scope)
    drawn = timeline(given.incidents.tracks, BEGIN, AS_OF, Clock("UTC"), names)
    assert drawn.count('class="none"') == 1
    states = re.findall(r'class="state (\w+)" x="([\d.]+)" width="([\d.]+)"', drawn)
    total = (AS_OF - BEGIN) / HOUR
    expected = {
        ("ok", 0.0, 100.0), ("ok", 120.0, total - 121), ("warning", total - 1, 1.0), ("critical", 100.0, 10.0)
    }  # fmt: skip
    drawn_hours = {(state, float(x) * total / 1000, float(wide) * total / 1000) for state, x, wide in states}
    for state, begin, length in expected:
        [match] = [one for one in drawn_hours if one[0] == state and one[1] == pytest.approx(begin, abs=0.1)]
        least = 3.0 * total / 1000 if state in ("warning", "critical") else 0.0
        assert match[2] == pytest.approx(max(length, least), abs=0.1)


def test_an_outlook_meets_the_period_when_it_says() -> None:
    given = facts()
    [one] = given.forecasts
    drawn = outlook_chart("q", one, Clock("UTC"))
    assert "passes the rotation period of 2\u00a0h in 5\u00a0h" in drawn
    assert drawn.count('class="area c2"') == 1
    [dot] = re.findall(r'class="dot c2" cx="([\d.]+)" cy="([\d.]+)"', drawn)
    [limit] = re.findall(r'class="limit"[^>]* y1="([\d.]+)"', drawn)
    assert dot[1] == limit
    for latest in (20_000.0, 900_000.0):
        assert 'class="area c2"' in outlook_chart("q", replace(one, latest=latest), Clock("UTC"))
    passed = outlook_chart("q", replace(one, left=0.0, lag=9000.0), Clock("UTC"))
    assert "dashed" not in passed
    assert lag_chart("q", given.lags[0], BEGIN, AS_OF, Clock("UTC")).count('class="limit"') == 1


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0 s"), (0.25, "250 ms"), (1.25, "1.2 s"), (35, "35 s"), (61, "1 min 1 s"), (3599.6, "1 h"),
        (3600, "1 h"), (17_700, "4 h 55 min"), (86_399, "1 d"), (183_300, "2 d 3 h"), (1e8, "1157 d 10 h"),
    ],
)  # fmt: skip
def test_durations(value: float, said: str) -> None:
    assert duration(value).replace("\u00a0", " ") == said


def test_numbers_shares_and_lists() -> None:
    assert [number(value) for value in (0, 0.004, 2.5, 12.4, 12_345, 2.3e6, 4e9)] == [
        "0", "0.004", "2.5", "12", "12,345", "2.3 million", "4.0 billion",
    ]  # fmt: skip
    shares = [
        percent(0.9914, 0.999),
        percent(0.95, 0.99),
        percent(1, 0.999),
        percent(0.99999, 0.999),
        percent(1 - 1e-9, 0.9),
    ]
    assert [share.replace("\u00a0", " ") for share in [*shares, percent(0.999), percent(0.99)]] == [
        "99.14 %", "95.0 %", "100.00 %", "99.999 %", "just below 100.0000 %", "99.9 %", "99 %",
    ]  # fmt: skip
    assert [counted(count, "queue") for count in (0, 1, 1200)] == ["0 queues", "1 queue", "1,200 queues"]
    assert [listed(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert [brief_duration(value).replace("\u00a0", " ") for value in (0, 1800, 5400)] == [
        "0 s",
        "30 min",
        "1.5 h",
    ]


def test_markup_escapes_all_that_isn_t_markup() -> None:
    assert element("p", "<b>", element("i", "&"), None, title='"', hidden=True, lang=None) == (
        '<p title="&quot;" hidden>&lt;b&gt;<i>&amp;</i></p>'
    )
    assert text("a\u2066b") == "a\\u2066b"


def test_times_are_of_the_zone() -> None:
    clock = Clock("Asia/Kolkata")
    assert (
        clock.minute(datetime(2026, 3, 1, 23, 30, tzinfo=BEGIN.tzinfo) + timedelta(0)) == "Mon 2 Mar, 05:00"
    )
