-- Does a schema offer the contract, whole and safe? One row per finding, none when all is well. With
-- instrumentation installed that is part of it.
-- The schema is named by: set pgque_exporter.schema = 'pgque';
with expected(name, arguments, result) as (
    values
        ('observability_info', '', 'TABLE(engine text, engine_version text, pack_version text)'),
        ('queue_stats', '', 'TABLE(queue_name text, queue_id integer, depth bigint, oldest_msg_age interval, '
            'consumers integer, events_per_sec numeric, cur_table integer, rotation_age interval, '
            'rotation_period interval, ticker_paused boolean, last_tick_time timestamp with time zone, '
            'last_tick_id bigint, dlq_count bigint)'),
        ('consumer_stats', '', 'TABLE(queue_name text, consumer_name text, lag interval, pending_events bigint, '
            'last_seen timestamp with time zone, batch_active boolean, batch_id bigint)'),
        ('health_checks', '', 'TABLE(check_name text, subject text, meaning text)'),
        ('queue_health', '', 'TABLE(queue_name text, check_name text, status text, detail text)'),
        ('otel_metrics', '', 'TABLE(metric_name text, metric_type text, value numeric, labels jsonb)'),
        ('throughput', 'text, interval, interval',
            'TABLE(bucket_start timestamp with time zone, events bigint, events_per_sec numeric)'),
        ('error_rate', 'text, interval, interval',
            'TABLE(bucket_start timestamp with time zone, retries bigint, dead_letters bigint)'),
        ('latency_percentiles', 'text, text, interval', 'TABLE(p50 interval, p95 interval, p99 interval)'),
        ('in_flight', 'text',
            'TABLE(consumer_name text, batch_id bigint, batch_age interval, estimated_events bigint)'),
        ('stuck_consumers', 'interval',
            'TABLE(queue_name text, consumer_name text, lag interval, last_active timestamp with time zone)'),
        ('dead_letters', 'bigint, integer',
            'TABLE(dead_letter_id bigint, queue_name text, consumer_name text, dead_at timestamp with time zone, '
            'event_type text, reason text)')
    union all
    select 'instrumented_metrics', '', 'TABLE(metric_name text, metric_type text, value numeric, labels jsonb)'
    from pg_catalog.pg_proc p
    where p.proname = 'instrumented_metrics'
        and p.pronamespace = to_regnamespace(quote_ident(current_setting('pgque_exporter.schema')))
),
actual as (
    select
        e.name || '(' || e.arguments || ')' as object,
        e.result as expected_result,
        p.oid,
        pg_get_function_result(p.oid) as result,
        p.provolatile,
        p.proconfig,
        p.prosqlbody is not null as is_bound  -- its names were looked up when it was made
    from expected e
    left join pg_catalog.pg_proc p
        on p.proname = e.name
        and p.pronamespace = to_regnamespace(quote_ident(current_setting('pgque_exporter.schema')))
        and oidvectortypes(p.proargtypes) = e.arguments
)
select a.object, f.problem
from actual a
cross join lateral (values
    (a.oid is null, 'is missing: install the pack'),
    (a.result <> a.expected_result, 'returns ' || a.result || ', expected ' || a.expected_result),
    (a.provolatile <> 's', 'is not STABLE'),
    (not coalesce(a.is_bound or 'search_path=pg_catalog, pg_temp' = any (a.proconfig), false)
            and a.oid is not null,
        'has no pinned search_path'),
    (a.oid is not null and has_function_privilege('public', a.oid, 'execute'),
        'may be executed by everyone: PUBLIC must not'),
    (a.oid is not null and exists (select from pg_catalog.pg_roles where rolname = 'pgque_monitor')
        and not has_function_privilege('pgque_monitor', a.oid, 'execute'),
        'may not be executed by pgque_monitor'),
    (a.oid is not null and not exists (select from pg_catalog.pg_roles where rolname = 'pgque_monitor'),
        'there is no role pgque_monitor')
) f(found, problem)
where f.found
union all
-- What runs with its owner's rights must not pick up what a caller planted.
select p.proname || '(' || oidvectortypes(p.proargtypes) || ')', 'is SECURITY DEFINER without a pinned search_path'
from pg_catalog.pg_proc p
where p.pronamespace = to_regnamespace(quote_ident(current_setting('pgque_exporter.schema')))
    and p.prosecdef
    and p.prosqlbody is null
    and not exists (select from unnest(p.proconfig) setting where setting like 'search_path=%')
union all
select p.proname || '()', 'is called by no enabled trigger: what it should count is missing'
from pg_catalog.pg_proc p
where p.pronamespace = to_regnamespace(quote_ident(current_setting('pgque_exporter.schema')))
    and p.proname like 'instrument\_%' and p.prorettype = 'trigger'::regtype
    and not exists (
        select from pg_catalog.pg_trigger g where g.tgfoid = p.oid and g.tgenabled in ('O', 'A'))
order by 1, 2;
