-- Write one tick if the queue wants one and no other ticker is at it. Internal to the ticker.
--
-- A batch is the difference of two snapshots, so a queue's snapshots must grow with its tick ids: if
-- one were older than the tick before it, the events between them would be handed out twice. Hence
-- the lock first, and the snapshot in a later statement, which then sees all that the previous
-- holder of the lock saw. A ticker that finds the lock taken has nothing to add and leaves.
--
-- The sequence is read before the snapshot is taken: an event in between is counted as new once more
-- and causes a tick, where the other order would let it wait for an idle tick.

create or replace function pgque.tick_queue(queue_id int4)
returns bigint
language plpgsql
as $$
declare
    v_due  record;
    v_last record;
    v_tick bigint;
begin
    perform
    from pgque.queue as q
    where q.queue_id = tick_queue.queue_id
    for no key update skip locked;
    if not found then
        return null;
    end if;

    select d.* into v_due from pgque.due_ticks(tick_queue.queue_id) as d;
    if not found or v_due.ids_went_back then
        return null;
    end if;

    select t.tick_id, t.tick_event_seq
    into v_last
    from pgque.tick as t
    where t.tick_queue = tick_queue.queue_id
    order by t.tick_id desc
    limit 1;

    insert into pgque.tick (tick_queue, tick_id, tick_time, tick_snapshot, tick_event_seq)
    select
        q.queue_id, pg_catalog.nextval(q.queue_tick_seq::regclass), pg_catalog.clock_timestamp(),
        pg_catalog.pg_current_snapshot(), v_due.event_seq
    from pgque.queue as q
    where q.queue_id = tick_queue.queue_id
    returning tick_id into v_tick;

    perform pg_catalog.pg_notify('pgque_' || v_due.queue_name, v_tick::text);
    if v_due.event_seq < v_last.tick_event_seq then
        perform pgque.log_event('warning', 'ticker', 'the event sequence is behind the last tick',
            pg_catalog.jsonb_build_object(
                'queue', v_due.queue_name, 'tick_id', v_tick, 'event_seq', v_due.event_seq,
                'last_tick_id', v_last.tick_id, 'last_event_seq', v_last.tick_event_seq,
                'events', v_due.event_seq - v_last.tick_event_seq));
    end if;
    return v_tick;
end;
$$;

revoke all on function pgque.tick_queue(int4) from public;
grant execute on function pgque.tick_queue(int4) to pgque_admin;
