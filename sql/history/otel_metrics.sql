-- What is normal at this hour, how promises are kept, when rotation will be blocked, and how old that
-- knowledge is. A table whose time is over is left out: better nothing than an old forecast.
create or replace function queue_history.otel_metrics()
returns table (metric_name text, metric_type text, value double precision, labels jsonb)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
    with valid as materialized (
        select table_name, time_zone
        from queue_history.publication
        where valid_until > now()
    ),
    this_hour as materialized (
        select (extract(isodow from at_place) - 1) * 24 + extract(hour from at_place) as hour_of_week
        from (
            select now() at time zone time_zone as at_place
            from valid
            where table_name = 'baseline'
        ) as clock
    ),
    baseline as (
        select
            b.median, b.low, b.high,
            jsonb_build_object(
                'engine', b.engine, 'database', b.database, 'queue', b.queue, 'consumer', b.consumer,
                'metric', b.metric
            ) as labels
        from queue_history.baseline as b
        where b.hour_of_week = (select hour_of_week::smallint from this_hour)
    ),
    slo as (
        select
            s.target, s.attainment, s.burn, s.budget_left,
            jsonb_build_object(
                'engine', s.engine, 'database', s.database, 'queue', s.queue, 'consumer', s.consumer,
                'objective', s.objective, 'window', s.window_hours || 'h'
            ) as labels
        from queue_history.slo as s
        where exists (select from valid where table_name = 'slo')
    ),
    forecast as (
        select
            f.seconds_left, f.seconds_left_low, f.seconds_left_high,
            extract(epoch from now() - f.as_of) as age,
            jsonb_build_object(
                'engine', f.engine, 'database', f.database, 'queue', f.queue, 'consumer', f.consumer
            ) as labels
        from queue_history.forecast as f
        where exists (select from valid where table_name = 'forecast')
    )
    select v.metric_name, 'gauge', v.value, b.labels
    from baseline as b
    cross join lateral (
        values ('pgque.baseline.median', b.median), ('pgque.baseline.low', b.low), ('pgque.baseline.high', b.high)
    ) as v (metric_name, value)
    union all
    select v.metric_name, 'gauge', v.value, s.labels
    from slo as s
    cross join lateral (
        values
            ('pgque.slo.target_ratio', s.target),
            ('pgque.slo.attainment_ratio', s.attainment),
            ('pgque.slo.burn_rate', s.burn),
            ('pgque.slo.budget_left_ratio', s.budget_left)
    ) as v (metric_name, value)
    union all
    -- Time has passed since the newest metric that a forecast knows.
    select v.metric_name, 'gauge', greatest(0, v.seconds - f.age), f.labels
    from forecast as f
    cross join lateral (
        values
            ('pgque.forecast.rotation_blocked_in_seconds', f.seconds_left),
            ('pgque.forecast.rotation_blocked_in_low_seconds', f.seconds_left_low),
            ('pgque.forecast.rotation_blocked_in_high_seconds', f.seconds_left_high)
    ) as v (metric_name, seconds)
    where v.seconds is not null
    union all
    select
        'pgque.history.as_of_timestamp_seconds', 'gauge', extract(epoch from p.as_of),
        jsonb_build_object('table', p.table_name)
    from queue_history.publication as p
$$;

revoke all on function queue_history.otel_metrics() from public;
grant execute on function queue_history.otel_metrics() to pgque_monitor;
