-- How many events an open batch holds, and when the last of them had become visible; both null when
-- that can't be told now.
--
-- The events are counted, as the difference of the ticks' sequence numbers holds others, too: sends
-- rolled back, retries of other consumers, forced ticks. They were read a moment ago, so are at hand;
-- should somebody have one of the tables locked, the consumer waits no longer than a millisecond.
create or replace function pgque.instrumentation_batch(
    batch_id bigint, out events bigint, out visible_at timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '1ms'
as $$
begin
    execute 'select count(*) from (' || pgque.batch_event_sql(batch_id) || ') e' into events;
    select t.tick_time into visible_at
    from pgque.subscription s
    join pgque.tick t on t.tick_queue = s.sub_queue and t.tick_id = s.sub_next_tick
    where s.sub_batch = instrumentation_batch.batch_id;
exception
    when others then
        events := null;
        visible_at := null;
        raise log 'the instrumentation of pgque did not count the events of a batch: %', sqlerrm;
end
$$;

revoke all on function pgque.instrumentation_batch(bigint) from public;
