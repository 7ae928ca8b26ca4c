-- The judgement: what each queue and consumer was observed to be, turned into ok, warning, critical or
-- unknown. Cause and symptom are kept apart: a consumer is judged by the events it could take, the ticker
-- by those that wait for a tick. queue_health() puts it into words.
create or replace function {pack}.health_states(
    queues {pack}.observed_queue[],
    consumers {pack}.observed_consumer[])
returns table (queue_id int4, queue_name text, consumer_name text, check_name text, status text)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set jit = off
rows 5000
as $$
#variable_conflict use_column
begin
    return query
    select q.queue_id, q.queue_name, null::text, v.check_name, v.status
    from unnest(queues) q
    cross join lateral (select now() - q.switch_time as age) rotation
    cross join lateral (values
        ('ticker_running', case
            when q.paused then 'ok'
            when q.last_tick_time is null then 'critical'
            when q.external_ticker then 'ok'
            when q.tick_overdue then 'critical'
            when q.ticker_late then 'critical'
            else 'ok'
        end),
        ('paused', case when q.paused then 'warning' else 'ok' end),
        ('xid_regression', case when q.ids_went_backwards then 'critical' else 'ok' end),
        ('no_consumers', case when q.discards then 'warning' else 'ok' end),
        ('rotation_health', case
            when rotation.age > q.rotation_period * 2 + q.rotation_grace then 'warning'
            else 'ok'
        end),
        ('dlq_health', case
            when q.dead_letters is null then null  -- the engine has none
            when q.dead_letters_hour >= q.dead_letters_hour_critical then 'critical'
            when q.dead_letters_hour >= q.dead_letters_hour_warning
                or q.dead_letters > q.dead_letters_warning then 'warning'
            else 'ok'
        end),
        ('retry_overdue', case when q.retries_overdue > 0 then 'warning' else 'ok' end)
    ) v(check_name, status)
    where v.status is not null
    union all
    select c.queue_id, c.queue_name, c.consumer_name, v.check_name, v.status
    from unnest(consumers) c
    cross join lateral (values
        ('missing_tick', case when c.missing_tick then 'critical' else 'ok' end),
        ('consumer_lag', case
            when c.missing_tick or c.ticked_pending is null then 'unknown'
            when c.ticked_pending = 0 then 'ok'
            when c.lag > c.lag_critical then 'critical'
            when c.lag > c.lag_warning then 'warning'
            else 'ok'
        end),
        ('consumer_stuck', case
            when c.missing_tick or c.ticked_pending is null then 'unknown'
            when c.ticked_pending = 0 then 'ok'
            when least(c.lag, now() - c.last_active) > c.stuck_after then 'warning'
            else 'ok'
        end)
    ) v(check_name, status);
end
$$;

revoke all on function {pack}.health_states({pack}.observed_queue[], {pack}.observed_consumer[]) from public;
grant execute on function {pack}.health_states({pack}.observed_queue[], {pack}.observed_consumer[]) to pgque_monitor;
