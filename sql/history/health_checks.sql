-- The checks that this pack makes of queues and consumers: none. What is abnormal is an alert's to say.
create or replace function queue_history.health_checks()
returns table (check_name text, subject text, meaning text)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
    select '', '', '' where false
$$;

revoke all on function queue_history.health_checks() from public;
grant execute on function queue_history.health_checks() to pgque_monitor;
