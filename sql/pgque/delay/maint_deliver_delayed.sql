-- Turn delayed messages that are due into events of their queues; the next tick delivers them. maint()
-- calls it. Returns how many it moved, at most 10,000 per queue. Several may run at a time, each takes
-- what no other has in hand.
--
-- A queue that can't take its messages keeps them and doesn't stop the others. As with every insert the
-- transaction id comes before the look at the queue (see insert_event_raw).

create or replace function pgque.maint_deliver_delayed()
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_now   constant timestamptz := clock_timestamp();
    v_txid  xid8;
    v_queue record;
    v_moved int4;
    v_total int4 := 0;
begin
    if not exists (select from pgque.delayed_events as e where e.de_deliver_at <= v_now) then
        return 0;
    end if;

    v_txid := pg_current_xact_id();
    for v_queue in
        select q.queue_id, q.queue_name, q.queue_cur_table, q.queue_event_seq
        from pgque.queue as q
        where not q.queue_disable_insert
          and q.queue_name in (
              select e.de_queue_name from pgque.delayed_events as e where e.de_deliver_at <= v_now
          )
        order by q.queue_id
    loop
        begin
            execute format(
                'with due as ('
                '    select e.de_id'
                '    from pgque.delayed_events as e'
                '    where e.de_queue_name = $1 and e.de_deliver_at <= $2'
                '    order by e.de_deliver_at, e.de_id'
                '    limit 10000'
                '    for update skip locked'
                '), taken as ('
                '    delete from pgque.delayed_events as e'
                '    using due'
                '    where e.de_id = due.de_id'
                '    returning e.*'
                '), numbered as materialized ('
                '    select nextval($4) as ev_id, o.*'
                '    from (select t.* from taken as t order by t.de_deliver_at, t.de_id) as o'
                '), written as ('
                '    insert into pgque.%I (ev_id, ev_txid, ev_type, ev_data,'
                '        ev_extra1, ev_extra2, ev_extra3, ev_extra4)'
                '    select n.ev_id, $3, n.de_type, n.de_data,'
                '        n.de_extra1, n.de_extra2, n.de_extra3, n.de_extra4'
                '    from numbered as n'
                '    returning 1'
                ') '
                'select count(*) from written',
                'event_' || v_queue.queue_id || '_' || v_queue.queue_cur_table)
            into v_moved
            using v_queue.queue_name, v_now, v_txid, v_queue.queue_event_seq::regclass;
        exception
            when others then
                raise warning 'delayed messages of queue % were not delivered: %',
                    v_queue.queue_name, sqlerrm;
                continue;
        end;

        if v_moved > 0 and current_setting('transaction_isolation') not like 'read %' then
            perform pgque.refuse_if_rotated(v_queue.queue_id, v_queue.queue_cur_table);
        end if;
        v_total := v_total + v_moved;
    end loop;
    return v_total;
end;
$$;

revoke all on function pgque.maint_deliver_delayed() from public;
grant execute on function pgque.maint_deliver_delayed() to pgque_admin;
