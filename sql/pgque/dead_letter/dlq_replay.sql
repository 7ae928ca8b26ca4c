-- Send a dead letter to its queue again, as a new event for all consumers and with a fresh retry
-- count. Returns the id of that event. Two replays at once produce one event: whoever deletes the
-- dead letter sends it.

create or replace function pgque.dlq_replay(dead_letter_id bigint)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_dead pgque.dead_letter;
    v_name text;
begin
    delete from pgque.dead_letter as d
    where d.dl_id = dlq_replay.dead_letter_id
    returning d.* into v_dead;
    if not found then
        raise exception 'dead letter not found: %', dead_letter_id
            using errcode = 'undefined_object';
    end if;

    select q.queue_name into v_name from pgque.queue as q where q.queue_id = v_dead.dl_queue_id;
    return pgque.insert_event(
        v_name, v_dead.ev_type, v_dead.ev_data,
        v_dead.ev_extra1, v_dead.ev_extra2, v_dead.ev_extra3, v_dead.ev_extra4);
end;
$$;

revoke all on function pgque.dlq_replay(bigint) from public;
grant execute on function pgque.dlq_replay(bigint) to pgque_writer;
