-- The query that finds the events of an open batch, as text. Internal: see event_range_sql().
--
-- Retries of a cooperative group belong to the group: whichever member gets the batch gets them.

create or replace function pgque.batch_event_sql(batch_id bigint)
returns text
language plpgsql
stable
as $$
declare
    v_batch record;
begin
    select coalesce(s.sub_parent, s.sub_id) as owner_id, s.sub_last_tick, s.sub_next_tick,
           q.queue_id, q.queue_cur_table,
           prev.tick_snapshot as prev_snapshot, next.tick_snapshot as next_snapshot
    into v_batch
    from pgque.subscription as s
    join pgque.queue as q on q.queue_id = s.sub_queue
    left join pgque.tick as prev
        on prev.tick_queue = s.sub_queue and prev.tick_id = s.sub_last_tick
    left join pgque.tick as next
        on next.tick_queue = s.sub_queue and next.tick_id = s.sub_next_tick
    where s.sub_batch = batch_event_sql.batch_id;
    if not found then
        raise exception 'batch not found: %', batch_event_sql.batch_id
            using errcode = 'undefined_object';
    end if;
    if v_batch.prev_snapshot is null or v_batch.next_snapshot is null then
        raise exception 'batch % is lost: tick % or % does not exist',
            batch_event_sql.batch_id, v_batch.sub_last_tick, v_batch.sub_next_tick
            using errcode = 'data_corrupted';
    end if;
    return pgque.event_range_sql(
        v_batch.queue_id, v_batch.queue_cur_table, v_batch.owner_id,
        v_batch.prev_snapshot, v_batch.next_snapshot);
end;
$$;

revoke all on function pgque.batch_event_sql(bigint) from public;
grant execute on function pgque.batch_event_sql(bigint) to pgque_admin;
