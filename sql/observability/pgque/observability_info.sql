-- Which engine this pack observes and in which versions; how the service finds the pack.
create or replace function pgque.observability_info()
returns table (engine text, engine_version text, pack_version text)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
    known_version text;
begin
    -- An engine too old to have version(), or a role that may not call it, leaves the version unknown.
    if has_function_privilege(to_regprocedure('pgque.version()'), 'execute') then
        execute 'select pgque.version()' into known_version;
    end if;
    return query select 'pgque'::text, known_version, '{version}'::text;
end
$$;

revoke all on function pgque.observability_info() from public;
grant execute on function pgque.observability_info() to pgque_monitor;
do $$
begin
    if to_regprocedure('pgque.version()') is not null then
        grant execute on function pgque.version() to pgque_monitor;
    end if;
end
$$;
