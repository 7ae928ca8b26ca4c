-- Put one event into a queue and get its id. It becomes visible to consumers with the first tick
-- after the commit; if the transaction rolls back, it never was.

create or replace function pgque.insert_event(
    queue_name text, ev_type text, ev_data text,
    ev_extra1 text, ev_extra2 text, ev_extra3 text, ev_extra4 text
)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.insert_event_raw(
        queue_name, null, null, null, null, ev_type, ev_data,
        ev_extra1, ev_extra2, ev_extra3, ev_extra4);
end;
$$;

create or replace function pgque.insert_event(queue_name text, ev_type text, ev_data text)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.insert_event_raw(
        queue_name, null, null, null, null, ev_type, ev_data, null, null, null, null);
end;
$$;

revoke all on function pgque.insert_event(text, text, text, text, text, text, text) from public;
revoke all on function pgque.insert_event(text, text, text) from public;
grant execute on function pgque.insert_event(text, text, text, text, text, text, text) to pgque_writer;
grant execute on function pgque.insert_event(text, text, text) to pgque_writer;
