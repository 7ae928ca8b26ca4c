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
    queue as materialized (
        select
            s.ticker_running, s.paused, s.xid_regression, s.no_consumers, s.rotation_health, s.dlq_health,
            s.retry_overdue, s.worst, (s.queue).queue_name, (s.queue).sent,
            jsonb_object(array['queue', (s.queue).queue_name]) as labels,
            array[
                s.worst,
                (s.queue).depth,
                extract(epoch from (s.queue).oldest),
                (s.queue).events_per_sec,
                (s.queue).consumers,
                (s.queue).unticked,
                (s.queue).paused::int4,
                greatest(extract(epoch from now() - (s.queue).switch_time), 0),
                extract(epoch from (s.queue).rotation_period),
                case when (s.queue).last_tick_time > now() then 0
                    else extract(epoch from now() - (s.queue).last_tick_time) end,
                (s.queue).retries,
                (s.queue).dead_letters
            ] as gauges
        from observed o
        cross join lateral {pack}.queue_states(o.queues) s
    ),
    consumer as materialized (
        select
            s.missing_tick, s.consumer_lag, s.consumer_stuck, s.worst, (s.consumer).queue_name,
            (s.consumer).consumer_name, (s.consumer).acked, (s.consumer).open_batches, (s.consumer).open_events,
            (s.consumer).open_since,
            jsonb_object(array['queue', (s.consumer).queue_name, 'consumer', (s.consumer).consumer_name])
                as labels,
            array[
                s.worst,
                extract(epoch from (s.consumer).lag),
                (s.consumer).pending,
                case when (s.consumer).last_active > now() then 0
                    else extract(epoch from now() - (s.consumer).last_active) end
            ] as gauges
        from observed o
        cross join lateral {pack}.consumer_states(o.consumers) s
    )
    select m.metric_name, 'gauge' as metric_type, m.value, m.labels
    from (
        select
            unnest(array[
                'pgque.queue.health_status',
                'pgque.queue.depth',
                'pgque.queue.oldest_message_age_seconds',
                'pgque.queue.throughput',
                'pgque.queue.consumers',
                'pgque.queue.unticked_events',
                'pgque.queue.paused',
                'pgque.queue.rotation_age_seconds',
                'pgque.queue.rotation_period_seconds',
                'pgque.ticker.last_tick_age_seconds',
                'pgque.message.retry_waiting',
                'pgque.message.dead_lettered'
            ]) as metric_name,
            unnest(q.gauges) as value,
            q.labels
        from queue q
        union all
        select
            unnest(array[
                'pgque.queue.health_status',
                'pgque.consumer.lag_seconds',
                'pgque.consumer.pending_events',
                'pgque.consumer.idle_seconds'
            ]),
            unnest(c.gauges),
            c.labels
        from consumer c
    ) m
    where m.value is not null
    union all
    select v.metric_name, 'gauge', v.value, c.labels
    from consumer c
    cross join lateral (values
        ('pgque.consumer.open_batch_events', c.open_events::numeric),
        ('pgque.consumer.open_batch_age_seconds', greatest(extract(epoch from now() - c.open_since), 0))
    ) v(metric_name, value)
    where c.open_batches > 0 and v.value is not null
    union all
    select 'pgque.message.sent_total', 'counter', q.sent, q.labels
    from queue q
    where q.sent is not null
    union all
    -- A position that is moved by hand takes this along; the instrumentation counts one by one.
    select 'pgque.message.acked_total', 'counter', c.acked, c.labels
    from consumer c
    where c.acked is not null and (select to_regprocedure('{pack}.instrumented_metrics()') is null)
    union all
    select 'pgque.queue.health_state', 'gauge', 1, q.labels || jsonb_build_object('check', v.check_name, 'state', v.state)
    from queue q
    cross join lateral (values
        ('ticker_running', q.ticker_running),
        ('paused', q.paused),
        ('xid_regression', q.xid_regression),
        ('no_consumers', q.no_consumers),
        ('rotation_health', q.rotation_health),
        ('dlq_health', q.dlq_health),
        ('retry_overdue', q.retry_overdue)
    ) v(check_name, state)
    where q.worst > 0 and v.state <> 'ok'
    union all
    select 'pgque.queue.health_state', 'gauge', 1, c.labels || jsonb_build_object('check', v.check_name, 'state', v.state)
    from consumer c
    cross join lateral (values
        ('missing_tick', c.missing_tick),
        ('consumer_lag', c.consumer_lag),
        ('consumer_stuck', c.consumer_stuck)
    ) v(check_name, state)
    where (c.worst = 0) is not true and v.state <> 'ok'
    union all
    select s.metric_name, s.metric_type, s.value, s.labels from {pack}.scheduler_metrics() s
    union all
    select i.metric_name, i.metric_type, i.value, i.labels
    from {pack}.instrumentation_rows() i;
end;

revoke all on function {pack}.otel_metrics() from public;
grant execute on function {pack}.otel_metrics() to pgque_monitor;
