-- Make a queue together with its settings, the keys of a JSON object by the names that
-- set_queue_config() knows. An application may do it at every start: a queue that exists gets the
-- settings too, and the result is then 0. A mistake in one setting leaves everything as it was.

create or replace function pgque.create_queue(queue text, options jsonb)
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_created integer;
begin
    if options is not null and jsonb_typeof(options) <> 'object' then
        raise exception 'options must be a JSON object, not a JSON %', jsonb_typeof(options)
            using errcode = 'invalid_parameter_value';
    end if;
    v_created := pgque.create_queue(queue);
    perform pgque.set_queue_config(create_queue.queue, o.key, o.value)
    from jsonb_each_text(options) as o;
    return v_created;
end;
$$;

revoke all on function pgque.create_queue(text, jsonb) from public;
grant execute on function pgque.create_queue(text, jsonb) to pgque_admin;
