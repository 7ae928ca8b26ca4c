-- How long the events of finished batches had waited since their tick, and how many events that
-- concerns; for latency_percentiles(). Known to about an eighth of the value, by the minute, from the
-- installation on and as long as history is kept.
create or replace function pgque.wait_history(queue_id int4, consumer_name text, since timestamptz)
returns table (latency interval, events numeric)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with consumer as (
        select s.sub_id
        from pgque.subscription s
        join pgque.consumer c on c.co_id = s.sub_consumer
        where s.sub_queue = wait_history.queue_id and c.co_name = wait_history.consumer_name
    ),
    waited as (
        select h.wait_le, h.events
        from pgque.instrumentation_history h
        join consumer c on c.sub_id = h.sub_id
        where h.queue_id = wait_history.queue_id and h.what = 'batch'
            and h.minute >= date_bin('1 minute', wait_history.since, timestamptz 'epoch')
        union all
        select pgque.instrumentation_bucket('wait', l.wait), greatest(l.events, 1)
        from pgque.instrumentation_log l
        join consumer c on c.sub_id = l.sub_id
        where l.wait is not null
            and l.at >= date_bin('1 minute', wait_history.since, timestamptz 'epoch')
    )
    -- The middle of a bucket, which ends at wait_le and begins a tenth of a power of ten below.
    select make_interval(secs => w.wait_le / power(10, 0.05) / 1000000), sum(w.events)
    from waited w
    group by w.wait_le
    order by w.wait_le
$$;

revoke all on function pgque.wait_history(int4, text, timestamptz) from public;
grant execute on function pgque.wait_history(int4, text, timestamptz) to pgque_monitor;
