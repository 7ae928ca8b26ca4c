-- Second half of a rotation, for all queues that have done the first: note a transaction id that was
-- given out after the switch was committed. Call it every few seconds in a transaction of its own.
-- Returns how many queues it completed.
--
-- A writer with a higher id is then sure to write into the new table (see insert_event_raw). Both
-- conditions below serve that one sentence: this transaction must get its id only now, and the
-- switch must have been committed before this statement began.

create or replace function pgque.maint_rotate_tables_step2()
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_queue record;
    v_count integer := 0;
begin
    perform pgque.refuse_old_snapshot('pgque.maint_rotate_tables_step2()');
    if not exists (select from pgque.queue as q where q.queue_switch_step2 is null) then
        return 0;
    end if;
    if pg_current_xact_id_if_assigned() is not null then
        raise exception 'pgque.maint_rotate_tables_step2() must run in a transaction of its own'
            using errcode = 'invalid_transaction_state',
                  hint = 'Commit what was written before, then call it.';
    end if;

    for v_queue in
        update pgque.queue as q
        set queue_switch_step2 = pg_current_xact_id()
        where q.queue_switch_step2 is null
          and pg_visible_in_snapshot(q.queue_switch_step1, pg_current_snapshot())
        returning q.queue_name, q.queue_cur_table
    loop
        perform pgque.log_event('info', 'rotation', 'rotation step 2 done', jsonb_build_object(
            'queue', v_queue.queue_name, 'table', v_queue.queue_cur_table));
        v_count := v_count + 1;
    end loop;
    return v_count;
end;
$$;

revoke all on function pgque.maint_rotate_tables_step2() from public;
grant execute on function pgque.maint_rotate_tables_step2() to pgque_admin;
