-- Give up on one event of an open batch and keep it where an operator can look at it and replay it.
-- nack() calls this. Doing it twice leaves one dead letter; the second call returns 0. A cooperative
-- group has its dead letters together, whichever member failed.

create or replace function pgque.event_dead(
    batch_id bigint, event_id bigint, reason text,
    ev_time timestamptz, ev_txid xid8, ev_retry int4, ev_type text, ev_data text,
    ev_extra1 text default null, ev_extra2 text default null,
    ev_extra3 text default null, ev_extra4 text default null
)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_sub record;
begin
    select s.sub_queue, o.sub_consumer, s.sub_next_tick, q.queue_name, c.co_name
    into v_sub
    from pgque.subscription as s
    join pgque.queue as q on q.queue_id = s.sub_queue
    join pgque.subscription as o on o.sub_id = coalesce(s.sub_parent, s.sub_id)
    join pgque.consumer as c on c.co_id = o.sub_consumer
    where s.sub_batch = event_dead.batch_id;
    if not found then
        raise exception 'batch not found: %', event_dead.batch_id
            using errcode = 'undefined_object';
    end if;

    insert into pgque.dead_letter (
        dl_queue_id, dl_consumer_id, dl_time, dl_reason, ev_id, ev_time, ev_txid, ev_retry, ev_type,
        ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)
    values (
        v_sub.sub_queue, v_sub.sub_consumer, now(), event_dead.reason, event_dead.event_id,
        event_dead.ev_time, event_dead.ev_txid, event_dead.ev_retry, event_dead.ev_type,
        event_dead.ev_data, event_dead.ev_extra1, event_dead.ev_extra2,
        event_dead.ev_extra3, event_dead.ev_extra4)
    on conflict do nothing;
    if not found then
        return 0;
    end if;

    -- The reason is the consumer's own text: enough of it to tell one kind of failure from another.
    perform pgque.log_event('warning', 'dead_letter', 'event moved to the dead letters', jsonb_build_object(
        'queue', v_sub.queue_name, 'consumer', v_sub.co_name, 'event_id', event_dead.event_id,
        'batch_id', event_dead.batch_id, 'tick_id', v_sub.sub_next_tick,
        'retries', coalesce(event_dead.ev_retry, 0), 'reason', left(event_dead.reason, 200)));
    return 1;
end;
$$;

revoke all on function pgque.event_dead(
    bigint, bigint, text, timestamptz, xid8, int4, text, text, text, text, text, text) from public;
grant execute on function pgque.event_dead(
    bigint, bigint, text, timestamptz, xid8, int4, text, text, text, text, text, text) to pgque_admin;
