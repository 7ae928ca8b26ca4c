-- What is wrong, in words: one row per queue and check, and per consumer as `check:consumer`
-- (specification 5.1). status is ok, warning, critical or unknown; only critical should wake a person.
create or replace function {pack}.queue_health()
returns table (queue_name text, check_name text, status text, detail text)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    (select
        q.queue_name,
        case when h.consumer_name is null then h.check_name else h.check_name || ':' || h.consumer_name end,
        h.status,
        case h.check_name
            when 'ticker_running' then case
                when q.paused then 'paused by configuration'
                when q.last_tick_time is null then 'the queue has never been ticked: is a ticker running?'
                when h.status = 'ok'
                    then 'last tick ' || date_trunc('second', greatest(now() - q.last_tick_time, interval '0')) || ' ago'
                    || case when q.sent is null
                        then '; unknown what was sent since: install the pack again, its event sequence can''t be read'
                        else '' end
                when q.tick_overdue then 'last tick ' || date_trunc('second', now() - q.last_tick_time)
                    || ' ago, expected at least every ' || q.ticker_idle_period || ': is a ticker running?'
                else 'events have waited ' || date_trunc('second', now() - q.unticked_since)
                    || ' for a tick, expected within ' || q.ticker_max_lag || ': is a ticker running?'
            end
            when 'paused' then case
                when q.paused then 'ticks are paused by configuration; '
                    || coalesce(q.unticked::text, 'an unknown number of') || ' events wait'
                else 'not paused'
            end
            when 'xid_regression' then case h.status
                when 'ok' then 'transaction ids are ahead of the last tick'
                else 'the last tick is ahead of this server''s transaction ids: was a dump restored?'
                    || ' Consumers will not see new events'
            end
            when 'no_consumers' then case
                when q.discards then 'events are sent but nobody is subscribed: rotation will discard them unread'
                when q.consumers = 0 then 'none registered, nothing sent'
                else q.consumers || ' registered'
            end
            when 'missing_tick' then case h.status
                when 'ok' then 'its ticks exist'
                else 'its position or open batch points to a tick that no longer exists: it can never go on,'
                    || ' unsubscribe and subscribe it again'
            end
            when 'rotation_health' then
                'last rotation ' || date_trunc('second', greatest(now() - q.switch_time, interval '0')) || ' ago'
                || case
                    when h.status = 'ok' then ''
                    else ', due every ' || q.rotation_period || case
                        when blocking.consumer_name is not null
                            then ': blocked by consumer ' || quote_ident(blocking.consumer_name)
                        when q.mid_rotation
                            then ': step 2 is outstanding, {unfinished_rotation_hint}'
                        else ': {rotation_hint}'
                    end
                end
            when 'dlq_health' then
                case when q.dead_letters >= 2000 then 'at least ' else '' end || q.dead_letters
                || ' dead letters, ' || case when q.dead_letters_hour >= 2000 then 'at least ' else '' end
                || q.dead_letters_hour || ' in the last hour'
            when 'retry_overdue' then case h.status
                when 'ok' then case when q.retries >= 2000 then 'at least ' else '' end || q.retries
                    || ' retries waiting, none overdue'
                else case when q.retries_overdue >= 2000 then 'at least ' else '' end || q.retries_overdue
                    || ' retries overdue by up to '
                    || date_trunc('second', now() - q.retries_overdue_since)
                    || ': {retry_hint}'
            end
            when 'consumer_lag' then case
                when c.missing_tick then 'unknown: a tick that it needs is gone'
                when c.ticked_pending = 0 then 'nothing to take'
                else date_trunc('second', c.lag) || ' behind with ' || c.ticked_pending
                    || ' events; critical beyond ' || c.lag_critical
            end
            when 'consumer_stuck' then case
                when c.missing_tick then 'unknown: a tick that it needs is gone'
                when c.ticked_pending = 0 then 'nothing to take'
                when c.open_batches > 0
                    then 'took its open batch '
                        || date_trunc('second', greatest(now() - c.last_active, interval '0')) || ' ago'
                else 'last took or finished a batch '
                    || date_trunc('second', greatest(now() - c.last_active, interval '0')) || ' ago'
            end
        end
    from {pack}.observed() o
    cross join lateral (
        select (s.queue).queue_id, null::text as consumer_name, v.check_name, v.status
        from {pack}.queue_states(o.queues) s
        cross join lateral (values
            ('ticker_running', s.ticker_running),
            ('paused', s.paused),
            ('xid_regression', s.xid_regression),
            ('no_consumers', s.no_consumers),
            ('rotation_health', s.rotation_health),
            ('dlq_health', s.dlq_health),
            ('retry_overdue', s.retry_overdue)
        ) v(check_name, status)
        where v.status is not null
        union all
        select (s.consumer).queue_id, (s.consumer).consumer_name, v.check_name, v.status
        from {pack}.consumer_states(o.consumers) s
        cross join lateral (values
            ('missing_tick', s.missing_tick),
            ('consumer_lag', s.consumer_lag),
            ('consumer_stuck', s.consumer_stuck)
        ) v(check_name, status)
    ) h
    join unnest(o.queues) q on q.queue_id = h.queue_id
    left join unnest(o.consumers) c on c.queue_id = h.queue_id and c.consumer_name = h.consumer_name
    left join lateral (
        select b.consumer_name
        from unnest(o.consumers) b
        where h.check_name = 'rotation_health' and h.status <> 'ok'
            and b.queue_id = h.queue_id and (b.holds_rotation or b.missing_tick)
        order by b.lag desc nulls first
        limit 1
    ) blocking on true
    order by q.queue_name, h.consumer_name nulls first, h.check_name)
    union all
    select s.queue_name, s.check_name, s.status, s.detail from {pack}.scheduler_health() s
$$;

revoke all on function {pack}.queue_health() from public;
grant execute on function {pack}.queue_health() to pgque_monitor;
