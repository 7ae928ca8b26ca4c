-- What an application calls to publish one message. The text forms store the bytes as they come;
-- the jsonb forms let PostgreSQL refuse what isn't JSON and store it in its canonical spelling. A
-- bare string literal takes the text form.

create or replace function pgque.send(queue_name text, type_name text, payload text)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.insert_event_raw(
        queue_name, null, null, null, null, type_name, payload, null, null, null, null);
end;
$$;

create or replace function pgque.send(queue_name text, type_name text, payload jsonb)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.insert_event_raw(
        queue_name, null, null, null, null, type_name, payload::text, null, null, null, null);
end;
$$;

create or replace function pgque.send(queue_name text, payload text)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.insert_event_raw(
        queue_name, null, null, null, null, 'default', payload, null, null, null, null);
end;
$$;

create or replace function pgque.send(queue_name text, payload jsonb)
returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.insert_event_raw(
        queue_name, null, null, null, null, 'default', payload::text, null, null, null, null);
end;
$$;

revoke all on function pgque.send(text, text, text) from public;
revoke all on function pgque.send(text, text, jsonb) from public;
revoke all on function pgque.send(text, text) from public;
revoke all on function pgque.send(text, jsonb) from public;
grant execute on function pgque.send(text, text, text) to pgque_writer;
grant execute on function pgque.send(text, text, jsonb) to pgque_writer;
grant execute on function pgque.send(text, text) to pgque_writer;
grant execute on function pgque.send(text, jsonb) to pgque_writer;
