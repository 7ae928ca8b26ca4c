-- What an open batch covers: whose it is, from when to when, and from which event id to which. `lag`
-- is the age of its end.

create or replace function pgque.get_batch_info(
    batch_id bigint,
    out queue_name text, out consumer_name text,
    out batch_start timestamptz, out batch_end timestamptz,
    out prev_tick_id bigint, out tick_id bigint, out lag interval,
    out seq_start bigint, out seq_end bigint
)
returns record
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    select
        q.queue_name, c.co_name, prev.tick_time, next.tick_time, s.sub_last_tick, s.sub_next_tick,
        clock_timestamp() - next.tick_time, prev.tick_event_seq, next.tick_event_seq
    into
        queue_name, consumer_name, batch_start, batch_end, prev_tick_id, tick_id,
        lag, seq_start, seq_end
    from pgque.subscription as s
    join pgque.queue as q on q.queue_id = s.sub_queue
    join pgque.consumer as c on c.co_id = s.sub_consumer
    left join pgque.tick as prev on prev.tick_queue = s.sub_queue and prev.tick_id = s.sub_last_tick
    left join pgque.tick as next on next.tick_queue = s.sub_queue and next.tick_id = s.sub_next_tick
    where s.sub_batch = get_batch_info.batch_id;
    if not found then
        raise exception 'batch not found: %', get_batch_info.batch_id
            using errcode = 'undefined_object';
    end if;
end;
$$;

revoke all on function pgque.get_batch_info(bigint) from public;
grant execute on function pgque.get_batch_info(bigint) to pgque_reader;
