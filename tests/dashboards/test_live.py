"""Every question of every dashboard, put to a real Prometheus that scrapes the demo."""

from __future__ import annotations

import time
from collections import defaultdict

import pytest

from tests.support.dashboards import Question, boards
from tests.support.demo import WatchedDemo
from tests.support.processes import wait_for

# What the demo can't show: query -> why. Each of them stands beside another one in its panel.
WITHOUT_AN_ANSWER = {
    ("pgque-exporter-delivery", 7, "F"): "the demo's pages are open to all on this machine",
    ("pgque-exporter-delivery", 7, "G"): "the demo's service is alone and needs no leader",
    **{("pgque-exporter-delivery", 17, letter): "the demo's service keeps no archive" for letter in "FGHIJ"},
    ("pgque-ticker-rotation", 8, "B"): "the demo drives its queues itself, without pg_cron",
}
LONG_ENOUGH = 180  # seconds, for the slowest machine
ALL = {
    "database": ".*",
    "queue": ".*",
    "consumer": ".*",
    "__range": "2m",
    "__interval": "1s",
    "__rate_interval": "15s",
}


def answers(watched: WatchedDemo, question: Question, **chosen: str) -> int:
    """Number of series that Prometheus answers with; it must not refuse the question."""
    expr = question.filled_in(ALL | chosen)
    try:
        return len(watched.prometheus.query(expr))
    except AssertionError as error:
        raise AssertionError(f"{question.where}: {error}") from None


def test_every_panel_has_data_and_no_query_fails(watched_demo: WatchedDemo) -> None:
    asked = [
        question
        for board in boards()
        for question in board.questions()
        if (board.uid, question.panel, question.letter) not in WITHOUT_AN_ANSWER
    ]
    assert asked
    # Trouble comes in its own time: a dead letter after two retries, a critical queue after half a minute.
    deadline = time.monotonic() + LONG_ENOUGH
    silent = asked
    while (silent := [each for each in silent if not answers(watched_demo, each)]) and (
        time.monotonic() < deadline
    ):
        time.sleep(1)
    assert [question.where for question in silent] == []


def test_what_the_demo_cant_show_is_asked_without_an_error(watched_demo: WatchedDemo) -> None:
    found = {
        (board.uid, question.panel, question.letter): answers(watched_demo, question)
        for board in boards()
        for question in board.questions()
    }
    assert {key for key in WITHOUT_AN_ANSWER if found[key]} == set()


def test_variables_and_annotations_find_what_they_list(watched_demo: WatchedDemo) -> None:
    def silent() -> list[str]:
        asides = [aside for board in boards() for aside in board.asides()]
        return [aside.where for aside in asides if not answers(watched_demo, aside)]

    wait_for(lambda: not silent(), "series for variables, and an alert that fires", timeout=LONG_ENOUGH)


@pytest.mark.parametrize(
    ("chosen", "queues"),
    [
        ({"queue": "(billing|emails)"}, {"billing", "emails"}),
        ({"consumer": "mailer"}, {"emails"}),
        ({"database": "elsewhere"}, set()),
    ],
)
def test_variables_narrow_the_answers(
    watched_demo: WatchedDemo, chosen: dict[str, str], queues: set[str]
) -> None:
    lag = 'max by (queue) (pgque_consumer_lag_seconds{database="shop"})'
    watched_demo.prometheus.wait_for(lag, lambda samples: len(samples) == 4, timeout=LONG_ENOUGH)
    found: dict[str, set[str]] = defaultdict(set)
    for board in boards():
        for question in board.questions():
            if "pgque_consumer_lag_seconds" not in question.expr:
                continue
            for sample in watched_demo.prometheus.query(question.filled_in(ALL | chosen)):
                found[question.where] |= (
                    {sample.labels["queue"]} - {""} if "queue" in sample.labels else set()
                )
    assert [where for where, names in found.items() if not names <= queues] == []
    assert not queues or any(names == queues for names in found.values())


def test_replicas_are_not_counted_twice(watched_demo: WatchedDemo) -> None:
    """The demo is scraped by two jobs, and a service of another engine has queues of the same names."""
    numbers = {
        (board.uid, panel["title"]): Question("", panel["targets"][0]["expr"])
        for board in boards()
        for panel in board.panels
        if panel["type"] == "stat"
    }

    def stat(title: str, **chosen: str) -> float:
        question = numbers["pgque-overview", title]
        (sample,) = watched_demo.prometheus.query(question.filled_in(ALL | chosen))
        return sample.value

    both = "count(count by (job) (pgque_queue_depth)) == 3"
    watched_demo.prometheus.wait_for(both, timeout=LONG_ENOUGH)
    critical = numbers["pgque-overview", "Critical queues"].filled_in(ALL | {"queue": "billing"})
    watched_demo.prometheus.wait_for(f"{critical} == 1", timeout=LONG_ENOUGH)
    assert stat("Unreachable databases") == 0
    assert stat("Queues with a warning", queue="orders") == 1  # the other engine's
    waiting = watched_demo.prometheus.value('max(pgque_queue_depth{engine="sparse"})')
    assert waiting == 7
    parcels = stat("Events waiting", queue="parcels")
    assert parcels == 0
