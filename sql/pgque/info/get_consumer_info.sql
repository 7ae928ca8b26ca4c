-- Where every consumer stands. Lag is the age of its position, so it also grows, up to the idle
-- period of the ticker, while there is nothing to consume; pending events count what was sent since.
-- NULL for the queue or the consumer means all of them.

create or replace function pgque.get_consumer_info(
    queue text, consumer text,
    out queue_name text, out consumer_name text, out lag interval, out last_seen interval,
    out last_tick bigint, out current_batch bigint, out next_tick bigint, out pending_events bigint
)
returns setof record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    select
        q.queue_name, c.co_name,
        clock_timestamp() - t.tick_time, clock_timestamp() - s.sub_active,
        s.sub_last_tick, s.sub_batch, s.sub_next_tick,
        greatest(
            coalesce(pg_sequence_last_value(q.queue_event_seq::regclass), 0) - t.tick_event_seq,
            case when t.tick_id is not null then 0 end)
    from pgque.subscription as s
    join pgque.queue as q on q.queue_id = s.sub_queue
    join pgque.consumer as c on c.co_id = s.sub_consumer
    left join pgque.tick as t on t.tick_queue = s.sub_queue and t.tick_id = s.sub_last_tick
    where (get_consumer_info.queue is null or q.queue_name = get_consumer_info.queue)
      and (get_consumer_info.consumer is null or c.co_name = get_consumer_info.consumer)
    order by q.queue_name, c.co_name;
end;
$$;

create or replace function pgque.get_consumer_info(
    queue text,
    out queue_name text, out consumer_name text, out lag interval, out last_seen interval,
    out last_tick bigint, out current_batch bigint, out next_tick bigint, out pending_events bigint
)
returns setof record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return query select i.* from pgque.get_consumer_info(get_consumer_info.queue, null) as i;
end;
$$;

create or replace function pgque.get_consumer_info(
    out queue_name text, out consumer_name text, out lag interval, out last_seen interval,
    out last_tick bigint, out current_batch bigint, out next_tick bigint, out pending_events bigint
)
returns setof record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return query select i.* from pgque.get_consumer_info(null, null) as i;
end;
$$;

revoke all on function pgque.get_consumer_info(text, text) from public;
revoke all on function pgque.get_consumer_info(text) from public;
revoke all on function pgque.get_consumer_info() from public;
grant execute on function pgque.get_consumer_info(text, text) to pgque_reader;
grant execute on function pgque.get_consumer_info(text) to pgque_reader;
grant execute on function pgque.get_consumer_info() to pgque_reader;
