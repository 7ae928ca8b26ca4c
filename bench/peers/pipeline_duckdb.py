"""The pipeline's tables by DuckDB: the same input, the same work, in SQL.

    python bench/peers/pipeline_duckdb.py {points,run} INPUT OUTPUT [DSN]

Lines are taken apart by JSON paths, metric by metric and point by point: reading them as nested types, which
is shorter to write, takes twice as long. What a point is about is worked out once for each array of
attributes. Prints JSON: seconds to `points`, seconds in all, and what the tables hold.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import duckdb

_ATTRIBUTES = '[{"key":"VARCHAR","value":{"stringValue":"VARCHAR","intValue":"VARCHAR"}}]'
_POINT = (
    '{"attributes":"JSON","startTimeUnixNano":"VARCHAR","timeUnixNano":"VARCHAR","asDouble":"DOUBLE",'
    '"asInt":"VARCHAR","count":"BIGINT","sum":"DOUBLE","bucketCounts":["BIGINT"],"explicitBounds":["DOUBLE"]}'
)

_POINTS = """
create temp table given as
select
    json->'$.resourceMetrics[0].resource.attributes' as resource,
    unnest(json->'$.resourceMetrics[*].scopeMetrics[*].metrics[*]') as m
from read_json_objects('{given}/*.json', format = 'newline_delimited', maximum_object_size = 16777216);

create temp table metric as
select
    resource::varchar as resource, m->>'name' as metric, m->>'unit' as unit,
    case when (m->'histogram') is not null then 'histogram'
        when (m->>'$.sum.isMonotonic') = 'true' then 'counter' else 'gauge' end as kind,
    coalesce(m->>'$.sum.aggregationTemporality', m->>'$.histogram.aggregationTemporality') as given,
    m->'$.*.dataPoints[*]' as points
from given;
drop table given;

