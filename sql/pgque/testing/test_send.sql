-- For tests of an application: send one message and see that it is stored. It also makes the next tick
-- due, so that calling ticker() afterwards, in another transaction, is all it takes to have the message
-- delivered. Returns the event's id.

create or replace function pgque.test_send(queue text, payload jsonb)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_id    constant bigint := pgque.send(queue, payload);
    v_queue int4 := (select q.queue_id from pgque.queue as q where q.queue_name = test_send.queue);
    v_found bool;
begin
    execute format('select exists (select from pgque.%I as e where e.ev_id = $1 and '
                   'e.ev_data is not distinct from $2)',
                   'event_' || v_queue)
    into v_found
    using v_id, payload::text;
    if not v_found then
        raise exception 'event % of queue % was not stored', v_id, queue
            using errcode = 'assert_failure';
    end if;
    perform pgque.force_next_tick(queue);
    return v_id;
end;
$$;

revoke all on function pgque.test_send(text, jsonb) from public;
grant execute on function pgque.test_send(text, jsonb) to pgque_admin;
