-- Which engine this pack observes and in which versions; how the service finds the pack.
create or replace function pgq_observability.observability_info()
returns table (engine text, engine_version text, pack_version text)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
    -- PgQ from its plain SQL files doesn't know its version.
    select 'pgq', (select e.extversion from pg_extension e where e.extname = 'pgq'), '{version}'
$$;

revoke all on function pgq_observability.observability_info() from public;
grant execute on function pgq_observability.observability_info() to pgque_monitor;