create temp table flat as
with point as (
    select resource, metric, unit, kind,
        case given when '1' then 'delta' when '2' then 'cumulative' end as temporality,
        unnest(points) as p
    from metric
), typed as (
    select * exclude (p), from_json(p, '{point}') as p from point
)
select
    hash(resource, metric, kind, p.attributes, p.explicitBounds) as raw,
    resource, metric, unit, kind, temporality, p.attributes::varchar as attributes,
    p.explicitBounds as bounds,
    make_timestamp(p.timeUnixNano::bigint // 1000) as ts,
    case when kind <> 'gauge' then make_timestamp(p.startTimeUnixNano::bigint // 1000) end as start,
    coalesce(p.asDouble, p.asInt::double) as value, p.count as count, p.sum as sum, p.bucketCounts as counts
from typed;

create temp table label as
with kinds as (
    select raw, any_value(resource) as resource, any_value(metric) as metric, any_value(unit) as unit,
        any_value(kind) as kind, any_value(attributes) as attributes, any_value(bounds) as bounds
    from flat group by raw
), taken as (
    select *,
        map_from_entries(list_transform(from_json(attributes, '{attributes}'),
            lambda a: row(a.key, coalesce(a.value.stringValue, a.value.intValue)))) as l,
        map_from_entries(list_transform(from_json(resource, '{attributes}'),
            lambda a: row(a.key, coalesce(a.value.stringValue, a.value.intValue)))) as r
    from kinds
), named as (
    select raw, metric, unit, kind, bounds,
        coalesce(l['engine'], l['messaging.system']) as engine,
        coalesce(l['database'], r['db.namespace']) as database,
        coalesce(l['queue'], l['messaging.destination.name']) as queue,
        coalesce(l['consumer'], l['messaging.consumer.group.name']) as consumer,
        l['check'] as "check", l['state'] as state
    from taken
)
select *,
    hash(metric, kind, engine, database, queue, consumer, "check", state, bounds) as series_id,
    hash(engine, database, queue, consumer) as entity_id
from named;

create temp table point as
select ts::date as date, series_id, ts, temporality, start, value, count, sum, counts
from (
    select f.*, l.series_id,
        row_number() over (
            partition by l.series_id, f.ts
            order by f.value desc nulls last, f.count desc nulls last, f.start desc nulls last
        ) as rank
    from flat as f join label as l using (raw)
)
where rank = 1;

copy (select * from point order by date, series_id, ts) to '{target}/points'
    (format parquet, partition_by (date));
drop table flat;
drop table metric;
"""

_TABLES = """
create temp table series as
select p.date, p.series_id, l.entity_id, l.metric, l.kind, l.unit, l.engine, l.database, l.queue, l.consumer,
    l."check", l.state, l.bounds, p.first_seen, p.last_seen, p.points
from (
    select date, series_id, min(ts) as first_seen, max(ts) as last_seen, count(*) as points
    from point group by all
) as p
join (select distinct on (series_id) * from label) as l using (series_id);
copy series to '{target}/series' (format parquet, partition_by (date));

create temp table rollup_1m as
with step as (
    select *,
        temporality = 'cumulative' and lag(temporality) over w = 'cumulative'
            and epoch_us(ts) - epoch_us(lag(ts) over w) <= 86400000000 as follows,
        (epoch_us(ts) - epoch_us(lag(ts) over w)) / 1e6 as since,
        lag(value) over w as before, lag(count) over w as count_before,
        lag(sum) over w as sum_before, lag(counts) over w as counts_before
    from point where value is not null or count is not null
    window w as (partition by series_id order by ts)
), judged as (
    select *, coalesce(follows and (value < before or count < count_before), false) as fell from step
), grown as (
    select *,
        case when temporality = 'delta' then coalesce(value, count)
            when not coalesce(follows, false) then null
            when fell and start = ts then 0 when fell then coalesce(value, count)
            else coalesce(value - before, count - count_before) end as increase,
        case when temporality = 'delta' then sum when not coalesce(follows, false) then null
            when fell and start = ts then 0 when fell then sum else sum - sum_before end as sum_increase,
        case when counts is null then null when temporality = 'delta' then counts
            when not coalesce(follows, false) then null when fell then counts
            else list_transform(list_zip(counts, counts_before), lambda c: c[1] - c[2]) end as buckets
    from judged
)
select date, series_id, date_trunc('minute', ts) as window_start, count(*) as samples,
    sum(value) as sum, min(value) as min, max(value) as max, arg_min(value, ts) as first,
    arg_max(value, ts) as last, min(ts) as first_ts, max(ts) as last_ts, sum(increase) as increase,
    sum(case when temporality = 'cumulative' then fell::int end) as resets,
    sum(case when temporality = 'delta' then epoch_us(ts) - epoch_us(start) when follows then since end)
        as covered_seconds,
    sum(sum_increase) as sum_increase, {added}
from grown group by date, series_id, window_start;
copy (select * from rollup_1m order by date, series_id, window_start) to '{target}/rollup_1m'
    (format parquet, partition_by (date));

create temp table rollup_1h as {hours};
copy (select * from rollup_1h order by date, series_id, window_start) to '{target}/rollup_1h'
    (format parquet, partition_by (date));
create temp table rollup_1d as {days};
copy rollup_1d to '{target}/rollup_1d' (format parquet, partition_by (date));

copy (
    select r.date, window_start, entity_id, engine, database, queue, consumer,
        {flows}
    from rollup_1h as r join series as s using (date, series_id)
    where increase is not null and metric in (select unnest({flow_metrics}))
    group by all
) to '{target}/flow' (format parquet, partition_by (date));

copy (
    select p.date, date_trunc('hour', ts) as window_start, entity_id, engine, database, queue, consumer,
        'samples' as source, count(*) as observations, avg(value) as mean,
        quantile_cont(value, [0.5, 0.9, 0.95, 0.99]) as percentiles
    from point as p join series as s using (date, series_id)
    where metric = 'pgque.consumer.lag_seconds' and value is not null
    group by all
    union all
    select date, window_start, entity_id, engine, database, queue, consumer, 'histogram', increase,
        sum_increase / increase,
        list_transform([0.5, 0.9, 0.95, 0.99], lambda q: list_reduce(
            list_transform(range(1, len(bucket_increase) + 1),
                lambda i: struct_pack(i := i, n := list_sum(bucket_increase[1:i]))),
            lambda a, b: if(a.n >= q * increase, a, b)).i)
    from rollup_1h as r join series as s using (date, series_id)
    where metric = 'pgque.processing_latency_seconds' and increase > 0
) to '{target}/latency' (format parquet, partition_by (date));

create temp table health as
with sample as (
    select p.date, entity_id, "check", ts,
        max(list_position(['ok', 'unknown', 'warning', 'critical'], state)) as rank
    from point as p join series as s using (date, series_id)
    where metric = 'pgque.queue.health_state' and value = 1 group by all
), turn as (
    select *, lead(ts) over w as after,
        lag(rank) over w is distinct from rank
            or epoch_us(ts) - epoch_us(lag(ts) over w) > 300000000 as new
    from sample window w as (partition by date, entity_id, "check" order by ts)
), numbered as (
    select *, sum(new::int) over (partition by date, entity_id, "check" order by ts) as turn from turn
)
select date, entity_id, "check", rank, min(ts) as started,
    max(if(epoch_us(after) - epoch_us(ts) <= 300000000, after, ts)) as ended, count(*) as samples
from numbered group by date, entity_id, "check", turn, rank;
copy health to '{target}/health' (format parquet, partition_by (date));

copy (
    with turn as (
        select *, lead(started) over w as next,
            count(*) filter (rank = 1) over (partition by entity_id, "check" order by started) as episode
        from health window w as (partition by entity_id, "check" order by started)
    ), bad as (
        select *, min(started) filter (rank >= 3) over (partition by entity_id, "check", episode) as begin
        from turn
    )
    select entity_id, "check", episode, min(begin) as started, arg_max(next, started) as ended,
        max(rank) as worst,
        sum(epoch_us(ended) - epoch_us(started)) filter (rank = 3) / 1e6 as warning_seconds,
        sum(epoch_us(ended) - epoch_us(started)) filter (rank = 4) / 1e6 as critical_seconds,
        sum(samples) filter (rank >= 3) as samples
    from bad where started >= begin group by entity_id, "check", episode
) to '{target}/incidents.parquet';

create temp table sli as
select p.date, date_trunc('hour', ts) as window_start, entity_id,
    if(metric = 'pgque.queue.health_status', 'health', 'lag') as objective,
    sum((value <= if(metric = 'pgque.queue.health_status', 1, 60))::int)::double as good,
    count(*)::double as total
from point as p join series as s using (date, series_id)
where metric in ('pgque.queue.health_status', 'pgque.consumer.lag_seconds') and value is not null group by all
union all
select r.date, window_start, entity_id, 'delivery',
    sum(if(metric = 'pgque.message.acked_total', increase, 0)), sum(increase)
from rollup_1h as r join series as s using (date, series_id)
where metric in ('pgque.message.acked_total', 'pgque.message.dead_lettered_total') and increase is not null
group by all having sum(increase) > 0;
copy sli to '{target}/sli' (format parquet, partition_by (date));

create temp table slo as
with newest as (select max(window_start) + interval 1 hour as as_of from sli)
select as_of, hours, objective, entity_id, sum(good) as good, sum(total) as total,
    sum(good) / sum(total) as attainment
from sli, newest, (select unnest([1, 6, 24, 72, 168, 672, 2160]) as hours)
where window_start >= as_of - to_hours(hours) group by all;
copy slo to '{target}/slo.parquet';

create temp table baselines as
with newest as (select max(window_start) + interval 1 hour as as_of from rollup_1h), hour as (
    select r.series_id, (isodow(window_start) - 1) * 24 + hour(window_start) as hour_of_week,
        if(kind = 'gauge', sum / samples, increase / nullif(covered_seconds, 0)) as value
    from rollup_1h as r join (select distinct on (series_id) * from label) as l using (series_id), newest
    where window_start >= as_of - interval 56 days and metric in (select unnest({baseline_metrics}))
), middle as (
    select series_id, hour_of_week, count(*) as hours, median(value) as median
    from hour where value is not null group by all having count(*) >= 3
)
select m.series_id, m.hour_of_week, any_value(hours) as hours, any_value(median) as median,
    median(abs(value - median)) as mad
from middle as m join hour as h using (series_id, hour_of_week) where value is not null group by all;
copy baselines to '{target}/baselines.parquet';

create temp table forecast as
with newest as (select max(last_ts) as as_of from rollup_1m), minute as (
    select l.*, last, (epoch_us(last_ts) - epoch_us(as_of)) / 1e6 as x
    from rollup_1m as r join (select distinct on (series_id) * from label) as l using (series_id), newest
    where last_ts >= as_of - interval 6 hours
        and metric in ('pgque.consumer.lag_seconds', 'pgque.queue.rotation_period_seconds')
), period as (
    select engine, database, queue, arg_max(last, x) as period from minute
    where metric = 'pgque.queue.rotation_period_seconds' group by all
)
select entity_id, count(*) as samples, arg_max(last, x) as lag, regr_slope(last, x) as slope,
    regr_sxx(last, x) as sxx, regr_syy(last, x) as syy, any_value(period) as period
from minute join period using (engine, database, queue)
where metric = 'pgque.consumer.lag_seconds' group by entity_id having count(*) >= 10;
copy forecast to '{target}/forecast.parquet';
"""

_FLOWS = {
    "sent": "pgque.message.sent_total",
    "acked": "pgque.message.acked_total",
    "nacked": "pgque.message.nacked_total",
    "redelivered": "pgque.message.redelivered_total",
    "dead_lettered": "pgque.message.dead_lettered_total",
}


def _merged(table: str, window: str) -> str:
    return f"""
        select date, series_id, date_trunc('{window}', window_start) as window_start, sum(samples) as samples,
            sum(sum) as sum, min(min) as min, max(max) as max, arg_min(first, first_ts) as first,
            arg_max(last, last_ts) as last, min(first_ts) as first_ts, max(last_ts) as last_ts,
            sum(increase) as increase, sum(resets) as resets, sum(covered_seconds) as covered_seconds,
            sum(sum_increase) as sum_increase, {_added("bucket_increase")}
        from {table} group by date, series_id, date_trunc('{window}', window_start)"""


def _added(column: str = "buckets") -> str:
    # One sum for each bucket: what a list of lists needs is far slower.
    sums = ", ".join(f"sum({column}[{n}])" for n in range(1, 13))
    return f"case when sum({column}[1]) is not null then [{sums}] end as bucket_increase"


def main() -> int:
    what, given, target, *rest = sys.argv[1:]
    shutil.rmtree(target, ignore_errors=True)
    Path(target).mkdir(parents=True)
    began = time.perf_counter()
    connection = duckdb.connect()
    connection.execute(
        f"set threads = 2; set memory_limit = '12GB'; set temp_directory = '{target}/spill'; "
        "set TimeZone = 'UTC'; set preserve_insertion_order = false"
    )
    connection.execute(_POINTS.format(given=given, target=target, point=_POINT, attributes=_ATTRIBUTES))
    found: dict[str, Any] = {"points_seconds": time.perf_counter() - began}
    counts = {"points": "point"}
    if what == "run":
        flows = ", ".join(
            f"sum(increase) filter (metric = '{metric}') as {name}, "
            f"sum(increase) filter (metric = '{metric}') / sum(covered_seconds) filter (metric = '{metric}') "
            f"as {name}_per_second"
            for name, metric in _FLOWS.items()
        )
        from pgque_pipeline.tables.baselines import METRICS

        connection.execute(
            _TABLES.format(
                target=target,
                flows=flows,
                added=_added(),
                flow_metrics=[*_FLOWS.values()],
                baseline_metrics=[*METRICS],
                hours=_merged("rollup_1m", "hour"),
                days=_merged("rollup_1h", "day"),
            )
        )
        _publish(connection, rest[0])
        counts |= {
            name: name
            for name in ("series", "rollup_1m", "rollup_1h", "health", "sli", "slo", "baselines", "forecast")
        }
    found["seconds"] = time.perf_counter() - began
    tables = {
        name: connection.execute(f"select count(*) from {table}").fetchone() for name, table in counts.items()
    }
    found["rows"] = {name: row[0] for name, row in tables.items() if row}
    found["sum"] = connection.execute("select sum(value) from point").fetchall()[0][0]
    print(json.dumps(found))
    return 0


def _publish(connection: duckdb.DuckDBPyConnection, dsn: str) -> None:
    """Baselines, SLOs and forecasts by COPY, in one transaction."""
    import psycopg

    with psycopg.connect(dsn) as target:
        for name in ("baselines", "slo", "forecast"):
            rows = connection.execute(f"select * from {name}")
            columns = ", ".join(f'"{column[0]}" text' for column in rows.description)
            target.execute(f"drop table if exists peer_{name}")
            target.execute(f"create table peer_{name} ({columns})")
            with target.cursor().copy(f"copy peer_{name} from stdin") as copy:
                while batch := rows.fetchmany(10_000):
                    for row in batch:
                        copy.write_row(row)


if __name__ == "__main__":
    sys.exit(main())
