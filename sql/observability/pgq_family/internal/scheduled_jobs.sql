-- The jobs by which pg_cron is to drive this engine, and how their last runs went: those that the
-- engine's own configuration names, and those of this database whose command calls the ticker or the
-- maintenance. No rows where there are none: a ticker may as well be driven from outside.
--
-- pg_cron shows a role its own jobs only, so this runs with its owner's rights and gives away ids, times
-- and outcomes, but no command and no message. It reads tables of the extension and nothing else of
-- their names, which anybody may make while pg_cron isn't there. SQL in strings lets it be created before
-- pg_cron is. Of the runs, of which there may be millions, it reads the last 1,000 of all jobs.
create or replace function {pack}.scheduled_jobs()
returns table (
    task text,                  -- ticker or maint
    job_id bigint,
    appointed boolean,          -- the engine's configuration names it, so it has to be there
    obstacle text,              -- no_pg_cron, hidden, missing, not_served or inactive; null: pg_cron runs it
    period interval,            -- longest time between two runs; null: not to be told from the schedule
    single_tick boolean,        -- all that it does is to call ticker() once
    recorded boolean,           -- pg_cron keeps a record of runs and we may read it
    running_since timestamptz,
    last_status text,           -- of the last finished run: succeeded or failed
    last_end timestamptz,
    last_duration interval,
    failures bigint,            -- runs that failed since the last one that succeeded
    failing_since timestamptz
)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    job_table oid;
    run_table oid;
    run_sequence oid;
    ticker_job bigint;
    maint_job bigint;
    may_see_settings boolean := pg_has_role('pg_read_all_settings', 'usage');
    served boolean := true;
    runs_recorded boolean := true;
begin
    select
        max(c.oid) filter (where c.relname = 'job'),
        max(c.oid) filter (where c.relname = 'job_run_details'),
        max(c.oid) filter (where c.relname = 'runid_seq')
    into job_table, run_table, run_sequence
    from pg_extension e
    join pg_depend d on d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid and d.deptype = 'e'
    join pg_class c on d.classid = 'pg_class'::regclass and c.oid = d.objid
    where e.extname = 'pg_cron' and c.relnamespace::regnamespace::text = 'cron';

    if has_table_privilege(to_regclass('{engine}.config'), 'select') then
        execute format('select c.ticker_job_id, c.maint_job_id from %s c', to_regclass('{engine}.config'))
        into ticker_job, maint_job;
    end if;

    if job_table is null
        or not has_schema_privilege('cron', 'usage')
        or not has_table_privilege(job_table, 'select')
    then
        return query
        select a.task, a.job_id, true, case when job_table is null then 'no_pg_cron' else 'hidden' end,
            null::interval, false, false, null::timestamptz, null, null::timestamptz, null::interval,
            null::bigint, null::timestamptz
        from (values ('ticker', ticker_job), ('maint', maint_job)) a(task, job_id)
        where a.job_id is not null;
        return;
    end if;

    if may_see_settings then
        -- A standby need not load pg_cron to show what happens on its primary.
        served := pg_is_in_recovery()
            or current_setting('cron.database_name', true) is not distinct from current_database();
        runs_recorded := coalesce(current_setting('cron.log_run', true), 'on') = 'on';
    end if;
    runs_recorded := runs_recorded
        and coalesce(has_table_privilege(run_table, 'select'), false)
        and coalesce(has_sequence_privilege(run_sequence, 'select'), false);

    return query execute format($query$
        with job as materialized (
            select k.task, j.jobid, k.appointed, j.active, btrim(j.schedule) as schedule, j.command
            from cron.job j
            cross join lateral (values
                ('ticker', j.jobid is not distinct from $1, 'ticker(_loop)?'),
                ('maint', j.jobid is not distinct from $2, 'maint[a-z0-9_]*')
            ) k(task, appointed, function_name)
            where k.appointed
                or j.database = current_database()
                    and j.command ~* ('(^|[^[:alnum:]_$."])"?{engine}"?\s*\.\s*"?' || k.function_name || '"?\s*\(')
        ),
        run as materialized (%s),
        wanted as (
            select j.task, j.jobid as job_id, j.appointed, j.jobid, j.active, j.schedule, j.command
            from job j
            union all
            select w.task, w.job_id, true, null, null, null, null
            from (values ('ticker', $1), ('maint', $2)) w(task, job_id)
            where w.job_id is not null
                and not exists (select from job j where j.task = w.task and j.jobid = w.job_id)
        )
        select
            w.task,
            w.job_id,
            w.appointed,
            case
                when w.jobid is null and row_security_active('cron.job') then 'hidden'
                when w.jobid is null then 'missing'
                when not $3 then 'not_served'
                when not w.active then 'inactive'
            end,
            case
                when w.schedule ~* '^[0-9]{1,6} seconds?$'
                    then make_interval(secs => substring(w.schedule from '^[0-9]+')::int4)
                when w.schedule ~ '^\*(/[0-9]{1,2})?(\s+\*){4}$'
                    then make_interval(mins => coalesce(substring(w.schedule from '^\*/([0-9]+)'), '1')::int4)
                when w.schedule ~ '^\S+(\s+\*){4}$' then interval '1 hour'
                when w.schedule ~ '^\S+\s+\S+(\s+\*){3}$' then interval '1 day'
            end,
            coalesce(w.command ~* ('^\s*(set\s[^;]*;\s*)*select\s+(\*\s+from\s+)?'
                || '"?{engine}"?\s*\.\s*"?ticker"?\s*\(\s*\)\s*;?\s*$'), false),
            $4,
            unfinished.start_time,
            finished.status,
            finished.end_time,
            finished.duration,
            failing.failures,
            failing.since
        from wanted w
        left join lateral (
            select r.runid, r.status, coalesce(r.end_time, r.start_time) as end_time,
                greatest(r.end_time - r.start_time, interval '0') as duration
            from run r
            where r.jobid = w.jobid and r.status in ('succeeded', 'failed')
            order by r.runid desc
            limit 1
        ) finished on true
        left join lateral (
            select max(r.start_time) as start_time
            from run r
            where r.jobid = w.jobid and r.status not in ('succeeded', 'failed')
                and r.runid > coalesce(finished.runid, 0)
        ) unfinished on true
        left join lateral (
            select count(*) as failures, min(coalesce(r.start_time, r.end_time)) as since
            from run r
            where r.jobid = w.jobid and r.status = 'failed' and r.runid > coalesce(
                (select max(s.runid) from run s where s.jobid = w.jobid and s.status = 'succeeded'), 0)
        ) failing on true
        $query$,
        case when runs_recorded then
            'select r.jobid, r.runid, r.status, r.start_time, r.end_time'
            ' from cron.job_run_details r'
            ' where r.runid > (select s.last_value from cron.runid_seq s) - 1000'
            ' and exists (select from job)'
            ' order by r.runid desc limit 1000'
        else
            'select null::bigint as jobid, null::bigint as runid, null as status,'
            ' null::timestamptz as start_time, null::timestamptz as end_time where false'
        end)
    using ticker_job, maint_job, served, runs_recorded;
end
$$;

revoke all on function {pack}.scheduled_jobs() from public;
grant execute on function {pack}.scheduled_jobs() to pgque_monitor;
