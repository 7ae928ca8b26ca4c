-- Dead letters were removed: replayed when dlq_replay() did it, else purged. They may have outlived
-- their consumer, and a replay is for all consumers, so both are counted for the queue.
create or replace function pgque.instrument_dead_letter_removal()
returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    callers text;
begin
    get diagnostics callers = pg_context;
    if pgque.instrumentation_ready() then
        insert into pgque.instrumentation_log (what, at, queue_id, sub_id, events)
        select
            case when callers like '%dlq_replay(bigint)%' then 'replayed' else 'purged' end,
            clock_timestamp(), d.dl_queue_id, 0, count(*)
        from deleted d
        group by d.dl_queue_id;
    end if;
    return null;
end
$$;

revoke all on function pgque.instrument_dead_letter_removal() from public;
