-- Bring retries that are due back into their queues; the next tick delivers them. Call it every few
-- seconds, or no nacked message ever comes again. Returns how many it moved, at most 10,000: after
-- that many, call it again. Several may run at a time, each takes what no other has in hand.
--
-- A retry is an insert like any other, so the transaction id comes before the look at the queue here
-- too (see insert_event_raw). It goes in under its old event id, so one id per moved event is drawn
-- and thrown away: the sequence is what tells the ticker that there is something new.

create or replace function pgque.maint_retry_events()
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_limit constant int4 := 10000;
    v_txid  constant xid8 := pg_current_xact_id();
    v_now   constant timestamptz := clock_timestamp();
    v_queue record;
    v_moved int4;
    v_total int4 := 0;
begin
    for v_queue in
        select q.queue_id, q.queue_cur_table, q.queue_event_seq
        from pgque.queue as q
        where q.queue_id in (
            select due.ev_queue
            from (
                select r.ev_queue
                from pgque.retry_queue as r
                where r.ev_retry_after <= v_now
                order by r.ev_retry_after
                limit v_limit
            ) as due
        )
        order by q.queue_id
    loop
        execute format(
            'with due as ('
            '    select r.ev_owner, r.ev_id'
            '    from pgque.retry_queue as r'
            '    where r.ev_queue = $1 and r.ev_retry_after <= $2'
            '    order by r.ev_retry_after'
            '    limit $3'
            '    for update skip locked'
            '), taken as ('
            '    delete from pgque.retry_queue as r'
            '    using due'
            '    where r.ev_owner = due.ev_owner and r.ev_id = due.ev_id'
            '    returning r.*'
            '), written as ('
            '    insert into pgque.%I (ev_id, ev_time, ev_txid, ev_owner, ev_retry, ev_type, ev_data,'
            '        ev_extra1, ev_extra2, ev_extra3, ev_extra4)'
            '    select t.ev_id, t.ev_time, $4, t.ev_owner, t.ev_retry, t.ev_type, t.ev_data,'
            '        t.ev_extra1, t.ev_extra2, t.ev_extra3, t.ev_extra4'
            '    from taken as t'
            '    returning nextval($5)'
            ') '
            'select count(*) from written',
            'event_' || v_queue.queue_id || '_' || v_queue.queue_cur_table)
        into v_moved
        using v_queue.queue_id, v_now, v_limit - v_total, v_txid, v_queue.queue_event_seq::regclass;

        if v_moved > 0 and current_setting('transaction_isolation') not like 'read %' then
            perform pgque.refuse_if_rotated(v_queue.queue_id, v_queue.queue_cur_table);
        end if;
        v_total := v_total + v_moved;
        exit when v_total >= v_limit;
    end loop;
    return v_total;
end;
$$;

revoke all on function pgque.maint_retry_events() from public;
grant execute on function pgque.maint_retry_events() to pgque_admin;
