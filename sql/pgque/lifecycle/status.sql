-- The engine at a glance, one row per component. `ticker` and the rows after it tell whether pg_cron
-- has a job; without one they are stopped as far as pg_cron goes, and the age of the last tick tells
-- whether somebody else does the work.

create or replace function pgque.status()
returns table (component text, status text, detail text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    select 'postgresql', 'ok', current_setting('server_version');
    return query
    select 'pgque', 'ok', pgque.version();
    return query
    select wanted.name, case when x.extversion is null then 'missing' else 'ok' end,
           coalesce(x.extversion, 'not installed in this database')
    from (values ('pg_cron')) as wanted (name)
    left join pg_extension as x on x.extname = wanted.name;

    return query
    select jobs.component, case when j.active then 'running' else 'stopped' end,
           concat_ws(', ',
               coalesce('pg_cron job ' || j.job_id, 'no pg_cron job'),
               case when not j.active then 'inactive' end,
               case when jobs.component = 'ticker' then 'last tick '
                   || coalesce(date_trunc('milliseconds', clock_timestamp() - t.at) || ' ago', 'never')
               end)
    from (values
        (1, 'ticker', 'pgque_ticker'), (2, 'maintenance', 'pgque_maint'),
        (3, 'retries', 'pgque_retry_events'), (4, 'rotation', 'pgque_rotate_step2')
    ) as jobs (place, component, name)
    left join pgque.cron_jobs() as j on j.job_name = jobs.name
    cross join (select max(k.tick_time) as at from pgque.tick as k) as t
    order by jobs.place;

    return query
    select 'queues', 'ok', count(*)::text from pgque.queue;
    return query
    select 'consumers', 'ok', count(*)::text from pgque.subscription as s where s.sub_role <> 'coop_member';
end;
$$;

revoke all on function pgque.status() from public;
grant execute on function pgque.status() to pgque_admin;
