-- One row per queue: how much is waiting and how old it is, who reads it, how fast it fills, when it
-- was last ticked and rotated (specification 5.1).
create or replace function {pack}.queue_stats()
returns table (
    queue_name text,
    queue_id int4,
    depth bigint,                 -- events the slowest consumer still has to process; upper bound
    oldest_msg_age interval,      -- 0 when nothing is pending
    consumers int4,               -- a cooperative group counts as one
    events_per_sec numeric,       -- null while unknown: fewer than two ticks, or the ticker is late
    cur_table int4,
    rotation_age interval,
    rotation_period interval,
    ticker_paused boolean,
    last_tick_time timestamptz,
    last_tick_id bigint,
    dlq_count bigint              -- counted up to 2,000
)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    select
        q.queue_name,
        q.queue_id,
        q.depth,
        q.oldest,
        q.consumers,
        q.events_per_sec,
        q.cur_table,
        greatest(now() - q.switch_time, interval '0'),
        q.rotation_period,
        q.paused,
        q.last_tick_time,
        q.last_tick_id,
        q.dead_letters
    from {pack}.observed() o
    cross join lateral unnest(o.queues) q
    order by q.queue_name
$$;

revoke all on function {pack}.queue_stats() from public;
grant execute on function {pack}.queue_stats() to pgque_monitor;
