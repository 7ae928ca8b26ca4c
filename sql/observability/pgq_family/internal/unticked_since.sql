-- When the oldest committed event was sent that no tick covers yet; null if there is none.
--
-- The event sequence alone can't tell: rolled-back sends and forced ticks advance it as well. So when
-- a ticker looks late, this asks the event table itself, by one index probe per table. It runs with
-- its owner's rights because the monitor role must not read event tables; all it gives away is a time.
create or replace function {pack}.unticked_since(queue_id int4)
returns timestamptz
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    queue record;
    last_snapshot pg_snapshot;
    table_no int4;
    found_time timestamptz;
    oldest timestamptz;
begin
    select q.queue_data_pfx, q.queue_cur_table, q.queue_ntables
    into queue
    from {engine}.queue q
    where q.queue_id = unticked_since.queue_id;

    select t.tick_snapshot into last_snapshot
    from {engine}.tick t
    where t.tick_queue = unticked_since.queue_id
    order by t.tick_id desc
    limit 1;

    if queue is null or last_snapshot is null then
        return null;
    end if;

    -- Writers may still be on the table before the current one while a rotation is under way.
    foreach table_no in array array[
        queue.queue_cur_table,
        (queue.queue_cur_table + queue.queue_ntables - 1) % queue.queue_ntables]
    loop
        -- A retried event keeps its first ev_time and would look old the moment it comes back.
        execute format(
            'select min(e.ev_time) from ('
            '  (select ev_time, ev_retry from %1$s where ev_txid >= $1 order by ev_txid limit 100)'
            '  union all'
            '  (select ev_time, ev_retry from %1$s where ev_txid = any ($2) limit 100)) e'
            ' where e.ev_retry is null',
            (queue.queue_data_pfx || '_' || table_no)::regclass)
        into found_time
        using pg_snapshot_xmax(last_snapshot), array(select pg_snapshot_xip(last_snapshot));
        oldest := least(oldest, found_time);
    end loop;
    return oldest;
end
$$;

revoke all on function {pack}.unticked_since(int4) from public;
grant execute on function {pack}.unticked_since(int4) to pgque_monitor;
