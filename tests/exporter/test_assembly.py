"""Snapshots of the same series, poll after poll: what is remembered, and what it must not change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgque_exporter.assembly import Assembler, in_trouble
from pgque_exporter.config import Limits, TargetConfig
from pgque_exporter.config_limits import DEFAULT_LIMITS
from pgque_exporter.exposition import SampleWriter
from pgque_exporter.limits import SeriesBudget, SeriesLimit
from pgque_exporter.pack import SEPARATOR, MetricRows, Pack, PackRows
from pgque_exporter.snapshot import Snapshot
from tests.exporter.harness import CATALOGUE

DEPTH, SENT = "pgque.queue.depth", "pgque.message.sent_total"
STATE, STATUS = "pgque.queue.health_state", "pgque.queue.health_status"

Row = tuple[str, str, str]  # metric, labels as JSON, value
Seen = dict[tuple[str, frozenset[tuple[str, str]]], float]


def assembler(limits: Limits = DEFAULT_LIMITS) -> Assembler:
    limit = SeriesLimit("shop", limits, SeriesBudget(10**6))
    return Assembler(TargetConfig("shop", "", limits=limits), CATALOGUE, limit)


def labels(**given: str) -> str:
    return json.dumps(given)


def pack_rows(rows: Sequence[Row], engine: str = "toy") -> PackRows:
    pack = Pack(f"{engine}_observability", engine, "1", "1", ("lag", "dead"), ("stuck",))
    metrics = []
    for name in dict.fromkeys(name for name, _, _ in rows):
        mine = [(text, value) for metric, text, value in rows if metric == name]
        columns = (SEPARATOR.join(column) for column in zip(*mine, strict=True))
        metrics.append(MetricRows(name, len(mine), *columns))
    return PackRows(pack, metrics)


def shot(assembler: Assembler, *rows: Row) -> Snapshot:
    return assembler.assemble([pack_rows(rows)], 1000.0, 0.0)


def seen(snapshot: Snapshot) -> Seen:
    return {
        (family.metric.name, frozenset(series.labels)): series.value
        for family in snapshot.families
        for series in family.series
    }


def dropped(snapshot: Snapshot) -> dict[str, int]:
    return {reason: number for reason, number in snapshot.dropped.items() if number}


QUEUES = st.sampled_from(["a", "b", "c", 'd"\\'])
NUMBERS = st.sampled_from(["0", "7", "-3", "2.50", "1e3", "", "NaN", "9" * 25, "x"])
ROWS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from([DEPTH, SENT, STATUS]), QUEUES.map(lambda queue: labels(queue=queue)), NUMBERS
        ),
        st.tuples(
            st.just(STATE),
            st.builds(
                lambda queue, check, state: labels(queue=queue, check=check, state=state),
                QUEUES,
                st.sampled_from(["lag", "dead", "own"]),
                st.sampled_from(["ok", "warning", "critical", "unknown", "odd"]),
            ),
            st.sampled_from(["0", "1"]),
        ),
    ),
    max_size=8,
)


@given(polls=st.lists(ROWS, min_size=2, max_size=6), again=st.booleans())
def test_a_snapshot_is_the_same_whatever_came_before(polls: list[list[Row]], again: bool) -> None:
    old, writer = assembler(), SampleWriter()
    for rows in [*polls, *(reversed(polls) if again else ())]:
        late, fresh = shot(old, *rows), shot(assembler(), *rows)
        assert seen(late) == seen(fresh)
        assert late.dropped == fresh.dropped
        assert late.checks_ok == fresh.checks_ok
        assert sorted(map(repr, late.checks)) == sorted(map(repr, fresh.checks))
        written, anew = writer.samples(late), SampleWriter().samples(fresh)
        assert written.keys() == anew.keys()
        for name, lines in written.items():
            # A number that the database wrote plainly may stand as it did.
            assert values_of(lines) == values_of(anew[name])


def values_of(lines: bytes) -> dict[bytes, float]:
    pairs = (line.rpartition(b" ") for line in lines.splitlines())
    return {before: float(value) for before, _, value in pairs}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2)])
def test_rows_may_come_in_any_order(order: tuple[int, ...]) -> None:
    old = assembler()
    rows = [(DEPTH, labels(queue=f"q{number}"), str(number)) for number in range(3)]
    first = shot(old, *rows)
    again = shot(old, *(rows[number] for number in order))
    assert again.families == first.families
    assert again.families[0].labels is first.families[0].labels


def test_a_number_is_written_as_the_database_did_if_it_is_plain() -> None:
    old, writer = assembler(), SampleWriter()
    for values, expected in (
        (["10", "-4"], ["10", "-4"]),
        (["10.50", "4"], ["10.50", "4"]),
        (["1e3", "4.0"], ["1000", "4"]),
    ):
        rows = [(DEPTH, labels(queue=f"q{number}"), value) for number, value in enumerate(values)]
        for _ in range(2):  # as new series, and as those of the poll before
            lines = writer.samples(shot(old, *rows))[DEPTH].decode().splitlines()
            assert [line.rpartition(" ")[2] for line in lines] == expected


def test_tens_of_thousands_of_series_are_written_as_each_alone() -> None:
    old, writer = assembler(), SampleWriter()
    for step in (1, 0.5):
        expected = {f"q{number}": number * step for number in range(25_000)}
        rows = [(DEPTH, labels(queue=queue), str(value)) for queue, value in expected.items()]
        for _ in range(2):
            lines = writer.samples(shot(old, *rows))[DEPTH].decode().splitlines()
            start = 'pgque_queue_depth{engine="toy",database="shop",queue="'
            assert lines == [f'{start}{queue}"}} {value:g}' for queue, value in expected.items()]


def test_label_sets_of_series_that_went_away_are_forgotten() -> None:
    old = assembler()
    for number in range(100):
        always = (DEPTH, labels(queue="always"), "1")
        bad = (SENT, labels(nonsense=f"{number}"), "1")
        size = ("pgque.batch.size_count", labels(queue=f"q{number}", consumer="c"), "1")
        shot(old, always, (DEPTH, labels(queue=f"q{number}"), "1"), bad, size)
    assert old.remembered == 4
    shot(old, always)
    assert old.remembered == 1
    old.assemble([pack_rows([always], "other")], 1000.0, 0.0)
    assert old.remembered == 1


def test_columns_that_can_not_be_taken_apart_cost_their_rows_only() -> None:
    good = MetricRows(SENT, 1, labels(queue="q"), "5")
    pack = Pack("toy_observability", "toy", "1", "1", (), ())
    two = [labels(queue="a"), labels(queue="b")]
    for texts, values, reason in (
        ([two[0], f'{{"queue": "b{SEPARATOR}"}}'], ["1", "2"], "invalid_label"),
        (two, ["1", "2", "3"], "no_value"),
    ):
        bad = MetricRows(DEPTH, 2, SEPARATOR.join(texts), SEPARATOR.join(values))
        snapshot = assembler().assemble([PackRows(pack, [bad, good])], 1000.0, 0.0)
        assert dropped(snapshot) == {reason: 2}
        assert [family.metric.name for family in snapshot.families] == [SENT]


def test_the_same_series_of_two_packs_counts_once() -> None:
    row = (DEPTH, labels(queue="q"), "1")
    two = PackRows(Pack("copy", "toy", "1", "1", (), ()), pack_rows([row]).metrics)
    old = assembler()
    for _ in range(2):
        snapshot = old.assemble([pack_rows([row]), two], 1000.0, 0.0)
        assert dropped(snapshot) == {"duplicate": 1}
        assert len(snapshot.families[0].values) == 1


def test_health_that_did_not_change_is_the_same_object() -> None:
    old = assembler()
    status = (STATUS, labels(queue="q"), "0")
    warning = (STATE, labels(queue="q", check="lag", state="warning"), "1")
    quiet, still, loud = (shot(old, *rows) for rows in ([status], [status], [status, warning]))
    assert [a is b for a, b in zip(quiet.families, still.families, strict=True)] == [True, True]
    assert (quiet.checks_ok, loud.checks_ok, len(loud.checks)) == (2, 1, 1)


def test_a_pack_that_calls_its_engine_another_name_is_told_from_before() -> None:
    old = assembler()
    status = (STATUS, labels(queue="q"), "0")
    for engine in ("toy", "new", "new", "toy"):
        rows = pack_rows([status, (DEPTH, labels(queue="q"), "1")], engine)
        rows = replace(rows, pack=replace(rows.pack, schema="same"))
        snapshot = old.assemble([rows], 1000.0, 0.0)
        assert {dict(key)["engine"] for _, key in seen(snapshot)} == {engine}


@pytest.mark.parametrize(
    ("limits", "reason"), [(Limits(labels=4), "too_many_labels"), (Limits(label_length=5), "label_too_long")]
)
def test_a_check_beyond_the_limits_is_not_taken_for_ok(limits: Limits, reason: str) -> None:
    status = (STATUS, labels(queue="q"), "2")
    critical = (STATE, labels(queue="q", check="lag", state="critical"), "1")
    for rows, number in (([status, critical], 9), ([status], 8)):  # its row, and the states of both checks
        snapshot = shot(assembler(limits), *rows)
        assert [family.metric.name for family in snapshot.families] == [STATUS]
        assert dropped(snapshot) == {reason: number}
        assert snapshot.checks_ok == 0


def test_a_check_without_a_value_is_not_taken_for_ok() -> None:
    old = assembler()
    status = (STATUS, labels(queue="q"), "2")
    for value in ("1", "", "", "1"):
        snapshot = shot(old, status, (STATE, labels(queue="q", check="lag", state="critical"), value))
        states = [dict(key) for (name, key), one in seen(snapshot).items() if name == STATE and one]
        found = {one["check"]: one["state"] for one in states}
        assert found == ({"lag": "critical", "dead": "ok"} if value else {"dead": "ok"})


def test_trouble_is_seen_in_what_a_pack_sends() -> None:
    def of(state: str, value: str = "1") -> bool:
        return in_trouble(pack_rows([(DEPTH, "{}", "1"), (STATE, labels(queue="q", state=state), value)]))

    assert of("warning")
    assert not of("warning", "0")
    assert not of("ok")
    for text in ("", "[1]", "{", "[" * 100_000, '"warning"'):
        assert not in_trouble(pack_rows([(STATE, text, "1")]))
