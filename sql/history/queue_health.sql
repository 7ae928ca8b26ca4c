-- See health_checks(): nothing is checked here.
create or replace function queue_history.queue_health()
returns table (queue_name text, check_name text, status text, detail text)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
    select '', '', '', '' where false
$$;

revoke all on function queue_history.queue_health() from public;
grant execute on function queue_history.queue_health() to pgque_monitor;
