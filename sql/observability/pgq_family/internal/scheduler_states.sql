-- The judgement on pg_cron's jobs, one row for the ticker and one for the maintenance, where there are
-- jobs for them: the worst of those that are to run. Whether events wait is told by the ticker check; this
-- one tells that the job behind it is gone, turned off, late or failing.
create or replace function {pack}.scheduler_states()
returns table (task text, status text, detail text, tick_duration interval)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
    with job as (
        select
            j.*,
            'job ' || j.job_id as name,
            now() - j.last_end as age,
            j.running_since is null and now() - j.last_end > j.period * 3 + interval '1 minute' as late,
            -- a duplicate that was turned off is nothing to report while another does the work
            j.appointed or j.obstacle is null or not bool_or(j.obstacle is null) over (partition by j.task)
                as counts
        from {pack}.scheduled_jobs() j
    ),
    judged as (
        select j.*, v.severity, v.detail
        from job j
        cross join lateral (
            select
                case
                    when j.obstacle in ('no_pg_cron', 'missing') then 'critical'
                    when j.obstacle = 'hidden' then 'unknown'
                    when j.obstacle is not null then case when j.appointed then 'critical' else 'warning' end
                    when j.late then 'critical'
                    when j.failures >= 3 and now() - j.failing_since >= interval '1 minute' then 'critical'
                    when j.failures > 0 then 'warning'
                    else 'ok'
                end as severity,
                case
                    when j.obstacle = 'no_pg_cron'
                        then j.name || ' is configured, but pg_cron is not installed in this database'
                    when j.obstacle = 'hidden'
                        then j.name || ' is configured, but the owner of this function may not see it'
                    when j.obstacle = 'missing' then j.name || ' is configured, but pg_cron has no such job'
                    when j.obstacle = 'not_served'
                        then j.name || ' does not run: pg_cron is not loaded, or serves another database'
                    when j.obstacle = 'inactive' then j.name || ' is turned off'
                    when j.late then j.name || ' last ran ' || date_trunc('second', j.age)
                        || ' ago, expected every ' || j.period || ': is pg_cron running?'
                    when j.failures > 0 then j.name || ' failed ' || case j.failures
                            when 1 then date_trunc('second', j.age) || ' ago'
                            else j.failures || ' times in a row, for ' || date_trunc('second', now() - j.failing_since)
                        end || ': see cron.job_run_details'
                    when not j.recorded then j.name || ' is scheduled; its runs are not recorded'
                    when j.running_since is not null
                        then j.name || ' has been running for ' || date_trunc('second', now() - j.running_since)
                    when j.last_end is null then j.name || ' is scheduled; no run of it among the last 1000 of all jobs'
                    else j.name || ' last succeeded ' || date_trunc('second', j.age) || ' ago'
                end as detail
        ) v
        where j.counts
    )
    select
        j.task,
        (array_agg(j.severity order by s.rank, j.job_id))[1],
        (array_agg(j.detail order by s.rank, j.job_id))[1],
        (array_agg(j.last_duration order by j.last_end desc)
            filter (where j.task = 'ticker' and j.single_tick and j.obstacle is null and not coalesce(j.late, false)
                and j.last_duration is not null))[1]
    from judged j
    cross join lateral (select array_position(array['critical', 'warning', 'unknown', 'ok'], j.severity) as rank) s
    group by j.task
$$;

revoke all on function {pack}.scheduler_states() from public;
grant execute on function {pack}.scheduler_states() to pgque_monitor;
