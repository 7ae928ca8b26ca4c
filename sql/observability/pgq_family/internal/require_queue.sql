-- The id of the queue of this name, or a clear error: a mistyped name must not read as "all quiet".
create or replace function {pack}.require_queue(queue_name text)
returns int4
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
    found_id int4;
begin
    select q.queue_id into found_id from {engine}.queue q where q.queue_name = require_queue.queue_name;
    if found_id is null then
        raise exception 'queue not found: %', coalesce(require_queue.queue_name, 'null')
            using hint = 'select queue_name from {pack}.queue_stats() lists them';
    end if;
    return found_id;
end
$$;

revoke all on function {pack}.require_queue(text) from public;
grant execute on function {pack}.require_queue(text) to pgque_monitor;
