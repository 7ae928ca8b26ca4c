-- How many events of a queue were sent to retry and given up on, per bucket of the past; for
-- error_rate(). One row per bucket that is known as a whole: from the installation on, as long as
-- history is kept. History is kept by the minute, so nothing is known about buckets that split one.
create or replace function pgque.retry_history(queue_id int4, since timestamptz, bucket_size interval)
returns table (bucket_start timestamptz, retries bigint, dead_letters bigint)
language sql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
    with asked as (
        select
            extract(epoch from bucket_size) as seconds,
            extract(epoch from greatest(retry_history.since, s.history_from)) as known_from
        from pgque.instrumentation_state s
        where extract(epoch from bucket_size) % 60 = 0 and extract(epoch from bucket_size) > 0
    ),
    failure as (
        select h.what, h.minute as at, h.events
        from pgque.instrumentation_history h
        where h.queue_id = retry_history.queue_id and h.what in ('nacked', 'dead_lettered')
            and h.minute >= retry_history.since
        union all
        select l.what, l.at, l.events
        from pgque.instrumentation_log l
        where l.queue_id = retry_history.queue_id and l.what in ('nacked', 'dead_lettered')
            and l.at >= retry_history.since
    ),
    counted as (
        select
            floor(extract(epoch from f.at) / a.seconds) * a.seconds as bucket,
            sum(f.events) filter (where f.what = 'nacked') as retries,
            sum(f.events) filter (where f.what = 'dead_lettered') as dead_letters
        from failure f
        cross join asked a
        group by bucket
    )
    select to_timestamp(b.bucket), coalesce(c.retries, 0)::bigint, coalesce(c.dead_letters, 0)::bigint
    from asked a
    cross join lateral generate_series(
        ceil(a.known_from / a.seconds) * a.seconds, extract(epoch from now()), a.seconds) b(bucket)
    left join counted c on c.bucket = b.bucket
    order by b.bucket
$$;

revoke all on function pgque.retry_history(int4, timestamptz, interval) from public;
grant execute on function pgque.retry_history(int4, timestamptz, interval) to pgque_monitor;
