-- The tick at which a batch ends that begins at the given one: the first that satisfies every
-- condition given, old enough (min_lag), enough events (min_count), enough time covered
-- (min_interval); the very next one without any. Internal; all NULL when there is none yet.

create or replace function pgque.tick_after(
    start_tick pgque.tick, min_lag interval, min_count int4, min_interval interval
)
returns pgque.tick
language sql
stable
as $$
    select t
    from pgque.tick as t
    where t.tick_queue = (start_tick).tick_queue
      and t.tick_id > (start_tick).tick_id
      and (min_count is null or t.tick_event_seq - (start_tick).tick_event_seq >= min_count)
      and (min_interval is null or t.tick_time - (start_tick).tick_time >= min_interval)
      and (min_lag is null or t.tick_time <= pg_catalog.clock_timestamp() - min_lag)
    order by t.tick_id
    limit 1
$$;

revoke all on function pgque.tick_after(pgque.tick, interval, int4, interval) from public;
grant execute on function pgque.tick_after(pgque.tick, interval, int4, interval) to pgque_admin;
