-- The consumer's position and last activity on a queue, or a clear error: a mistyped name must not read
-- as "nothing waits".
create or replace function {pack}.require_consumer(
    queue_id int4, consumer_name text, out last_tick bigint, out last_active timestamptz)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
begin
    select s.sub_last_tick, s.sub_active
    into last_tick, last_active
    from {engine}.subscription s
    join {engine}.consumer c on c.co_id = s.sub_consumer
    where s.sub_queue = require_consumer.queue_id and c.co_name = require_consumer.consumer_name;
    if not found then
        raise exception 'not subscriber to queue: %/%',
            (select q.queue_name from {engine}.queue q where q.queue_id = require_consumer.queue_id),
            coalesce(consumer_name, 'null')
            using errcode = 'undefined_object',
                hint = 'select queue_name, consumer_name from {pack}.consumer_stats() lists them';
    end if;
end
$$;

revoke all on function {pack}.require_consumer(int4, text) from public;
grant execute on function {pack}.require_consumer(int4, text) to pgque_monitor;
