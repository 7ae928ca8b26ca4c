-- Consumers that have events to take and have neither caught up nor shown a sign of life for longer
-- than the threshold (specification 5.1). A paused queue or an idle one makes nobody stuck.
create or replace function {pack}.stuck_consumers(threshold interval default '1 hour')
returns table (queue_name text, consumer_name text, lag interval, last_active timestamptz)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select c.queue_name, c.consumer_name, c.lag, c.last_active
    from {pack}.observed() o
    cross join lateral unnest(o.consumers) c
    where now() - c.last_active > threshold
        and (c.missing_tick or (c.ticked_pending > 0 and c.lag > threshold))
    order by c.lag desc nulls first, c.queue_name, c.consumer_name
$$;

revoke all on function {pack}.stuck_consumers(interval) from public;
grant execute on function {pack}.stuck_consumers(interval) to pgque_monitor;
