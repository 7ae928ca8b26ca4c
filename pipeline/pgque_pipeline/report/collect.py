"""Reads from the tables what a report tells: the one place where it needs Spark.

Whatever the number of queues, what leaves Spark is bounded: the rows that matter most, and counts.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from pgque_pipeline import schemas
from pgque_pipeline.report.facts import (
    DeadLetters,
    Entity,
    Facts,
    Flow,
    Forecast,
    Gap,
    Incident,
    Incidents,
    Lag,
    Objective,
    Promise,
    Refused,
    Scope,
    Track,
    Turn,
    Week,
)
from pgque_pipeline.report.words import meaning
from pgque_pipeline.schemas import GENERATED, TABLES, Table
from pgque_pipeline.settings import OBJECTIVES, Settings, objectives_of
from pgque_pipeline.warehouse.store import Warehouse

# How many of each are shown.
MOST_DATABASES = 8
MOST_PROMISES = 6
MOST_INCIDENTS = 12
MOST_LONGEST = 3
MOST_TRACKS = 12
MOST_CHARTS = 6
MOST_WEEKS = 4
MOST_FORECASTS = 6
MOST_GROUPS = 15
MOST_GAPS = 8
# Rows behind one picture; more would make no better one.
_MOST_TURNS = 20_000
_SIDE_BY_SIDE = 3
_STRETCHES = 112  # of a window, in a chart of the error budget
_TRAIL_HOURS = 12
# A lag that needs longer than that to pass the rotation period is no news.
HORIZON_DAYS = 14
_LAG = "pgque.consumer.lag_seconds"
_SENT = "pgque.message.sent_total"
_LABELS = ("engine", "database", "queue", "consumer")

Row = dict[str, Any]


def collect(spark: SparkSession, warehouse: Warehouse, *, days: int) -> Facts | None:
    """What there is to tell about the newest `days`; None of a warehouse without points."""
    return _Collection(spark, warehouse, days).facts()


class _Collection:
    def __init__(self, spark: SparkSession, warehouse: Warehouse, days: int) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._hours = days * 24
        settings = json.loads(warehouse.manifest.settings or "{}")
        self._time_zone = str(settings.get("time_zone", Settings().time_zone))
        self._max_gap = float(settings.get("max_gap", Settings().max_gap))
        written = settings.get("objectives")
        self._settled = {one.name: one for one in (OBJECTIVES if written is None else objectives_of(written))}

    def facts(self) -> Facts | None:
        scope = self._scope()
        if scope is None:
            return None
        self._begin, self._as_of = scope.begin, scope.as_of
        # Small questions all of them: what each costs is mostly the wait.
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            of_objectives = pool.submit(self._objectives)
            incidents = pool.submit(self._incidents)
            of_flows, of_lags = pool.submit(self._flows), pool.submit(self._lags)
            of_weeks, of_forecasts = pool.submit(self._weeks), pool.submit(self._forecasts)
            of_dead, of_refused = pool.submit(self._dead_letters), pool.submit(self._refused)
            of_gaps = pool.submit(self._gaps)
        objectives = of_objectives.result()
        flows, flow_count = of_flows.result()
        lags, lag_count = of_lags.result()
        weeks, week_count = of_weeks.result()
        forecasts, growing, judged = of_forecasts.result()
        dead, dead_count, dead_groups = of_dead.result()
        refused, refused_count = of_refused.result()
        gaps, gap_count, unwatched = of_gaps.result()
        return Facts(
            scope=scope,
            objectives=objectives,
            unjudged=[name for name in self._settled if name not in {one.name for one in objectives}],
            incidents=incidents.result(),
            flows=flows,
            flow_count=flow_count,
            lags=lags,
            lag_count=lag_count,
            weeks=weeks,
            week_count=week_count,
            forecasts=forecasts,
            growing=growing,
            judged=judged,
            dead_letters=dead,
            dead_letter_count=dead_count,
            dead_letter_groups=dead_groups,
            refused=refused,
            refused_count=refused_count,
            gaps=gaps,
            gap_count=gap_count,
            unwatched_seconds=unwatched,
        )

    # --- reading ---------------------------------------------------------------------------------

    def _recent(self, table: Table, *, begin: datetime | None = None) -> DataFrame:
        """A table by day, from a time on; all of the window unless that is given."""
        since = begin or self._begin
        if table.time == "window_start":
            since = _hour_of(since)
        days = [day for day in self._warehouse.days(table) if day >= since.date()]
        rows = self._warehouse.read(self._spark, table, days)
        return rows.where(sf.col(table.time) >= sf.lit(since))

    def _whole(self, table: Table) -> DataFrame:
        return self._warehouse.read(self._spark, table)

    # --- parts -----------------------------------------------------------------------------------

    def _scope(self) -> Scope | None:
        days = self._warehouse.days(schemas.SERIES)
        if not days:
            return None
        ends = self._warehouse.read(self._spark, schemas.SERIES, {days[0], days[-1]})
        [ends_row] = _rows(ends.agg(sf.min("first_seen").alias("first"), sf.max("last_seen").alias("last")))
        first, as_of = ends_row["first"], ends_row["last"]
        # As `slo` does it: whole hours up to the end of the newest one.
        begin = max(first, _hour_of(as_of) + timedelta(hours=1 - self._hours))
        series = self._warehouse.read(
            self._spark, schemas.SERIES, [day for day in days if day >= begin.date()]
        )
        queue = sf.struct("engine", "database", "queue")
        [row] = _rows(
            series.agg(
                sf.sum("points").alias("points"),
                sf.count_distinct("database").alias("databases"),
                sf.count_distinct(sf.when(sf.col("queue").isNotNull(), queue)).alias("queues"),
                sf.count_distinct(sf.when(sf.col("consumer").isNotNull(), sf.col("entity_id"))).alias(
                    "consumers"
                ),
                sf.max(sf.map_contains_key("attributes", GENERATED)).alias("generated"),
            )
        )
        names = series.where("database is not null").select("database").distinct()
        return Scope(
            begin=begin,
            first=first,
            as_of=as_of,
            time_zone=self._time_zone,
            databases=[found["database"] for found in _rows(names.orderBy("database").limit(MOST_DATABASES))],
            database_count=row["databases"],
            queue_count=row["queues"],
            consumer_count=row["consumers"],
            points=row["points"],
            generated=bool(row["generated"]),
        )

    def _objectives(self) -> list[Objective]:
        # While tables are made anew with other objectives, those of before are still in them.
        slo = self._whole(schemas.SLO).where(sf.col("objective").isin(*self._settled))
        rows = slo.where(sf.col("window_hours") == self._hours)
        worst_first = Window.partitionBy("objective").orderBy(
            sf.col("burn").desc(), sf.col("total").desc(), "entity_id"
        )
        top = _rows(
            rows.withColumn("place", sf.row_number().over(worst_first))
            .where(f"place <= {MOST_PROMISES}")
            .orderBy("objective", "place")
        )
        if not top:
            return []
        keys = self._spark.createDataFrame(
            [(row["objective"], row["entity_id"]) for row in top], "objective string, entity_id bigint"
        )
        burns: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
        for row in _rows(
            slo.join(sf.broadcast(keys), ["objective", "entity_id"]).select(
                "objective", "entity_id", "window_hours", "burn"
            )
        ):
            burns[row["objective"], row["entity_id"]][row["window_hours"]] = row["burn"]
        budgets = self._budgets(keys, top[0]["as_of"] - timedelta(hours=self._hours))
        worst: dict[str, list[Promise]] = defaultdict(list)
        for row in top:
            key = row["objective"], row["entity_id"]
            allowed = (1 - row["target"]) * row["total"]
            worst[row["objective"]].append(
                Promise(
                    objective=row["objective"],
                    entity=_entity(row),
                    target=row["target"],
                    attainment=row["attainment"],
                    burn=row["burn"],
                    burns=burns[key],
                    budget=_left(budgets.get(key, []), allowed),
                )
            )
        counts = rows.groupBy("objective").agg(
            sf.max("target").alias("target"),
            sf.count("*").alias("promised"),
            sf.sum(sf.expr("if(burn > 1, 1, 0)")).alias("broken"),
        )
        return [
            Objective(
                row["objective"],
                meaning(self._settled[row["objective"]]),
                row["target"],
                row["promised"],
                row["broken"],
                worst[row["objective"]],
            )
            for row in _rows(counts.orderBy("objective"))
        ]

    def _budgets(
        self, keys: DataFrame, begin: datetime
    ) -> dict[tuple[str, int], list[tuple[datetime, float]]]:
        """(end, bad) of each stretch of time from `begin` on, for these promises."""
        seconds = max(1, self._hours // _STRETCHES) * 3600
        end = f"timestamp_seconds((unix_seconds(window_start) div {seconds} + 1) * {seconds})"
        stretches = (
            self._recent(schemas.SLI, begin=begin)
            .join(sf.broadcast(keys), ["objective", "entity_id"])
            .groupBy("objective", "entity_id", sf.expr(end).alias("end"))
            .agg(sf.sum(sf.expr("total - good")).alias("bad"))
        )
        found: dict[tuple[str, int], list[tuple[datetime, float]]] = defaultdict(list)
        for row in _rows(stretches.orderBy("end")):
            found[row["objective"], row["entity_id"]].append((min(row["end"], self._as_of), row["bad"]))
        return found

    def _incidents(self) -> Incidents:
        rows = self._whole(schemas.INCIDENTS).where(sf.coalesce("ended", "last_seen") >= sf.lit(self._begin))
        open_ = sf.col("ended").isNull()
        [counts] = _rows(
            rows.agg(
                sf.count("*").alias("count"),
                sf.count(sf.when(sf.col("worst") == "critical", 1)).alias("critical"),
                sf.count(sf.when(open_, 1)).alias("going_on"),
                sf.count_distinct("entity_id", "check").alias("tracks"),
            )
        )
        badness = (sf.col("critical_seconds").desc(), sf.col("warning_seconds").desc(), "entity_id", "check")
        worst = _rows(rows.orderBy(open_.desc(), *badness).limit(MOST_INCIDENTS))
        length = sf.expr("unix_micros(ended) - unix_micros(started)")
        longest = _rows(rows.where(~open_).orderBy(length.desc(), *badness).limit(MOST_LONGEST))
        tracks = (
            rows.groupBy("entity_id", "check")
            .agg(
                sf.count("*").alias("incidents"),
                sf.max(open_).alias("open"),
                sf.sum("critical_seconds").alias("critical_seconds"),
                sf.sum("warning_seconds").alias("warning_seconds"),
                sf.first(sf.struct(*_LABELS, "attributes")).alias("labels"),
            )
            .orderBy(sf.col("open").desc(), *badness)
            .limit(MOST_TRACKS)
        )
        return Incidents(
            count=counts["count"],
            critical=counts["critical"],
            going_on=counts["going_on"],
            worst=[_incident(row) for row in worst],
            longest=[_incident(row) for row in longest],
            tracks=self._tracks(_rows(tracks)),
            track_count=counts["tracks"],
        )

    def _tracks(self, rows: Sequence[Row]) -> list[Track]:
        wanted = [(row["entity_id"], row["check"]) for row in rows]
        turns = self._turns(wanted)
        return [
            Track(
                entity=_entity(row["labels"]),
                check=row["check"],
                incidents=row["incidents"],
                bad_seconds=row["critical_seconds"] + row["warning_seconds"],
                turns=turns[row["entity_id"], row["check"]],
            )
            for row in rows
        ]

    def _turns(self, checks: Sequence[tuple[int, str]]) -> dict[tuple[int, str], list[Turn]]:
        """The turns of these checks, those that follow one another without a gap put together."""
        found: dict[tuple[int, str], list[Turn]] = defaultdict(list)
        if not checks:
            return found
        keys = self._spark.createDataFrame([*checks], "entity_id bigint, check string")
        days = [day for day in self._warehouse.days(schemas.HEALTH) if day >= self._begin.date()]
        rows = (
            self._warehouse.read(self._spark, schemas.HEALTH, days)
            .where(sf.col("ended") >= sf.lit(self._begin))
            .join(sf.broadcast(keys), ["entity_id", "check"], "left_semi")
        )
        newest_first = rows.orderBy(sf.col("started").desc()).limit(_MOST_TURNS)
        for row in reversed(_rows(newest_first.select("entity_id", "check", "state", "started", "ended"))):
            turns = found[row["entity_id"], row["check"]]
            turn = Turn(row["state"], max(row["started"], self._begin), row["ended"])
            if turns and (turn.begin - turns[-1].end).total_seconds() <= self._max_gap:
                last = turns.pop()
                if last.state == turn.state:
                    turn = Turn(turn.state, last.begin, turn.end)
                else:
                    turns.append(Turn(last.state, last.begin, turn.begin))
            turns.append(turn)
        return found

    def _gaps(self) -> tuple[list[Gap], int, float]:
        """Times in which a database was not watched, by the check of it that was seen most."""
        per_check = (
            self._recent(schemas.HEALTH)
            .groupBy("database", "entity_id", "check")
            .agg(sf.sum("samples").alias("samples"))
        )
        chosen = _rows(
            per_check.groupBy("database")
            .agg(
                sf.max_by(sf.struct("entity_id", "check"), sf.struct("samples", "entity_id", "check")).alias(
                    "one"
                )
            )
            .orderBy("database")
            .limit(MOST_DATABASES)
        )
        turns = self._turns([(row["one"]["entity_id"], row["one"]["check"]) for row in chosen])
        gaps = [
            Gap(row["database"], before.end, after.begin)
            for row in chosen
            for before, after in pairwise(turns[row["one"]["entity_id"], row["one"]["check"]])
            if after.begin > before.end
        ]
        gaps.sort(key=lambda gap: gap.begin - gap.end)
        unwatched = sum((gap.end - gap.begin).total_seconds() for gap in gaps)
        return gaps[:MOST_GAPS], len(gaps), unwatched

    def _flows(self) -> tuple[list[Flow], int]:
        rows = self._recent(schemas.FLOW)
        queues = rows.where("consumer is null and queue is not null and sent is not null")
        totals = queues.groupBy("entity_id").agg(
            sf.sum("sent").alias("all_sent"), sf.first(sf.struct(*_LABELS, "attributes")).alias("labels")
        )
        count = totals.count()
        top = _rows(totals.orderBy(sf.col("all_sent").desc(), "entity_id").limit(MOST_CHARTS))
        if not top:
            return [], 0
        keys = self._spark.createDataFrame(
            [tuple(row["labels"][name] for name in _LABELS[:3]) for row in top],
            "engine string, database string, queue string",
        ).distinct()
        on = [rows[name].eqNullSafe(keys[name]) for name in _LABELS[:3]]
        hours = (
            rows.join(sf.broadcast(keys), on[0] & on[1] & on[2], "left_semi")
            .groupBy("engine", "database", "queue", "window_start")
            .agg(
                sf.sum(sf.when(sf.col("consumer").isNull(), sf.col("sent_per_second"))).alias("sent"),
                sf.min(sf.when(sf.col("consumer").isNotNull(), sf.col("acked_per_second"))).alias("acked"),
            )
        )
        by_queue: dict[tuple[Any, ...], list[tuple[datetime, float | None, float | None]]] = defaultdict(list)
        for row in _rows(hours.orderBy("window_start")):
            key = tuple(row[name] for name in _LABELS[:3])
            by_queue[key].append((row["window_start"], row["sent"], row["acked"]))
        flows = [
            Flow(
                _entity(row["labels"]),
                row["all_sent"],
                by_queue[tuple(row["labels"][name] for name in _LABELS[:3])],
            )
            for row in top
        ]
        return flows, count

    def _lags(self) -> tuple[list[Lag], int]:
        rows = self._recent(schemas.LATENCY).where(sf.col("metric") == _LAG)
        totals = rows.groupBy("entity_id").agg(
            sf.max("p99").alias("most"), sf.first(sf.struct(*_LABELS, "attributes")).alias("labels")
        )
        count = totals.count()
        top = _rows(totals.orderBy(sf.col("most").desc(), "entity_id").limit(MOST_CHARTS))
        ids = [row["entity_id"] for row in top]
        hours: dict[int, list[tuple[datetime, float, float, float]]] = defaultdict(list)
        chosen = rows.where(sf.col("entity_id").isin(ids)).select(
            "entity_id", "window_start", "p50", "p95", "p99"
        )
        for row in _rows(chosen.orderBy("window_start")):
            hours[row["entity_id"]].append((row["window_start"], row["p50"], row["p95"], row["p99"]))
        known = self._whole(schemas.FORECAST).where(sf.col("entity_id").isin(ids))
        periods = {row["entity_id"]: row["rotation_period_seconds"] for row in _rows(known)}
        lags = [
            Lag(_entity(row["labels"]), periods.get(row["entity_id"]), hours[row["entity_id"]]) for row in top
        ]
        return lags, count

    def _weeks(self) -> tuple[list[Week], int]:
        rows = self._whole(schemas.BASELINES).where((sf.col("metric") == _SENT) & sf.col("consumer").isNull())
        totals = rows.groupBy("entity_id").agg(
            sf.sum("median").alias("sum"), sf.first(sf.struct(*_LABELS, "attributes")).alias("labels")
        )
        count = totals.count()
        top = _rows(totals.orderBy(sf.col("sum").desc(), "entity_id").limit(MOST_WEEKS))
        medians: dict[int, dict[int, float]] = defaultdict(dict)
        chosen = rows.where(sf.col("entity_id").isin([row["entity_id"] for row in top]))
        for row in _rows(chosen.select("entity_id", "hour_of_week", "median")):
            medians[row["entity_id"]][row["hour_of_week"]] = row["median"]
        return [Week(_entity(row["labels"]), medians[row["entity_id"]]) for row in top], count

    def _forecasts(self) -> tuple[list[Forecast], int, int]:
        rows = self._whole(schemas.FORECAST)
        growing = rows.where(f"seconds_left <= {HORIZON_DAYS} * 86400")
        judged, count = rows.count(), growing.count()
        top = _rows(growing.orderBy("seconds_left", "entity_id").limit(MOST_FORECASTS))
        trails = self._trails([row["entity_id"] for row in top])
        forecasts = [
            Forecast(
                entity=_entity(row),
                as_of=row["as_of"],
                lag=row["lag_seconds"],
                rotation_period=row["rotation_period_seconds"],
                left=row["seconds_left"],
                earliest=row["seconds_left_low"],
                latest=row["seconds_left_high"],
                trail=trails[row["entity_id"]],
            )
            for row in top
        ]
        return forecasts, count, judged

    def _trails(self, entities: Sequence[int]) -> dict[int, list[tuple[datetime, float]]]:
        found: dict[int, list[tuple[datetime, float]]] = defaultdict(list)
        if not entities:
            return found
        begin = self._as_of - timedelta(hours=_TRAIL_HOURS)
        of_day = datetime.combine(begin.date(), datetime.min.time(), UTC)
        names = (
            self._recent(schemas.SERIES, begin=of_day)
            .where((sf.col("metric") == _LAG) & sf.col("entity_id").isin([*entities]))
            .select("series_id", "entity_id")
            .distinct()
        )
        minutes = self._recent(schemas.ROLLUP_1M, begin=begin).join(sf.broadcast(names), "series_id")
        for row in _rows(minutes.select("entity_id", "last_ts", "last").orderBy("last_ts")):
            found[row["entity_id"]].append((row["last_ts"], row["last"]))
        return found

    def _dead_letters(self) -> tuple[list[DeadLetters], int, int]:
        table = TABLES.get("dead_letters")
        if table is None or not self._warehouse.folders(table):
            return [], 0, 0
        rows = self._whole(table)
        [counts] = _rows(rows.agg(sf.count("*").alias("groups"), sf.sum("dead_letters").alias("all")))
        top = _rows(rows.orderBy(sf.col("dead_letters").desc(), *_LABELS, "reason").limit(MOST_GROUPS))
        groups = [
            DeadLetters(
                entity=_entity(row),
                event_type=row["event_type"],
                reason=row["reason"],
                count=row["dead_letters"],
                first=row["first_at"],
                last=row["last_at"],
                example=row["example"],
            )
            for row in top
        ]
        return groups, counts["all"] or 0, counts["groups"]

    def _refused(self) -> tuple[list[Refused], int]:
        rows = self._whole(schemas.QUARANTINE)
        found = rows.groupBy("reason").agg(
            sf.count("*").alias("count"), sf.count_distinct("file").alias("files")
        )
        reasons = [
            Refused(row["reason"], row["count"], row["files"])
            for row in _rows(found.orderBy(sf.col("count").desc(), "reason").limit(MOST_GROUPS))
        ]
        return reasons, rows.count()


def _rows(rows: DataFrame) -> list[Row]:
    return rows.toArrow().to_pylist()  # type: ignore[no-any-return]


def _entity(row: Mapping[str, Any]) -> Entity:
    others = tuple(sorted((name, text) for name, text in row.get("attributes") or () if name != GENERATED))
    return Entity(row["engine"], row["database"], row["queue"], row["consumer"], others)


def _incident(row: Row) -> Incident:
    return Incident(
        _entity(row),
        *(row[name] for name in ("check", "started", "ended", "last_seen", "worst")),
        *(row[f"{state}_seconds"] for state in ("warning", "critical", "unknown")),
    )


def _hour_of(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def _left(bad: Iterable[tuple[datetime, float]], allowed: float) -> list[tuple[datetime, float]]:
    """Share of the error budget that is left after each stretch."""
    found: list[tuple[datetime, float]] = []
    lost = 0.0
    for end, more in bad:
        lost += more
        found.append((end, 1 - lost / allowed if allowed else 0.0))
    return found
