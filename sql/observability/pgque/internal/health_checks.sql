-- The judgement: what each queue and consumer was observed to be, turned into ok, warning, critical or
-- unknown with a sentence for the person who gets paged. Cause and symptom are kept apart: a consumer is
-- judged by the events it could take, the ticker by those that wait for a tick.
create or replace function pgque.health_checks(
    queues pgque.observed_queue[],
    consumers pgque.observed_consumer[])
returns table (queue_name text, consumer_name text, check_name text, status text, detail text)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
rows 5000
as $$
    with queue as materialized (
        select
            q.*,
            now() - q.last_tick_time as tick_age,
            q.ticker_idle_period * 1.5 + interval '30 seconds' as tick_overdue_after,
            now() - q.switch_time as rotation_age
        from unnest(queues) q
    ),
    consumer as materialized (
        select c.*, q.rotation_period
        from unnest(consumers) c
        join queue q on q.queue_id = c.queue_id
    ),
    per_queue as (
        select c.queue_id, count(*) as consumers,
            -- the slowest of those that rotation waits for
            (array_agg(c.consumer_name order by c.lag desc nulls first)
                filter (where c.holds_rotation or c.missing_tick))[1] as blocking
        from consumer c
        group by c.queue_id
    ),
    overdue_retry as (
        select r.ev_queue, min(r.ev_retry_after) as since, count(*) as counted
        from (
            select r.ev_queue, r.ev_retry_after
            from pgque.retry_queue r
            where r.ev_retry_after < now() - interval '5 minutes'
            order by r.ev_retry_after
            limit 10000
        ) r
        group by r.ev_queue
    )
    select q.queue_name, null::text, v.check_name, v.status, v.detail
    from queue q
    left join per_queue p on p.queue_id = q.queue_id
    left join overdue_retry r on r.ev_queue = q.queue_id
    cross join lateral (values
        (
            'ticker_running',
            case
                when q.paused then 'ok'
                when q.last_tick_time is null then 'critical'
                when q.external_ticker then 'ok'
                when q.tick_age > q.tick_overdue_after then 'critical'
                when now() - q.unticked_since > q.ticker_max_lag + interval '10 seconds' then 'critical'
                else 'ok'
            end,
            case
                when q.paused then 'paused by configuration'
                when q.last_tick_time is null then 'the queue has never been ticked: is a ticker running?'
                when q.external_ticker then 'ticked from outside; last tick '
                    || date_trunc('second', q.tick_age) || ' ago'
                when q.tick_age > q.tick_overdue_after then 'last tick ' || date_trunc('second', q.tick_age)
                    || ' ago, expected at least every ' || q.ticker_idle_period || ': is a ticker running?'
                when now() - q.unticked_since > q.ticker_max_lag + interval '10 seconds' then
                    'events have waited ' || date_trunc('second', now() - q.unticked_since)
                    || ' for a tick, expected within ' || q.ticker_max_lag || ': is a ticker running?'
                else 'last tick ' || date_trunc('second', q.tick_age) || ' ago'
            end
        ),
        (
            'paused',
            case when q.paused then 'warning' else 'ok' end,
            case when q.paused
                then 'ticks are paused by configuration; ' || coalesce(q.unticked::text, 'an unknown number of')
                    || ' events wait'
                else 'not paused'
            end
        ),
        (
            'xid_regression',
            case when q.ids_went_backwards then 'critical' else 'ok' end,
            case when q.ids_went_backwards
                then 'the last tick is ahead of this server''s transaction ids: was a dump restored?'
                    || ' Consumers will not see new events'
                else 'transaction ids are ahead of the last tick'
            end
        ),
        (
            'no_consumers',
            case
                when coalesce(p.consumers, 0) > 0 then 'ok'
                when q.sent > q.first_tick_seq then 'warning'
                else 'ok'
            end,
            case
                when coalesce(p.consumers, 0) > 0 then p.consumers || ' registered'
                when q.sent > q.first_tick_seq
                    then 'events are sent but nobody is subscribed: rotation will discard them unread'
                else 'none registered, nothing sent'
            end
        ),
        (
            'rotation_health',
            case
                when q.rotation_age <= q.rotation_period * 2 + interval '1 minute' then 'ok'
                else 'warning'
            end,
            case
                when q.rotation_age <= q.rotation_period * 2 + interval '1 minute' then
                    'last rotation ' || date_trunc('second', q.rotation_age) || ' ago'
                when p.blocking is not null then
                    'last rotation ' || date_trunc('second', q.rotation_age) || ' ago, due every '
                    || q.rotation_period || ': blocked by consumer ' || quote_ident(p.blocking)
                else
                    'last rotation ' || date_trunc('second', q.rotation_age) || ' ago, due every '
                    || q.rotation_period || case when q.switch_step2 is null
                        then ': step 2 is outstanding, is maint_rotate_tables_step2() scheduled?'
                        else ': is maint() scheduled?' end
            end
        ),
        (
            'dlq_health',
            case
                when q.dead_letters_hour >= 1000 then 'critical'
                when q.dead_letters_hour >= 10 or q.dead_letters > 1000 then 'warning'
                else 'ok'
            end,
            case when q.dead_letters >= 10000 then 'at least ' else '' end || q.dead_letters
                || ' dead letters, ' || case when q.dead_letters_hour >= 1000 then 'at least ' else '' end
                || q.dead_letters_hour || ' in the last hour'
        ),
        (
            'retry_overdue',
            case when r.counted > 0 then 'warning' else 'ok' end,
            case when r.counted > 0
                then r.counted || ' retries overdue by up to ' || date_trunc('second', now() - r.since)
                    || ': is maint_retry_events() scheduled?'
                else q.retry_waiting || ' retries waiting, none overdue'
            end
        )
    ) v(check_name, status, detail)
    union all
    select c.queue_name, c.consumer_name, v.check_name, v.status, v.detail
    from consumer c
    cross join lateral (select greatest(now() - c.last_active, interval '0') as since) idle
    cross join lateral (values
        (
            'missing_tick',
            case when c.missing_tick then 'critical' else 'ok' end,
            case when c.missing_tick
                then 'its position points to a tick that no longer exists: it can never go on,'
                    || ' unsubscribe and subscribe it again'
                else 'its position exists'
            end
        ),
        (
            'consumer_lag',
            case
                when c.missing_tick then 'unknown'
                when c.ticked_pending = 0 then 'ok'
                when c.lag > c.rotation_period then 'critical'
                when c.lag > c.rotation_period / 2 then 'warning'
                else 'ok'
            end,
            case
                when c.missing_tick then 'unknown: its position is gone'
                when c.ticked_pending = 0 then 'nothing to take'
                else date_trunc('second', c.lag) || ' behind with ' || c.ticked_pending
                    || ' events; rotation period ' || c.rotation_period
            end
        ),
        (
            'consumer_stuck',
            case
                when c.missing_tick then 'unknown'
                when c.ticked_pending > 0 and idle.since > greatest(interval '1 hour', c.rotation_period / 2)
                    and c.lag > greatest(interval '1 hour', c.rotation_period / 2) then 'warning'
                else 'ok'
            end,
            case
                when c.missing_tick then 'unknown: its position is gone'
                when c.ticked_pending = 0 then 'nothing to take'
                when c.open_batches > 0 then 'took its open batch ' || date_trunc('second', idle.since) || ' ago'
                else 'last took or finished a batch ' || date_trunc('second', idle.since) || ' ago'
            end
        )
    ) v(check_name, status, detail)
$$;

revoke all on function pgque.health_checks(pgque.observed_queue[], pgque.observed_consumer[]) from public;
grant execute on function pgque.health_checks(pgque.observed_queue[], pgque.observed_consumer[]) to pgque_monitor;
