-- One row per logical consumer: how far behind in time and events, when it was last seen, what it
-- holds open (specification 5.1).
create or replace function {pack}.consumer_stats()
returns table (
    queue_name text,
    consumer_name text,
    lag interval,                 -- 0 when nothing is pending; null when a tick that it needs is gone
    pending_events bigint,        -- its open batch and unticked events included; upper bound
    last_seen timestamptz,
    batch_active boolean,
    batch_id bigint
)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select
        c.queue_name,
        c.consumer_name,
        c.lag,
        c.pending,
        c.last_active,
        c.open_batches > 0,
        c.batch_id
    from {pack}.observed() o
    cross join lateral unnest(o.consumers) c
    order by c.queue_name, c.consumer_name
$$;

revoke all on function {pack}.consumer_stats() from public;
grant execute on function {pack}.consumer_stats() to pgque_monitor;
