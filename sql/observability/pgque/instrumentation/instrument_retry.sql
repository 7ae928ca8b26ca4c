-- Events were sent to retry, one by nack() or a whole batch.
create or replace function pgque.instrument_retry()
returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if pgque.instrumentation_ready() then
        insert into pgque.instrumentation_log (what, at, queue_id, sub_id, events)
        select 'nacked', clock_timestamp(), a.ev_queue, coalesce(s.sub_parent, s.sub_id, 0), count(*)
        from added a
        left join pgque.subscription s on s.sub_id = a.ev_owner
        group by a.ev_queue, coalesce(s.sub_parent, s.sub_id, 0);
    end if;
    return null;
end
$$;

revoke all on function pgque.instrument_retry() from public;
