-- How many events failed over a past period, bucket by bucket (specification 5.1). Every bucket of the
-- period has a row.
--
-- The engine keeps no record of when an event was sent to retry, so without the pack's instrumentation
-- retries is null: unknown, not none; and dead_letters counts those still in the table. The
-- instrumentation's history has both, also of events since redelivered, replayed or purged, for the
-- buckets that it covers as a whole.
create or replace function {pack}.error_rate(queue_name text, period interval, bucket_size interval)
returns table (bucket_start timestamptz, retries bigint, dead_letters bigint)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    wanted_queue int4 := {pack}.require_queue(queue_name);
    first_bucket timestamptz := {pack}.require_buckets(period, bucket_size);
    bucket_seconds numeric := extract(epoch from bucket_size);
    known record;
begin
    select null::timestamptz[] as buckets, null::bigint[] as retries, null::bigint[] as dead_letters into known;
    if to_regprocedure('{pack}.retry_history(int4, timestamptz, interval)') is not null then
        execute 'select array_agg(h.bucket_start) as buckets, array_agg(h.retries) as retries,'
            ' array_agg(h.dead_letters) as dead_letters from {pack}.retry_history($1, $2, $3) h'
        into known
        using wanted_queue, first_bucket, bucket_size;
    end if;

    return query
    with dead as (
        select floor(extract(epoch from d.dl_time) / bucket_seconds) * bucket_seconds as bucket, count(*) as counted
        from {dead_letter} d
        where d.dl_queue_id = wanted_queue and d.dl_time >= first_bucket
        group by 1
    )
    select to_timestamp(b.bucket), h.retries, coalesce(h.dead_letters, d.counted, {no_dead_letters})
    from generate_series(extract(epoch from first_bucket), extract(epoch from now()), bucket_seconds) b(bucket)
    left join dead d on d.bucket = b.bucket
    left join unnest(known.buckets, known.retries, known.dead_letters) h(bucket, retries, dead_letters)
        on h.bucket = to_timestamp(b.bucket)
    order by b.bucket;
end
$$;

revoke all on function {pack}.error_rate(text, interval, interval) from public;
grant execute on function {pack}.error_rate(text, interval, interval) to pgque_monitor;
