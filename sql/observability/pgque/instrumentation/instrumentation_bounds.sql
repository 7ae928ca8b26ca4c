-- The upper bounds of a histogram's buckets: microseconds for processing and wait, events for size. The
-- largest number there is stands for "no bound". `wait` is for percentiles: ten buckets per power of ten.
--
-- Totals are stored under these numbers: whoever changes them has to merge what is stored.
--
-- The body is bound when it is made, so no search path can change what its names mean, and becomes part of
-- the calling query.
create or replace function pgque.instrumentation_bounds(histogram text)
returns bigint[]
language sql
immutable
begin atomic
    select case histogram
        when 'processing' then array[
            10000, 50000, 100000, 500000, 1000000, 5000000, 10000000, 30000000, 60000000, 300000000,
            1800000000, 9223372036854775807]
        when 'size' then array[
            1, 10, 50, 100, 500, 1000, 5000, 10000, 100000, 9223372036854775807]
        when 'wait' then (
            select array_agg(round(power(10::float8, i / 10.0::float8))::bigint order by i)
            from generate_series(30, 180) i)
    end;
end;

revoke all on function pgque.instrumentation_bounds(text) from public;
grant execute on function pgque.instrumentation_bounds(text) to pgque_monitor;
