"""The report's facts against the oracle's tables, and pages of warehouses with little in them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pgque_exporter.errors import UserError
from pgque_pipeline.progress import Progress
from pgque_pipeline.report import collect as collecting
from pgque_pipeline.report.collect import collect
from pgque_pipeline.report.facts import Entity, Facts
from pgque_pipeline.report.page import page
from pgque_pipeline.report.write import require_folder, write_report
from pgque_pipeline.run import Request, run
from pgque_pipeline.warehouse.store import Warehouse, open_warehouse
from tests.pipeline.history import history
from tests.pipeline.test_run import BEGIN, write
from tests.pipeline.truth import SETTINGS, Tables, truth

DAYS = 7
Row = dict[str, Any]


@pytest.fixture(scope="module")
def all_made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Facts, Facts, Tables]:
    """What reports say of three databases, of all their days and of one, and the oracle's tables."""
    folder = tmp_path_factory.mktemp("report")
    lines = [line for seed in (1, 2, 3) for line in history(seed, BEGIN, 60)]
    write(folder / "metrics.json", [*lines, "{torn"])
    warehouse = filled(spark, folder / "warehouse", folder / "metrics.json")
    found, of_a_day = (collect(spark, warehouse, days=days) for days in (DAYS, 1))
    assert found is not None
    assert of_a_day is not None
    return found, of_a_day, truth(lines)


@pytest.fixture
def made(all_made: tuple[Facts, Facts, Tables]) -> tuple[Facts, Tables]:
    facts, _, tables = all_made
    return facts, tables


def filled(spark: SparkSession, root: Path, *inputs: Path) -> Warehouse:
    request = Request(inputs=inputs, settings=SETTINGS, now=datetime(2027, 1, 1, tzinfo=UTC))
    run(spark, open_warehouse(root, create=True), request, Progress(quiet=True))
    return open_warehouse(root, create=False)


def key(entity: Entity) -> tuple[Any, ...]:
    """An entity as the oracle calls it; its other labels are few and the same."""
    return (entity.engine, entity.database, entity.queue, entity.consumer, entity.others)


def micros(moment: datetime) -> int:
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))


def test_scope(made: tuple[Facts, Tables]) -> None:
    facts, tables = made
    times = [row["ts"] for row in tables["points"]]
    scope = facts.scope
    assert (micros(scope.first), micros(scope.as_of)) == (min(times), max(times))
    assert scope.databases == ["db1", "db2", "db3"]
    assert (scope.database_count, scope.queue_count, scope.consumer_count) == (3, 3, 3)
    assert scope.points == len(times)
    assert scope.time_zone == "Europe/Berlin"
    assert not scope.generated


def test_promises(made: tuple[Facts, Tables]) -> None:
    facts, tables = made
    expected = [row for row in tables["slo"] if row["window_hours"] == DAYS * 24]
    assert sum(one.promised for one in facts.objectives) == len(expected) > 3
    for one in facts.objectives:
        rows = {row["entity"]: row for row in expected if row["objective"] == one.name}
        assert one.promised == len(rows)
        assert one.broken == sum(row["burn"] > 1 for row in rows.values())
        burns = [promise.burn for promise in one.worst]
        assert burns == sorted((row["burn"] for row in rows.values()), reverse=True)[: len(burns)]
        for promise in one.worst:
            row = rows[key(promise.entity)]
            assert promise.attainment == pytest.approx(row["attainment"])
            assert promise.burns[DAYS * 24] == pytest.approx(row["burn"])
            # The line ends where the table says that the window has come to.
            assert promise.budget[-1][1] == pytest.approx(row["budget_left"], abs=1e-9)


def test_incidents_and_what_is_known_around_them(made: tuple[Facts, Tables]) -> None:
    facts, tables = made
    expected = tables["incidents"]
    assert facts.incidents.count == len(expected) > 3
    assert facts.incidents.critical == sum(row["worst"] == "critical" for row in expected)
    assert facts.incidents.going_on == sum(row["ended"] is None for row in expected)
    known = {(row["entity"], row["check"], row["started"]): row for row in expected}
    for one in facts.incidents.worst:
        row = known[key(one.entity), one.check, micros(one.started)]
        assert (one.ended and micros(one.ended)) == row["ended"]
        assert one.critical_seconds == pytest.approx(row["critical_seconds"])
        assert one.unknown_seconds == pytest.approx(row["unknown_seconds"])
    lengths = [row["ended"] - row["started"] for row in expected if row["ended"] is not None]
    assert [
        micros(one.ended) - micros(one.started) for one in facts.incidents.longest if one.ended
    ] == sorted(lengths, reverse=True)[:3]
    for track in facts.incidents.tracks:
        mine = [row for row in expected if (row["entity"], row["check"]) == (key(track.entity), track.check)]
        assert track.incidents == len(mine)
        assert track.bad_seconds == pytest.approx(
            sum(row["critical_seconds"] + row["warning_seconds"] for row in mine)
        )
        for state in ("warning", "critical"):
            drawn = sum(
                (turn.end - turn.begin).total_seconds() for turn in track.turns if turn.state == state
            )
            assert drawn == pytest.approx(sum(row[f"{state}_seconds"] for row in mine))
        assert all(
            before.end <= after.begin for before, after in zip(track.turns, track.turns[1:], strict=False)
        )


def _of(point: Row, database: str) -> bool:
    """Whether it is a state that a check of the database is in."""
    metric, _, labels = point["series"][:3]
    return bool(metric == "pgque.queue.health_state" and labels[1] == database and point["value"] == 1)


