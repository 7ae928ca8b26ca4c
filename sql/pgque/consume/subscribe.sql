-- The everyday names of register_consumer() and unregister_consumer().

create or replace function pgque.subscribe(queue text, consumer text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.register_consumer(queue, consumer);
end;
$$;

create or replace function pgque.unsubscribe(queue text, consumer text)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgque.unregister_consumer(queue, consumer);
end;
$$;

revoke all on function pgque.subscribe(text, text) from public;
revoke all on function pgque.unsubscribe(text, text) from public;
grant execute on function pgque.subscribe(text, text) to pgque_reader;
grant execute on function pgque.unsubscribe(text, text) to pgque_reader;
