-- What is checked, of what, and what it means when it isn't ok. otel_metrics() names only checks that
-- aren't ok; with this list a reader knows which ones of a queue or a consumer are. Checks of the system
-- are there only where they apply, in every state.
create or replace function {pack}.health_checks()
returns table (check_name text, subject text, meaning text)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
    select c.check_name, c.subject, c.meaning
    from (values
        ('ticker_running', 'queue', 'no tick for longer than 1.5 idle periods, or events wait for one beyond the max lag'),
        ('paused', 'queue', 'ticks are paused by configuration'),
        ('xid_regression', 'queue', 'the last tick lies ahead of the server''s transaction ids: a dump was restored'),
        ('no_consumers', 'queue', 'events are sent that nobody is subscribed to'),
        ('rotation_health', 'queue', 'the event tables have not been rotated for more than two periods'),
        ('dlq_health', 'queue', 'dead letters pile up, or grow fast'),
        ('retry_overdue', 'queue', 'retries wait past their time'),
        ('missing_tick', 'consumer', 'the consumer''s position is gone: it can never go on'),
        ('consumer_lag', 'consumer', 'it is far behind, measured by the rotation period'),
        ('consumer_stuck', 'consumer', 'it has events to take and shows no sign of life'),
        ('pg_cron_ticker', 'system', 'pg_cron does not do what is scheduled there to tick'),
        ('pg_cron_maint', 'system', 'pg_cron does not do what is scheduled there for maintenance')
    ) c(check_name, subject, meaning)
    where c.check_name <> 'dlq_health' or {no_dead_letters} is not null
$$;

revoke all on function {pack}.health_checks() from public;
grant execute on function {pack}.health_checks() to pgque_monitor;
