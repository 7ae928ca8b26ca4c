-- How fast the queue filled over a past period, bucket by bucket, from its ticks (specification 5.1).
-- A tick's events are credited to the bucket that the tick falls into, and the rate is taken over the
-- time that those ticks cover: with ticks rarer than buckets, dividing by the bucket size would double
-- the rate in some buckets and show silence in others. Only buckets with ticks have a row.
--
-- Events are counted by their numbers, an upper bound: rolled-back sends, forced ticks and retries drew some
-- as well, and of events long rotated away nothing else is left.
create or replace function {pack}.throughput(queue_name text, period interval, bucket_size interval)
returns table (bucket_start timestamptz, events bigint, events_per_sec numeric)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    wanted_queue int4 := {pack}.require_queue(queue_name);
    first_bucket timestamptz := {pack}.require_buckets(period, bucket_size);
    bucket_seconds numeric := extract(epoch from bucket_size);
begin
    return query
    with tick as (
        select
            t.tick_time,
            t.tick_event_seq - lag(t.tick_event_seq) over by_id as events,
            t.tick_time - lag(t.tick_time) over by_id as covers
        from {tick} t
        where t.tick_queue = wanted_queue
        window by_id as (order by t.tick_id)
    )
    select
        to_timestamp(floor(extract(epoch from t.tick_time) / bucket_seconds) * bucket_seconds) as bucket,
        sum(greatest(t.events, 0))::bigint,  -- a sequence set back makes no negative flow
        -- ticks may bear the time of another clock, or of one that was set back
        case when sum(t.covers) > interval '0'
            then round(sum(greatest(t.events, 0)) / extract(epoch from sum(t.covers)), 3) end
    from tick t
    where t.tick_time >= first_bucket and t.events is not null
    group by bucket
    order by bucket;
end
$$;

revoke all on function {pack}.throughput(text, interval, interval) from public;
grant execute on function {pack}.throughput(text, interval, interval) to pgque_monitor;
