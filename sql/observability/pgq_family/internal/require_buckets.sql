-- Checks a look-back period and a bucket size before a history function makes one row per bucket:
-- both positive, at most 10,000 buckets. Returns the start of the first bucket; buckets are aligned to
-- the epoch, so the same moment falls into the same bucket whoever asks and whenever.
create or replace function {pack}.require_buckets(period interval, bucket_size interval)
returns timestamptz
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
    bucket_seconds numeric := extract(epoch from bucket_size);
    period_seconds numeric := extract(epoch from period);
begin
    if period_seconds is null or period_seconds <= 0 then
        raise exception 'period must be positive, not %', coalesce(period::text, 'null');
    end if;
    if bucket_seconds is null or bucket_seconds <= 0 then
        raise exception 'bucket_size must be positive, not %', coalesce(bucket_size::text, 'null');
    end if;
    if period_seconds / bucket_seconds > 10000 then
        raise exception 'a period of % in buckets of % makes more than 10000 buckets', period, bucket_size
            using hint = 'Ask for a shorter period or larger buckets.';
    end if;
    return to_timestamp(
        floor((extract(epoch from now()) - period_seconds) / bucket_seconds) * bucket_seconds);
end
$$;

revoke all on function {pack}.require_buckets(interval, interval) from public;
grant execute on function {pack}.require_buckets(interval, interval) to pgque_monitor;
