-- Which queues want a tick at this moment; all of them, or one by its id. Internal: only the ticker
-- asks, first without a lock (mostly the answer is "none", and then nothing has to be written) and
-- again once it holds the lock.
--
-- A queue wants a tick when enough events came (max_count), or any event came and the last tick is
-- old enough (max_lag). Without new events it still ticks, ever more seldom: after max_lag, then each
-- time after twice the last pause, and at the latest after idle_period. That first idle tick soon
-- after the last event is what brings up events whose transaction was still open at the last tick.
--
-- "New" is counted by the event sequence: it costs nothing, and it doesn't see whether the events
-- were committed. A sequence never used has no last value and counts as 0.
--
-- `ids_went_back`: the last tick knows transaction ids that this server hasn't given out yet.

create or replace function pgque.due_ticks(only_queue int4)
returns table (queue_id int4, queue_name text, event_seq bigint, ids_went_back bool)
language sql
stable
as $$
    select q.queue_id, q.queue_name, now_at.event_seq, coalesce(pace.ids_went_back, false)
    from pgque.queue as q
    cross join lateral (
        select coalesce(pg_catalog.pg_sequence_last_value(q.queue_event_seq::regclass), 0) as event_seq
    ) as now_at
    left join lateral (
        select t.tick_id, t.tick_time, t.tick_snapshot, t.tick_event_seq
        from pgque.tick as t
        where t.tick_queue = q.queue_id
        order by t.tick_id desc
        limit 1
    ) as latest on true
    left join lateral (
        select t.tick_time, t.tick_event_seq
        from pgque.tick as t
        where t.tick_queue = q.queue_id
          and t.tick_id < latest.tick_id
          and now_at.event_seq <= latest.tick_event_seq
        order by t.tick_id desc
        limit 1
    ) as earlier on true
    cross join lateral (
        select
            now_at.event_seq - latest.tick_event_seq as fresh,
            pg_catalog.clock_timestamp() - latest.tick_time as age,
            case
                when earlier.tick_event_seq = latest.tick_event_seq
                then 2 * (latest.tick_time - earlier.tick_time)
            end as next_pause,
            pg_catalog.pg_snapshot_xmax(latest.tick_snapshot)
                > pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()) as ids_went_back
    ) as pace
    where (due_ticks.only_queue is null or q.queue_id = due_ticks.only_queue)
      and not q.queue_external_ticker
      and not q.queue_ticker_paused
      and (
          latest.tick_id is null
          or pace.ids_went_back
          or pace.fresh >= q.queue_ticker_max_count
          or (pace.fresh > 0 and pace.age >= q.queue_ticker_max_lag)
          or (pace.fresh <= 0 and pace.age >= least(
                  q.queue_ticker_idle_period, greatest(q.queue_ticker_max_lag, pace.next_pause)))
      )
    order by q.queue_id
$$;

revoke all on function pgque.due_ticks(int4) from public;
grant execute on function pgque.due_ticks(int4) to pgque_admin;
