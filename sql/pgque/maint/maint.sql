-- Regular upkeep: rotate every queue that is due, deliver the delayed messages that are. Call it every
-- half minute or so. Two more things need calling on their own: maint_rotate_tables_step2(), which must
-- not share the transaction, and maint_retry_events(). Returns the number of queues rotated and
-- messages delivered.

create or replace function pgque.maint()
returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_name  text;
    v_count integer := 0;
begin
    for v_name in
        select q.queue_name
        from pgque.queue as q
        where q.queue_switch_step2 is not null
          and q.queue_switch_time + q.queue_rotation_period <= clock_timestamp()
        order by q.queue_id
    loop
        v_count := v_count + pgque.maint_rotate_tables_step1(v_name);
    end loop;
    return v_count + pgque.maint_deliver_delayed();
end;
$$;

revoke all on function pgque.maint() from public;
grant execute on function pgque.maint() to pgque_admin;
