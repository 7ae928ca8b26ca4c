-- What otel_metrics() tells of pg_cron's jobs: the state of their checks, and how long the ticker took when
-- it ran last. That is unknown for a job that does anything beside one call of ticker(): a loop fills its time.
create or replace function {pack}.scheduler_metrics()
returns table (metric_name text, metric_type text, value numeric, labels jsonb)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
    select m.metric_name, 'gauge', m.value, m.labels
    from {pack}.scheduler_states() s
    cross join lateral (values
        ('pgque.queue.health_state', 1::numeric,
            jsonb_build_object('queue', 'system', 'check', 'pg_cron_' || s.task, 'state', s.status)),
        ('pgque.ticker.duration_seconds', extract(epoch from s.tick_duration), '{}'::jsonb)
    ) m(metric_name, value, labels)
    where m.value is not null
$$;

revoke all on function {pack}.scheduler_metrics() from public;
grant execute on function {pack}.scheduler_metrics() to pgque_monitor;
