"""More series than may be: which stay, which go, and how they are counted."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgque_exporter.config import Config, Limits, Listen
from pgque_exporter.limits import SeriesBudget, SeriesLimit
from pgque_exporter.snapshot import Family, HistogramFamily, HistogramSeries, Series
from tests.exporter.harness import CATALOGUE, DEPTH, SENT, ToyPack, labels, poll, running, target
from tests.support.database import Database, wait_until

SIZE = CATALOGUE["pgque.batch.size"]
EVERYTHING = 10**6


def family(*queues: str) -> Family:
    return Family.of(DEPTH, tuple(Series(labels(queue=queue), 1.0) for queue in queues))


def queues(families: tuple[Family, ...]) -> list[str]:
    return [dict(series.labels)["queue"] for one in families for series in one.series]


def limit(most: int, *, total: int = EVERYTHING) -> SeriesLimit:
    return SeriesLimit("shop", Limits(series_per_target=most), SeriesBudget(total))


def test_within_the_limit_nothing_changes() -> None:
    families = (family("b", "a"),)
    kept, histograms, dropped = limit(2).apply(families, ())
    assert kept is families
    assert (histograms, dropped) == ((), {"target_limit": 0, "total_limit": 0})


def test_of_too_many_the_first_by_name_stay_in_whatever_order_they_come() -> None:
    for order in (["a", "b", "c", "d"], ["d", "b", "c", "a"]):
        kept, _, dropped = limit(2).apply((family(*order),), ())
        assert sorted(queues(kept)) == ["a", "b"]
        assert dropped == {"target_limit": 2, "total_limit": 0}


def test_who_was_there_stays_when_others_come() -> None:
    series = limit(2)
    series.apply((family("m", "n"),), ())
    for newcomers in (["a"], ["b", "c"], ["a", "z"]):
        kept, _, dropped = series.apply((family(*newcomers, "n", "m"),), ())
        assert sorted(queues(kept)) == ["m", "n"]
        assert dropped["target_limit"] == len(newcomers)
    kept, _, _ = series.apply((family("a", "m", "z"),), ())  # n has gone and leaves its place
    assert sorted(queues(kept)) == ["a", "m"]


def test_a_queue_stays_or_goes_as_a_whole() -> None:
    histogram = HistogramFamily(
        SIZE, tuple(HistogramSeries(labels(queue=queue), (1.0,), (1, 0), 1) for queue in ("a", "b"))
    )
    sent = Family.of(SENT, family("a", "b").series)
    kept, histograms, dropped = limit(11).apply((family("a", "b"), sent), (histogram,))
    assert [one.metric for one in kept] == [DEPTH, SENT]
    assert queues(kept) == ["a", "a"]
    assert [dict(one.labels)["queue"] for one in histograms[0].series] == ["a"]
    assert dropped["target_limit"] == 6  # two numbers and a histogram's four lines


def test_families_that_lose_all_their_series_go() -> None:
    kept, histograms, dropped = limit(1).apply((family("a"), Family.of(SENT, family("b").series)), ())
    assert [one.metric for one in kept] == [DEPTH]
    assert (histograms, dropped["target_limit"]) == ((), 1)


def test_what_one_database_has_another_can_not_take() -> None:
    budget = SeriesBudget(4)
    one, two = (SeriesLimit(name, Limits(), budget) for name in ("one", "two"))
    assert len(queues(one.apply((family("a", "b", "c"),), ())[0])) == 3
    kept, _, dropped = two.apply((family("a", "b", "c"),), ())
    assert (queues(kept), dropped) == (["a"], {"target_limit": 0, "total_limit": 2})
    assert len(queues(one.apply((family("a", "b", "c", "d"),), ())[0])) == 3
    budget.release("one")
    assert len(queues(two.apply((family("a", "b", "c"),), ())[0])) == 3
    one.apply((family("a"),), ())
    assert len(queues(two.apply((family("a", "b"),), ())[0])) == 2  # less is held by less


def test_each_excess_is_counted_by_the_limit_that_it_is_beyond() -> None:
    _, _, dropped = limit(6, total=4).apply((family(*"abcdefghij"),), ())
    assert dropped == {"target_limit": 4, "total_limit": 2}


NAMES = st.sets(st.text("abc", min_size=1, max_size=3), max_size=12)


@given(most=st.integers(1, 8), total=st.integers(1, 8), polls=st.lists(NAMES, min_size=1, max_size=6))
def test_any_history_is_stable_and_accounted_for(most: int, total: int, polls: list[set[str]]) -> None:
    series = limit(most, total=total)
    before: set[str] = set()
    for names in polls:
        order = random.Random(len(names)).sample(sorted(names), len(names))
        kept, _, dropped = series.apply((family(*order),), ())
        now = set(queues(kept))
        assert len(now) + sum(dropped.values()) == len(names)
        assert len(now) == min(len(names), most, total), "no place stays empty"
        assert before & names <= now, "who was there and still is stays"
        before = now


def test_a_poll_beyond_its_limits_loses_the_excess_only(database: Database, toy: ToyPack) -> None:
    for number in range(20):
        toy.add("pgque.queue.depth", number, queue=f"q{number:02}")
    toy.add("pgque.queue.unticked_events", 1, queue="x" * 31)
    toy.add("pgque.consumer.lag_seconds", 1, queue="q00", consumer="c")
    limits = Limits(series_per_target=15, label_length=30, labels=3)
    result = poll(database.dsn(), limits=limits)
    [depth] = result.snapshot.families
    assert sorted(dict(series.labels)["queue"] for series in depth.series) == [
        f"q{number:02}" for number in range(15)
    ]
    dropped = {reason: rows for reason, rows in result.snapshot.dropped.items() if rows}
    assert dropped == {"target_limit": 5, "label_too_long": 1, "too_many_labels": 1}


@pytest.mark.servers("pg18")
def test_the_page_says_what_it_leaves_out(
    database: Database, other_database: Database, toy: ToyPack
) -> None:
    for number in range(5):
        toy.add("pgque.queue.depth", number, queue=f"q{number}")
    ToyPack(other_database.connect()).add("pgque.queue.depth", 7, queue="late")
    limits = Limits(series=4)
    one = target(database.dsn(), "one", interval=3600.0, limits=limits)
    two = target(other_database.dsn(), "two", limits=limits)
    settings = Config(Listen("127.0.0.1", 0), 0.2, (one,), None, "info", limits=limits)
    both = Config(Listen("127.0.0.1", 0), 0.2, (one, two), None, "info", limits=limits)
    reason = 'pgque_exporter_series_dropped_total{database="one",reason="total_limit"}'
    with running(settings) as service:
        wait_until(lambda: service.sample("pgque_queue_depth{") is not None, what="first page")
        assert service.sample(reason) == 1
    with running(both) as service:
        wait_until(lambda: service.get("/readyz").status == 200, what="both polled")
        depths = "\npgque_queue_depth{"
        wait_until(lambda: service.get("/metrics").text.count(depths) >= 4, what="the page has them")
        page = service.get("/metrics").text
        assert (page.count(depths), page.count("pgque_up{")) == (4, 2)
