-- The query that finds the events of an open batch, as text; the heart of the engine. Internal: the
-- text names tables and snapshots, and get_batch_events() and its neighbours run it.
--
-- An event belongs to the batch when the snapshot at its end sees the event's transaction and the one
-- at its start doesn't. Two index ranges hold all candidates: transactions that began after the start
-- (ids from its xmax on), and those still running then, which are listed one by one. Without that
-- list an event committed late would be lost; by its id alone it looks delivered long ago.
--
-- Two tables hold all of the batch: rotation doesn't move on before every consumer is past the table
-- it gives up. That third table is left out, so that reading a batch never meets its TRUNCATE.
--
-- An event with an owner is a retry and is meant for that subscription only.

create or replace function pgque.batch_event_sql(batch_id bigint)
returns text
language plpgsql
as $$
declare
    v_batch record;
    v_late  xid8[];
    v_table text;
    v_parts text[] := '{}';
    v_range constant text :=
        'select e.* from pgque.%1$I as e '
        'where e.ev_txid >= %2$L::xid8 and e.ev_txid < %3$L::xid8 '
        'and pg_catalog.pg_visible_in_snapshot(e.ev_txid, %4$L::pg_snapshot) '
        'and (e.ev_owner is null or e.ev_owner = %5$L::int4)';
    v_listed constant text :=
        'select e.* from pgque.%1$I as e '
        'where e.ev_txid = any (%2$L::xid8[]) '
        'and (e.ev_owner is null or e.ev_owner = %3$L::int4)';
begin
    select s.sub_id, s.sub_last_tick, s.sub_next_tick, q.queue_id, q.queue_cur_table,
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

    v_late := array(
        select x.txid
        from pg_catalog.pg_snapshot_xip(v_batch.prev_snapshot) as x (txid)
        where pg_catalog.pg_visible_in_snapshot(x.txid, v_batch.next_snapshot)
    );

    foreach v_table in array array[
        'event_' || v_batch.queue_id || '_' || v_batch.queue_cur_table,
        'event_' || v_batch.queue_id || '_' || (v_batch.queue_cur_table + 2) % 3
    ] loop
        v_parts := v_parts || pg_catalog.format(
            v_range, v_table,
            pg_catalog.pg_snapshot_xmax(v_batch.prev_snapshot),
            pg_catalog.pg_snapshot_xmax(v_batch.next_snapshot),
            v_batch.next_snapshot, v_batch.sub_id);
        if pg_catalog.cardinality(v_late) > 0 then
            v_parts := v_parts || pg_catalog.format(v_listed, v_table, v_late, v_batch.sub_id);
        end if;
    end loop;
    return pg_catalog.array_to_string(v_parts, ' union all ');
end;
$$;

revoke all on function pgque.batch_event_sql(bigint) from public;
grant execute on function pgque.batch_event_sql(bigint) to pgque_admin;
