-- Whether pg_cron drives the ticker and the maintenance, where jobs are configured for that: checks
-- pg_cron_ticker and pg_cron_maint of queue `system`, as queue_health() has them (specification 5.1).
create or replace function {pack}.scheduler_health()
returns table (queue_name text, check_name text, status text, detail text)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
    select 'system', 'pg_cron_' || s.task, s.status, s.detail
    from {pack}.scheduler_states() s
    order by s.task desc
$$;

revoke all on function {pack}.scheduler_health() from public;
grant execute on function {pack}.scheduler_health() to pgque_monitor;
