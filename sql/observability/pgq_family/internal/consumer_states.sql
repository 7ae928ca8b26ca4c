-- The judgement of consumers, one column per check; see queue_states(). A consumer that has nothing to
-- take is well, however long it has been silent.
create or replace function {pack}.consumer_states(consumers {pack}.observed_consumer[])
returns table (
    consumer {pack}.observed_consumer,
    missing_tick text,
    consumer_lag text,
    consumer_stuck text,
    worst numeric              -- of all: 0 ok, 1 warning, 2 critical; null: unknown
)
language sql
stable
begin atomic
    select s.*, case
        when 'critical' in (s.missing_tick, s.consumer_lag, s.consumer_stuck) then 2
        when 'warning' in (s.missing_tick, s.consumer_lag, s.consumer_stuck) then 1
        when 'unknown' in (s.missing_tick, s.consumer_lag, s.consumer_stuck) then null
        else 0
    end
    from (
        select
            c,
            case when c.missing_tick then 'critical' else 'ok' end,
            case
                when c.missing_tick or c.ticked_pending is null then 'unknown'
                when c.ticked_pending = 0 then 'ok'
                when c.lag > c.lag_critical then 'critical'
                when c.lag > c.lag_warning then 'warning'
                else 'ok'
            end,
            case
                when c.missing_tick or c.ticked_pending is null then 'unknown'
                when c.ticked_pending = 0 then 'ok'
                when least(c.lag, now() - c.last_active) > c.stuck_after then 'warning'
                else 'ok'
            end
        from unnest(consumers) c
    ) s(consumer, missing_tick, consumer_lag, consumer_stuck);
end;

revoke all on function {pack}.consumer_states({pack}.observed_consumer[]) from public;
grant execute on function {pack}.consumer_states({pack}.observed_consumer[]) to pgque_monitor;
