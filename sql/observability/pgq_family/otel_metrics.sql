-- All that can be charted, in one statement and one snapshot: the metrics of specification 5.2 and the
-- health checks as rows. A value that isn't known makes no row. Health is one row of value 1 per check,
-- labelled with the state it is in.
create or replace function {pack}.otel_metrics()
returns table (metric_name text, metric_type text, value numeric, labels jsonb)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set jit = off
set work_mem = '32MB'  -- rows of a thousand queues needn't go through a file
rows 10000
as $$
#variable_conflict use_column
begin
    return query
    with observed as materialized (
        select o.queues, o.consumers from {pack}.observed() o
    ),
    queue as materialized (
        select q.*, jsonb_build_object('queue', q.queue_name) as labels
        from observed o
        cross join lateral unnest(o.queues) q
    ),
    consumer as materialized (
        select c.*, jsonb_build_object('queue', c.queue_name, 'consumer', c.consumer_name) as labels
        from observed o
        cross join lateral unnest(o.consumers) c
    )
    select v.metric_name, v.metric_type, v.value, q.labels
    from queue q
    cross join lateral (values
        ('pgque.queue.depth', 'gauge', q.depth::numeric),
        ('pgque.queue.oldest_message_age_seconds', 'gauge', extract(epoch from q.oldest)),
        ('pgque.queue.throughput', 'gauge', q.events_per_sec),
        ('pgque.queue.consumers', 'gauge', q.consumers),
        ('pgque.queue.unticked_events', 'gauge', q.unticked),
        ('pgque.queue.paused', 'gauge', q.paused::int4),
        ('pgque.queue.rotation_age_seconds', 'gauge', greatest(extract(epoch from now() - q.switch_time), 0)),
        ('pgque.queue.rotation_period_seconds', 'gauge', extract(epoch from q.rotation_period)),
        ('pgque.ticker.last_tick_age_seconds', 'gauge',
            case when q.last_tick_time > now() then 0 else extract(epoch from now() - q.last_tick_time) end),
        ('pgque.message.sent_total', 'counter', q.sent),
        ('pgque.message.retry_waiting', 'gauge', q.retries),
        ('pgque.message.dead_lettered', 'gauge', q.dead_letters)
    ) v(metric_name, metric_type, value)
    where v.value is not null
    union all
    select v.metric_name, v.metric_type, v.value, c.labels
    from consumer c
    cross join lateral (values
        ('pgque.consumer.lag_seconds', 'gauge', extract(epoch from c.lag)),
        ('pgque.consumer.pending_events', 'gauge', c.pending),
        ('pgque.consumer.idle_seconds', 'gauge',
            case when c.last_active > now() then 0 else extract(epoch from now() - c.last_active) end),
        ('pgque.consumer.open_batch_events', 'gauge', c.open_events),
        ('pgque.consumer.open_batch_age_seconds', 'gauge',
            case when c.open_since > now() then 0 else extract(epoch from now() - c.open_since) end),
        ('pgque.message.acked_total', 'counter', c.acked)
    ) v(metric_name, metric_type, value)
    where v.value is not null
    union all
    select
        'pgque.queue.health_state',
        'gauge',
        1::numeric,
        jsonb_object(case when h.consumer_name is null
            then array['queue', h.queue_name, 'check', h.check_name, 'state', h.status]
            else array['queue', h.queue_name, 'consumer', h.consumer_name, 'check', h.check_name, 'state', h.status]
        end)
    from observed o
    cross join lateral {pack}.health_states(o.queues, o.consumers) h;
end
$$;

revoke all on function {pack}.otel_metrics() from public;
grant execute on function {pack}.otel_metrics() to pgque_monitor;
