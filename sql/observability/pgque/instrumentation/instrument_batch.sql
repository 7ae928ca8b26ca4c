-- A consumer finishes a batch. When it was taken is what the engine notes as the consumer's last
-- activity: the beginning of the transaction that took it.
create or replace function pgque.instrument_batch()
returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    finished_at timestamptz := clock_timestamp();
    callers text;
begin
    -- Moved to another tick, the batch was given up. A cooperative member has no position afterwards.
    if new.sub_last_tick <> old.sub_next_tick then
        return new;
    end if;
    -- Nor is it work when the engine skips a batch without events, moves the consumer on request, or takes
    -- the batch from a cooperative member that is dead or leaves: no other function of that name takes one.
    get diagnostics callers = pg_context;
    if callers like any (array[
        '%finish_empty(bigint)%', '%register_consumer_at(text,text,bigint)%',
        '%next_batch_custom(%', '%unregister_subconsumer(%'
    ]) then
        return new;
    end if;
    if pgque.instrumentation_ready() then
        -- Nothing in here can fail, whatever time a clock or a ticker from outside gave; and
        -- greatest() alone would make a number of an unknown.
        insert into pgque.instrumentation_log (what, at, queue_id, sub_id, events, processing, wait)
        select
            'batch', finished_at, old.sub_queue, coalesce(old.sub_parent, old.sub_id), b.events,
            case when isfinite(old.sub_active)
                then greatest(extract(epoch from finished_at - old.sub_active) * 1000000, 0) end,
            case when isfinite(b.visible_at)
                then greatest(extract(epoch from finished_at - b.visible_at) * 1000000, 0) end
        from pgque.instrumentation_batch(old.sub_batch) b;
    end if;
    return new;
end
$$;

revoke all on function pgque.instrument_batch() from public;