def test_gaps_are_times_without_samples(made: tuple[Facts, Tables]) -> None:
    facts, tables = made
    limit = SETTINGS.max_gap * 1_000_000
    expected: list[tuple[str, int, int]] = []
    for database in facts.scope.databases:
        watched = (row for row in tables["health"] if row["entity"][1] == database)
        samples = sorted({row["ts"] for row in tables["points"] if _of(row, database)})
        assert samples[0] == min(row["started"] for row in watched)
        expected += [(database, *pair) for pair in pairwise(samples) if pair[1] - pair[0] > limit]
    assert facts.gap_count == len(expected) > 3
    assert facts.unwatched_seconds == pytest.approx(sum(b - a for _, a, b in expected) / 1e6)
    longest = max(expected, key=lambda gap: gap[2] - gap[1])
    assert (facts.gaps[0].database, micros(facts.gaps[0].begin), micros(facts.gaps[0].end)) == longest


def test_a_window_begins_in_the_middle_of_what_was_going_on(all_made: tuple[Facts, Facts, Tables]) -> None:
    _, facts, tables = all_made
    begin = facts.scope.begin
    assert (facts.scope.as_of - begin, begin.minute) < (timedelta(days=1), 1)
    for track in facts.incidents.tracks:
        under_way = [
            row["state"]
            for row in tables["health"]
            if (row["entity"], row["check"]) == (key(track.entity), track.check)
            and row["started"] < micros(begin) < row["ended"]
        ]
        assert all(turn.begin >= begin for turn in track.turns)
        if under_way:
            assert (track.turns[0].state, track.turns[0].begin) == (under_way[0], begin)
    for one in facts.objectives:
        rows = {
            row["entity"]: row
            for row in tables["slo"]
            if row["window_hours"] == 24 and row["objective"] == one.name
        }
        for promise in one.worst:
            assert promise.budget[-1][1] == pytest.approx(rows[key(promise.entity)]["budget_left"], abs=1e-9)
    assert {hour for flow in facts.flows for hour, _, _ in flow.hours if hour < begin} == set()


def test_flow_lag_and_forecast(made: tuple[Facts, Tables]) -> None:
    facts, tables = made
    sent = {
        row["entity"]: 0.0 for row in tables["flow"] if row["entity"][3] is None and row["sent"] is not None
    }
    for row in tables["flow"]:
        if row["entity"] in sent:
            sent[row["entity"]] += row["sent"] or 0
    assert {key(one.entity): one.sent for one in facts.flows} == pytest.approx(sent)
    assert facts.flow_count == len(sent) == 3
    for one in facts.flows:
        mine = {row["window_start"]: row for row in tables["flow"] if row["entity"] == key(one.entity)}
        assert [micros(hour) for hour, value, _ in one.hours if value is not None] == sorted(
            hour for hour, row in mine.items() if row["sent_per_second"] is not None
        )
    lags = [row for row in tables["latency"] if row["metric"] == "pgque.consumer.lag_seconds"]
    assert facts.lag_count == len({row["entity"] for row in lags})
    for lag in facts.lags:
        expected = sorted(
            (row["window_start"], row["p50"], row["p99"]) for row in lags if row["entity"] == key(lag.entity)
        )
        assert [micros(hour) for hour, *_ in lag.hours] == [hour for hour, _, _ in expected]
        assert [p50 for _, p50, _, _ in lag.hours] == pytest.approx([p50 for _, p50, _ in expected])
        assert [p99 for *_, p99 in lag.hours] == pytest.approx([p99 for _, _, p99 in expected])
    assert facts.judged == len(tables["forecast"])
    soon = [
        row
        for row in tables["forecast"]
        if row["seconds_left"] is not None and row["seconds_left"] <= collecting.HORIZON_DAYS * 86400
    ]
    assert facts.growing == len(soon)
    assert [one.left for one in facts.forecasts] == pytest.approx(sorted(row["seconds_left"] for row in soon))


def test_refused_input_and_the_page_of_it_all(made: tuple[Facts, Tables]) -> None:
    facts, _ = made
    assert [(one.count, one.files) for one in facts.refused] == [(1, 1)]
    assert facts.refused_count == 1
    html = page(facts)
    assert "1 line or point of the input could not be used." in html
    assert "db1: orders / billing" in html


def test_what_is_shown_is_bounded(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "metrics.json", [line for seed in range(5) for line in history(seed, BEGIN, 5)])
    warehouse = filled(spark, tmp_path / "warehouse", tmp_path / "metrics.json")
    for name in ("DATABASES", "PROMISES", "INCIDENTS", "TRACKS", "CHARTS", "WEEKS", "FORECASTS", "GAPS"):
        monkeypatch.setattr(collecting, f"MOST_{name}", 2)
    facts = collect(spark, warehouse, days=28)
    assert facts is not None
    assert (len(facts.scope.databases), facts.scope.database_count) == (2, 5)
    assert all((len(one.worst), one.promised) == (2, 5) for one in facts.objectives if one.name == "lag")
    assert len(facts.incidents.worst) == len(facts.incidents.tracks) == 2 < facts.incidents.count
    assert (len(facts.flows), facts.flow_count) == (2, 5)
    assert (len(facts.lags), facts.lag_count) == (2, 5)
    assert "There is no baseline yet" in page(facts)
    assert "and 3 others" in page(facts)


def test_a_warehouse_without_points(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "metrics.json", ["{torn"])
    warehouse = filled(spark, tmp_path / "warehouse", tmp_path / "metrics.json")
    write_report(spark, warehouse, tmp_path / "report.html", days=28)
    assert "There is nothing to report yet" in (tmp_path / "report.html").read_text("utf-8")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_places_that_no_report_can_be_at(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="this is a folder"):
        require_folder(tmp_path)
    with pytest.raises(UserError, match="there is no such folder"):
        require_folder(tmp_path / "gone" / "report.html")
