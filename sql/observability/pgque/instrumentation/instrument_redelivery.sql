-- Retries left the retry queue. Those brought back into their queue count as redelivered; those that
-- went with their consumer, or that somebody deleted by hand, don't.
create or replace function pgque.instrument_redelivery()
returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    callers text;
begin
    get diagnostics callers = pg_context;
    if callers like '%maint_retry_events()%' and pgque.instrumentation_ready() then
        insert into pgque.instrumentation_log (what, at, queue_id, sub_id, events)
        select 'redelivered', clock_timestamp(), d.ev_queue, coalesce(s.sub_parent, s.sub_id, 0), count(*)
        from deleted d
        left join pgque.subscription s on s.sub_id = d.ev_owner
        group by d.ev_queue, coalesce(s.sub_parent, s.sub_id, 0);
    end if;
    return null;
end
$$;

revoke all on function pgque.instrument_redelivery() from public;
