-- Where every single event is written. Internal: insert_event() and send() are what producers call;
-- this form can also set the id, time, owner and retry count of the event.
--
-- The order of the first two steps is what keeps events from getting lost. Rotation proceeds in two
-- transactions: the first switches the current table, the second notes its own transaction id. A
-- writer with a higher id than that took its id after the switch was committed, and because it looks
-- up the queue only then, it is sure to see the new table. So the old table holds nothing above the
-- noted id, which is how rotation knows when the last consumer is done with it.

create or replace function pgque.insert_event_raw(
    queue_name text, ev_id bigint, ev_time timestamptz, ev_owner int4, ev_retry int4,
    ev_type text, ev_data text,
    ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text
)
returns bigint
language plpgsql
as $$
declare
    v_txid  constant xid8 := pg_catalog.pg_current_xact_id();
    v_queue record;
    v_id    bigint;
begin
    select q.queue_id, q.queue_cur_table, q.queue_disable_insert, q.queue_event_seq
    into v_queue
    from pgque.queue as q
    where q.queue_name = insert_event_raw.queue_name;
    if not found then
        raise exception 'queue not found: %', insert_event_raw.queue_name
            using errcode = 'undefined_object';
    end if;
    if v_queue.queue_disable_insert then
        raise exception 'Insert into queue disallowed'
            using errcode = 'object_not_in_prerequisite_state';
    end if;

    v_id := coalesce(insert_event_raw.ev_id, pg_catalog.nextval(v_queue.queue_event_seq::regclass));

    -- Most events are nothing but a type and data, and the server reads this text for each of them.
    if pg_catalog.num_nonnulls(
        ev_time, ev_owner, ev_retry, ev_extra1, ev_extra2, ev_extra3, ev_extra4) = 0
    then
        execute 'insert into pgque.event_' || v_queue.queue_id || '_' || v_queue.queue_cur_table
            || ' (ev_id, ev_txid, ev_type, ev_data) values ($1, $2, $3, $4)'
        using v_id, v_txid, ev_type, ev_data;
    else
        execute 'insert into pgque.event_' || v_queue.queue_id || '_' || v_queue.queue_cur_table
            || ' (ev_id, ev_time, ev_txid, ev_owner, ev_retry, ev_type, ev_data, '
            'ev_extra1, ev_extra2, ev_extra3, ev_extra4) '
            'values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)'
        using v_id, coalesce(ev_time, pg_catalog.now()), v_txid, ev_owner, ev_retry, ev_type, ev_data,
              ev_extra1, ev_extra2, ev_extra3, ev_extra4;
    end if;

    if pg_catalog.current_setting('transaction_isolation') not like 'read %' then
        perform pgque.refuse_if_rotated(v_queue.queue_id, v_queue.queue_cur_table);
    end if;
    return v_id;
end;
$$;

revoke all on function pgque.insert_event_raw(
    text, bigint, timestamptz, int4, int4, text, text, text, text, text, text) from public;
grant execute on function pgque.insert_event_raw(
    text, bigint, timestamptz, int4, int4, text, text, text, text, text, text) to pgque_admin;
