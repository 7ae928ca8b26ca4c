-- A consumer gave up on an event.
create or replace function pgque.instrument_dead_letter()
returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if pgque.instrumentation_ready() then
        insert into pgque.instrumentation_log (what, at, queue_id, sub_id, events)
        values (
            'dead_lettered', new.dl_time, new.dl_queue_id,
            coalesce((
                select coalesce(s.sub_parent, s.sub_id)
                from pgque.subscription s
                where s.sub_queue = new.dl_queue_id and s.sub_consumer = new.dl_consumer_id), 0),
            1);
    end if;
    return null;
end
$$;

revoke all on function pgque.instrument_dead_letter() from public;
