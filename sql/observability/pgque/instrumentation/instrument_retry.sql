-- An event was sent to retry.
create or replace function pgque.instrument_retry()
returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if pgque.instrumentation_ready() then
        insert into pgque.instrumentation_log (what, at, queue_id, sub_id, events)
        values (
            'nacked', clock_timestamp(), new.ev_queue,
            coalesce((
                select coalesce(s.sub_parent, s.sub_id)
                from pgque.subscription s
                where s.sub_id = new.ev_owner), 0),
            1);
    end if;
    return null;
end
$$;

revoke all on function pgque.instrument_retry() from public;
