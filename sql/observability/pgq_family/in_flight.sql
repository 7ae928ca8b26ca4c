-- What is being worked on right now: one row per open batch of the queue, members of a cooperative
-- group each with their own (specification 5.1).
create or replace function {pack}.in_flight(queue_name text)
returns table (consumer_name text, batch_id bigint, batch_age interval, estimated_events bigint)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    wanted_queue int4 := {pack}.require_queue(queue_name);
begin
    return query
    select
        c.co_name,
        s.sub_batch,
        greatest(now() - s.sub_active, interval '0'),
        case when batch_end.tick_event_seq < batch_start.tick_event_seq then 0
            else batch_end.tick_event_seq - batch_start.tick_event_seq end
    from {engine}.subscription s
    join {engine}.consumer c on c.co_id = s.sub_consumer
    left join {tick} batch_start
        on batch_start.tick_queue = s.sub_queue and batch_start.tick_id = s.sub_last_tick
    left join {tick} batch_end
        on batch_end.tick_queue = s.sub_queue and batch_end.tick_id = s.sub_next_tick
    where s.sub_queue = wanted_queue and s.sub_batch is not null
    order by s.sub_active, c.co_name;
end
$$;

revoke all on function {pack}.in_flight(text) from public;
grant execute on function {pack}.in_flight(text) to pgque_monitor;
