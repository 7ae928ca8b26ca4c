-- Publish a message that consumers get only later. Until then it isn't an event: the id returned is
-- that of the entry in pgque.delayed_events, and the event's id is given when maint() delivers it. A
-- time that has come already publishes at once and returns the event's id, as send() does.

create or replace function pgque.send_at(queue text, type text, payload jsonb, deliver_at timestamptz)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_id bigint;
begin
    if deliver_at is null then
        raise exception 'deliver_at must not be null'
            using errcode = 'null_value_not_allowed';
    end if;
    if deliver_at <= clock_timestamp() then
        return pgque.insert_event(queue, type, payload::text);
    end if;

    -- Locked, so that a queue isn't dropped while something is put aside for it.
    perform from pgque.queue as q where q.queue_name = send_at.queue for key share;
    if not found then
        raise exception 'queue not found: %', queue
            using errcode = 'undefined_object';
    end if;
    insert into pgque.delayed_events (de_queue_name, de_deliver_at, de_type, de_data)
    values (queue, deliver_at, type, payload::text)
    returning de_id into v_id;
    return v_id;
end;
$$;

revoke all on function pgque.send_at(text, text, jsonb, timestamptz) from public;
grant execute on function pgque.send_at(text, text, jsonb, timestamptz) to pgque_writer;
