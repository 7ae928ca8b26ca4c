-- All that can be charted, in one statement and one snapshot: the metrics of specification 5.2, and
-- health. A value that isn't known makes no row. Where the pack's instrumentation is installed, what it
-- counts comes along.
--
-- Health comes as one number per queue and per consumer, the worst of its checks (0 ok, 1 warning,
-- 2 critical), and as one row of value 1 for each check that isn't ok, labelled with its state; the
-- checks of health_checks() that have no row are ok. Rows for all that is well would be a third of the
-- whole.
--
-- The body is bound when it is made, so no search path can change what its names mean, and it becomes a
-- part of the query that calls it: ten thousand rows needn't be stored before they are read.
create or replace function {pack}.otel_metrics()
returns table (metric_name text, metric_type text, value numeric, labels jsonb)
language sql
stable
begin atomic
    with observed as materialized (
        select o.queues, o.consumers from {pack}.observed() o
    ),
    queue_state as materialized (
        select s.*
        from observed o
        cross join lateral {pack}.queue_states(o.queues) s
    ),
    consumer_state as materialized (
        select s.*
        from observed o
        cross join lateral {pack}.consumer_states(o.consumers) s
    )
    select v.metric_name, v.metric_type, v.value, q.labels
    from (
        select q.*, jsonb_build_object('queue', q.queue_name) as labels
        from observed o
        cross join lateral unnest(o.queues) q
        offset 0  -- build the labels once for all rows
    ) q
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
    from (
        select c.*, jsonb_build_object('queue', c.queue_name, 'consumer', c.consumer_name) as labels
        from observed o
        cross join lateral unnest(o.consumers) c
        offset 0
    ) c
    cross join lateral (values
        ('pgque.consumer.lag_seconds', 'gauge', extract(epoch from c.lag)),
        ('pgque.consumer.pending_events', 'gauge', c.pending),
        ('pgque.consumer.idle_seconds', 'gauge',
            case when c.last_active > now() then 0 else extract(epoch from now() - c.last_active) end),
        -- A position that is moved by hand takes this along; the instrumentation counts one by one.
        ('pgque.message.acked_total', 'counter',
            case when (select to_regprocedure('{pack}.instrumented_metrics()') is null) then c.acked end)
    ) v(metric_name, metric_type, value)
    where v.value is not null
    union all
    select v.metric_name, 'gauge', v.value,
        jsonb_build_object('queue', c.queue_name, 'consumer', c.consumer_name)
    from observed o
    cross join lateral unnest(o.consumers) c
    cross join lateral (values
        ('pgque.consumer.open_batch_events', c.open_events::numeric),
        ('pgque.consumer.open_batch_age_seconds', greatest(extract(epoch from now() - c.open_since), 0))
    ) v(metric_name, value)
    where c.open_batches > 0 and v.value is not null
    union all
    select 'pgque.queue.health_status', 'gauge', s.worst, jsonb_build_object('queue', s.queue_name)
    from queue_state s
    union all
    select 'pgque.queue.health_status', 'gauge', s.worst,
        jsonb_build_object('queue', s.queue_name, 'consumer', s.consumer_name)
    from consumer_state s
    where s.worst is not null
    union all
    select 'pgque.queue.health_state', 'gauge', 1,
        jsonb_build_object('queue', s.queue_name, 'check', v.check_name, 'state', v.state)
    from queue_state s
    cross join lateral (values
        ('ticker_running', s.ticker_running),
        ('paused', s.paused),
        ('xid_regression', s.xid_regression),
        ('no_consumers', s.no_consumers),
        ('rotation_health', s.rotation_health),
        ('dlq_health', s.dlq_health),
        ('retry_overdue', s.retry_overdue)
    ) v(check_name, state)
    where s.worst > 0 and v.state <> 'ok'
    union all
    select 'pgque.queue.health_state', 'gauge', 1,
        jsonb_build_object('queue', s.queue_name, 'consumer', s.consumer_name, 'check', v.check_name, 'state', v.state)
    from consumer_state s
    cross join lateral (values
        ('missing_tick', s.missing_tick),
        ('consumer_lag', s.consumer_lag),
        ('consumer_stuck', s.consumer_stuck)
    ) v(check_name, state)
    where (s.worst = 0) is not true and v.state <> 'ok'
    union all
    select s.metric_name, s.metric_type, s.value, s.labels from {pack}.scheduler_metrics() s
    union all
    select i.metric_name, i.metric_type, i.value, i.labels
    from {pack}.instrumentation_rows() i;
end;

revoke all on function {pack}.otel_metrics() from public;
grant execute on function {pack}.otel_metrics() to pgque_monitor;
