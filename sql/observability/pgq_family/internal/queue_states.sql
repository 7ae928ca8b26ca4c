-- The judgement of queues: what each was observed to be, turned into ok, warning, critical or unknown,
-- one column per check. Cause and symptom are kept apart: here the ticker is judged by the events that
-- wait for a tick, in consumer_states() a consumer by those that it could take.
--
-- The body is bound when it is made, like a view's, so no search path can change what its names mean,
-- and it becomes a part of the query that calls it.
create or replace function {pack}.queue_states(queues {pack}.observed_queue[])
returns table (
    queue {pack}.observed_queue,
    ticker_running text,
    paused text,
    xid_regression text,
    no_consumers text,
    rotation_health text,
    dlq_health text,           -- null: the engine has no dead letters
    retry_overdue text,
    worst numeric              -- of all: 0 ok, 1 warning, 2 critical
)
language sql
stable
begin atomic
    select s.*, case
        when 'critical' in (s.ticker_running, s.paused, s.xid_regression, s.no_consumers, s.rotation_health,
            s.dlq_health, s.retry_overdue) then 2
        when 'warning' in (s.ticker_running, s.paused, s.xid_regression, s.no_consumers, s.rotation_health,
            s.dlq_health, s.retry_overdue) then 1
        else 0
    end
    from (
        select
            q,
            case
                when q.paused then 'ok'
                when q.last_tick_time is null then 'critical'
                when q.external_ticker then 'ok'
                when q.tick_overdue then 'critical'
                when q.ticker_late then 'critical'
                else 'ok'
            end,
            case when q.paused then 'warning' else 'ok' end,
            case when q.ids_went_backwards then 'critical' else 'ok' end,
            case when q.discards then 'warning' else 'ok' end,
            case when (now() - q.switch_time - q.rotation_grace) / 2 > q.rotation_period then 'warning' else 'ok' end,
            case
                when q.dead_letters is null then null
                when q.dead_letters_hour >= q.dead_letters_hour_critical then 'critical'
                when q.dead_letters_hour >= q.dead_letters_hour_warning
                    or q.dead_letters > q.dead_letters_warning then 'warning'
                else 'ok'
            end,
            case when q.retries_overdue > 0 then 'warning' else 'ok' end
        from unnest(queues) q
    ) s(queue, ticker_running, paused, xid_regression, no_consumers, rotation_health, dlq_health, retry_overdue);
end;

revoke all on function {pack}.queue_states({pack}.observed_queue[]) from public;
grant execute on function {pack}.queue_states({pack}.observed_queue[]) to pgque_monitor;
