-- How many events failed over a past period, bucket by bucket (specification 5.1). dead_letters counts
-- those still in the table; null where the engine has no such table. The engine keeps no record of when
-- an event was sent to retry, so retries is null: unknown, not none. Every bucket of the period has a row.
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
begin
    return query
    with dead as (
        select floor(extract(epoch from d.dl_time) / bucket_seconds) * bucket_seconds as bucket, count(*) as counted
        from {dead_letter} d
        where d.dl_queue_id = wanted_queue and d.dl_time >= first_bucket
        group by 1
    )
    select to_timestamp(b.bucket), null::bigint, coalesce(d.counted, {no_dead_letters})
    from generate_series(extract(epoch from first_bucket), extract(epoch from now()), bucket_seconds) b(bucket)
    left join dead d on d.bucket = b.bucket
    order by b.bucket;
end
$$;

revoke all on function {pack}.error_rate(text, interval, interval) from public;
grant execute on function {pack}.error_rate(text, interval, interval) to pgque_monitor;
