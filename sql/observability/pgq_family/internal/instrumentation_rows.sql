-- What the pack's instrumentation adds to otel_metrics(): nothing where it isn't installed.
create or replace function {pack}.instrumentation_rows()
returns table (metric_name text, metric_type text, value numeric, labels jsonb)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set jit = off
rows 1
as $$
begin
    if to_regprocedure('{pack}.instrumented_metrics()') is not null then
        return query execute 'select * from {pack}.instrumented_metrics()';
    end if;
end
$$;

revoke all on function {pack}.instrumentation_rows() from public;
grant execute on function {pack}.instrumentation_rows() to pgque_monitor;
