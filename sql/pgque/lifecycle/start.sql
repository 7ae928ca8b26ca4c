-- Have pg_cron drive the engine: four jobs in this database, in place of those that are there. Rotation
-- takes two of them, because its two halves must not share a transaction.

create or replace function pgque.start()
returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_version text := (select x.extversion from pg_extension as x where x.extname = 'pg_cron');
    v_jobs    bigint[] := array[]::bigint[];
    v_job     record;
    v_id      bigint;
begin
    if v_version is null then
        raise exception 'pg_cron is not installed in database %', current_database()
            using errcode = 'object_not_in_prerequisite_state',
                  hint = 'Install it here (create extension pg_cron; cron.database_name has to name this '
                         'database). Or drive the engine from outside: run `pgque-exporter ticker`, or '
                         'call pgque.ticker() several times a second, pgque.maint_retry_events() and '
                         'pgque.maint() every 30 seconds and pgque.maint_rotate_tables_step2() every 10, '
                         'each in a transaction of its own.';
    end if;
    if string_to_array(substring(v_version from '^[0-9]+\.[0-9]+'), '.')::int4[] < array[1, 5] then
        raise exception 'pg_cron % is too old: jobs that run every few seconds need 1.5', v_version
            using errcode = 'object_not_in_prerequisite_state',
                  hint = 'Update pg_cron, or drive the engine from outside: run `pgque-exporter ticker`.';
    end if;

    perform pgque.stop();
    for v_job in
        select j.*
        from (values
            ('pgque_ticker', '1 second', 'call pgque.ticker_loop()'),
            ('pgque_maint', '30 seconds', 'select pgque.maint()'),
            ('pgque_retry_events', '30 seconds', 'select pgque.maint_retry_events()'),
            ('pgque_rotate_step2', '10 seconds', 'select pgque.maint_rotate_tables_step2()')
        ) as j (name, schedule, command)
    loop
        execute 'select cron.schedule($1, $2, $3)'
        into v_id
        using v_job.name, v_job.schedule, v_job.command;
        v_jobs := v_jobs || v_id;
        perform pgque.log_event('info', 'scheduler', 'job scheduled', jsonb_build_object(
            'job', v_job.name, 'job_id', v_id, 'schedule', v_job.schedule));
    end loop;
    update pgque.config
    set ticker_job_id = v_jobs[1], maint_job_id = v_jobs[2], retry_job_id = v_jobs[3],
        step2_job_id = v_jobs[4];
end;
$$;

revoke all on function pgque.start() from public;
grant execute on function pgque.start() to pgque_admin;
