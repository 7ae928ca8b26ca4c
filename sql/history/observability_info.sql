-- How the service finds this pack. Its rows name the engine and database that they are about.
create or replace function queue_history.observability_info()
returns table (engine text, engine_version text, pack_version text)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
    select 'history', '', '{version}'
$$;

revoke all on function queue_history.observability_info() from public;
grant execute on function queue_history.observability_info() to pgque_monitor;
