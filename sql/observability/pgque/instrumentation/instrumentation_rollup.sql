-- Move what the triggers logged into totals and history, at most max_rows rows of the log; returns how
-- many. Call it every minute or so, beside maint(); as long as it returns max_rows there is more.
--
-- The figures are right whether or not it runs: it keeps the log short, and so reading cheap. All in
-- one statement: either a row is in the log or it is counted, whoever looks and whatever breaks off.
create or replace function pgque.instrumentation_rollup(max_rows int4 default 50000)
returns int4
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    rolled_up int4;
begin
    -- Serializable, it would read all of the log, and every consumer writing to it be in conflict.
    if current_setting('transaction_isolation') = 'serializable' then
        raise exception 'pgque.instrumentation_rollup() must not run in a serializable transaction'
            using errcode = 'invalid_transaction_state', hint = 'Run it in read committed.';
    end if;

    -- One at a time; who comes second has nothing to add.
    perform from pgque.instrumentation_state s for update skip locked;
    if not found then
        return 0;
    end if;

    with taken as materialized (
        delete from pgque.instrumentation_log l
        where l.ctid = any (array(
            select o.ctid from pgque.instrumentation_log o limit instrumentation_rollup.max_rows))
        returning l.at, l.events, l.processing, l.wait, l.queue_id, l.sub_id, l.what
    ),
    totals as (
        insert into pgque.instrumentation_total as t
            (queue_id, sub_id, what, processing_le, size_le, entries, events, processing)
        select
            l.queue_id, l.sub_id, l.what,
            pgque.instrumentation_bucket('processing', l.processing) as processing_le,
            case when l.what = 'batch' then pgque.instrumentation_bucket('size', l.events) else 0 end as size_le,
            count(*), coalesce(sum(l.events), 0), coalesce(sum(l.processing), 0)
        from taken l
        group by l.queue_id, l.sub_id, l.what, processing_le, size_le
        on conflict (queue_id, sub_id, what, processing_le, size_le) do update set
            entries = t.entries + excluded.entries,
            events = t.events + excluded.events,
            processing = t.processing + excluded.processing
    ),
    history as (
        insert into pgque.instrumentation_history as h (queue_id, sub_id, what, minute, wait_le, events)
        select
            l.queue_id, l.sub_id, l.what, date_bin('1 minute', l.at, timestamptz 'epoch') as minute,
            pgque.instrumentation_bucket('wait', l.wait) as wait_le, sum(greatest(l.events, 1))
        from taken l
        where l.what in ('nacked', 'dead_lettered') or l.wait is not null
        group by l.queue_id, l.sub_id, l.what, minute, wait_le
        on conflict (queue_id, sub_id, what, minute, wait_le) do update set
            events = h.events + excluded.events
    )
    select count(*)::int4 into rolled_up from taken;

    -- What nobody can see any more.
    delete from pgque.instrumentation_total t
    where not exists (select from pgque.queue q where q.queue_id = t.queue_id)
        or (t.sub_id <> 0
            and not exists (select from pgque.subscription s where s.sub_id = t.sub_id));
    -- Noted before it is forgotten: keeping history for longer later doesn't bring it back. Compared as ages,
    -- as there may be no time that long ago.
    update pgque.instrumentation_state s
    set history_from = now() - s.history_kept
    where now() - s.history_from > s.history_kept;
    delete from pgque.instrumentation_history h
    where h.minute < (select s.history_from - interval '1 minute' from pgque.instrumentation_state s);
    return rolled_up;
end
$$;

revoke all on function pgque.instrumentation_rollup(int4) from public;
grant execute on function pgque.instrumentation_rollup(int4) to pgque_admin;
