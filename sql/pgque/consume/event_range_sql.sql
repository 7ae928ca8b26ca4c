-- The query that finds what a subscription gets between two snapshots, as text; the heart of the
-- engine. Internal: batches are read, retried and skipped by running it.
--
-- An event belongs to the range when the snapshot at its end sees the event's transaction and the one
-- at its start doesn't. Two index ranges hold all candidates: transactions that began after the start
-- (ids from its xmax on), and those still running then, which are listed one by one. Without that
-- list an event committed late would be lost; by its id alone it looks delivered long ago.
--
-- Two tables hold all of it: rotation doesn't move on before every consumer is past the table it
-- gives up. That third table is left out, so that reading never meets its TRUNCATE.
--
-- An event with an owner is a retry and is meant for that subscription only.

create or replace function pgque.event_range_sql(
    queue_id int4, cur_table int4, sub_id int4, start_snapshot pg_snapshot, end_snapshot pg_snapshot
)
returns text
language plpgsql
stable
as $$
declare
    v_late   xid8[];
    v_table  text;
    v_parts  text[] := array[]::text[];
    v_newer  constant text :=
        'select e.* from pgque.%1$I as e '
        'where e.ev_txid >= %2$L::xid8 and e.ev_txid < %3$L::xid8 '
        'and pg_catalog.pg_visible_in_snapshot(e.ev_txid, %4$L::pg_snapshot) '
        'and (e.ev_owner is null or e.ev_owner = %5$L::int4)';
    v_listed constant text :=
        'select e.* from pgque.%1$I as e '
        'where e.ev_txid = any (%2$L::xid8[]) '
        'and (e.ev_owner is null or e.ev_owner = %3$L::int4)';
begin
    v_late := array(
        select x.txid
        from pg_catalog.pg_snapshot_xip(start_snapshot) as x (txid)
        where pg_catalog.pg_visible_in_snapshot(x.txid, end_snapshot)
    );

    foreach v_table in array array[
        'event_' || queue_id || '_' || cur_table,
        'event_' || queue_id || '_' || (cur_table + 2) % 3
    ] loop
        v_parts := v_parts || pg_catalog.format(
            v_newer, v_table,
            pg_catalog.pg_snapshot_xmax(start_snapshot), pg_catalog.pg_snapshot_xmax(end_snapshot),
            end_snapshot, sub_id);
        if pg_catalog.cardinality(v_late) > 0 then
            v_parts := v_parts || pg_catalog.format(v_listed, v_table, v_late, sub_id);
        end if;
    end loop;
    return pg_catalog.array_to_string(v_parts, ' union all ');
end;
$$;

revoke all on function pgque.event_range_sql(int4, int4, int4, pg_snapshot, pg_snapshot) from public;
grant execute on function pgque.event_range_sql(int4, int4, int4, pg_snapshot, pg_snapshot) to pgque_admin;
