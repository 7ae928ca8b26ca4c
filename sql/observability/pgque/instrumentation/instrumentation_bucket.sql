-- The bucket of a histogram that a value falls into, by its upper bound; 0 when the value is unknown.
--
-- The body is bound, as that of instrumentation_bounds() is.
create or replace function pgque.instrumentation_bucket(histogram text, value bigint)
returns bigint
language sql
immutable
begin atomic
    select coalesce(
        (pgque.instrumentation_bounds(histogram))
            [width_bucket(value - 1, pgque.instrumentation_bounds(histogram)) + 1],
        0);
end;

revoke all on function pgque.instrumentation_bucket(text, bigint) from public;
grant execute on function pgque.instrumentation_bucket(text, bigint) to pgque_monitor;
