-- Take the engine's jobs out of pg_cron. Queues keep what they have; nothing is ticked any more unless
-- somebody else does it. Does nothing where there are no jobs or no pg_cron.

-- The engine's jobs by their names; those of this database and of this engine's owner. Internal.
create or replace function pgque.cron_jobs()
returns table (job_id bigint, job_name text, active bool)
language plpgsql
stable
as $$
begin
    if pg_catalog.to_regclass('cron.job') is null
       or not exists (select from pg_catalog.pg_extension as x where x.extname = 'pg_cron') then
        return;
    end if;
    return query execute
        'select j.jobid, j.jobname::text, j.active from cron.job as j '
        'where j.jobname = any ($1) '
        'and j.database = pg_catalog.current_database() and j.username = current_user'
    using array['pgque_ticker', 'pgque_retry_events', 'pgque_maint', 'pgque_rotate_step2'];
end;
$$;

create or replace function pgque.stop()
returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_job record;
begin
    for v_job in select j.* from pgque.cron_jobs() as j loop
        execute 'select cron.unschedule($1)' using v_job.job_id;
        perform pgque.log_event('info', 'scheduler', 'job removed', jsonb_build_object(
            'job', v_job.job_name, 'job_id', v_job.job_id));
    end loop;
    update pgque.config
    set ticker_job_id = null, maint_job_id = null, retry_job_id = null, step2_job_id = null;
end;
$$;

revoke all on function pgque.cron_jobs() from public;
revoke all on function pgque.stop() from public;
grant execute on function pgque.cron_jobs() to pgque_admin;
grant execute on function pgque.stop() to pgque_admin;
