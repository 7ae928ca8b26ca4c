-- What a consumer really has before it, from the event tables: the ticks only know the event sequence,
-- which rolled-back sends, forced ticks and other consumers' retries advance as well.
--
-- Looks at no more than max_examined events of those that came after a snapshot, so its cost is bounded
-- whatever waits. If it examined fewer, the counts are exact; else there are at least so many. Null where
-- a table isn't there, or somebody has it locked: one queue's migration must not hold up a poll of all.
--
-- It runs with its owner's rights because the monitor role must not read event tables; all it gives away
-- is counts and a time. It reads tables that only the engine's owner can make: a name out of the queue's
-- row could be that of a view whose functions would run with those rights.
create or replace function {pack}.waiting_events(
    queue_id int4,
    owners int4[],                -- subscriptions whose retries count; null: everybody's
    after_snapshot {snapshot},    -- where the consumer stands
    tick_snapshot {snapshot},     -- what later ticks cover
    max_examined int4,
    out examined int4,
    out ticked int4,              -- of these, its own that a tick covers: it could take them now
    out late int4,                -- of these, committed late: no event number tells where they lie
    out unticked int4,            -- of these, its own that no tick covers yet
    out unticked_since timestamptz)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10ms'
as $$
declare
    queue record;
    running {txid}[] := array(select {snapshot}_xip(after_snapshot));
    tables int4[];
    table_no int4;
    event_table text;
    parts text[];
begin
    select q.queue_cur_table, q.queue_ntables, q.queue_switch_step2
    into queue
    from {engine}.queue q
    where q.queue_id = waiting_events.queue_id;

    -- Everything later than the last rotation is in the current table; else also in the one before it.
    tables := array[queue.queue_cur_table];
    if ({snapshot}_xmin(after_snapshot) > queue.queue_switch_step2) is not true then
        tables := tables || (queue.queue_cur_table + queue.queue_ntables - 1) % queue.queue_ntables;
    end if;

    foreach table_no in array tables loop
        event_table := to_regclass(format('{engine}.event_%s_%s', queue_id, table_no))::text;
        if event_table is null then
            return;  -- unknown
        end if;
        parts := parts || format(
            '(select ev_txid, ev_owner, ev_retry, ev_time from %s where ev_txid >= $1 order by ev_txid limit $3)',
            event_table);
        -- Committed late: its transaction was running when the snapshot was taken.
        if cardinality(running) > 0 then
            parts := parts || format(
                '(select ev_txid, ev_owner, ev_retry, ev_time from %s where ev_txid = any ($2) limit $3)',
                event_table);
        end if;
    end loop;

    -- A retried event keeps its first time and would look old the moment it comes back; and who sets an
    -- event's time may say 'infinity', from which no age can be told.
    execute 'select count(*), count(*) filter (where e.is_own and e.is_ticked),'
        ' count(*) filter (where e.is_own and e.is_ticked and e.ev_txid < $1),'
        ' count(*) filter (where e.is_own and not e.is_ticked),'
        ' min(e.ev_time) filter (where e.is_own and not e.is_ticked and e.ev_retry is null and isfinite(e.ev_time))'
        ' from (select e.*, (e.ev_owner is null or e.ev_owner = any ($4)) is not false as is_own,'
        ' {visible}(e.ev_txid, $5) as is_ticked'
        ' from (' || array_to_string(parts, ' union all ') || ') e) e'
    into examined, ticked, late, unticked, unticked_since
    using {snapshot}_xmax(after_snapshot), running, max_examined, owners, tick_snapshot;
exception
    when lock_not_available or undefined_table then
        null;  -- unknown
end
$$;

revoke all on function {pack}.waiting_events(int4, int4[], {snapshot}, {snapshot}, int4) from public;
grant execute on function {pack}.waiting_events(int4, int4[], {snapshot}, {snapshot}, int4) to pgque_monitor;
