-- Removes the pack and its grants; the engine, its data and the role pgque_monitor stay (a role belongs
-- to the whole server and may be in use elsewhere).
begin;

-- Its triggers would count on, and nobody could read what.
do $$
begin
    if to_regprocedure('pgque.instrumented_metrics()') is not null then
        raise exception 'the instrumentation of PgQue is still installed in database "%"', current_database()
            using hint = 'Remove it first: pgque-exporter sql uninstall --engine pgque --instrument, or '
                '\i sql/observability/pgque/instrumentation/uninstall.sql';
    end if;
end
$$;

drop function if exists pgque.buffer_metrics(interval);
drop table if exists pgque.metrics_buffer;
drop function if exists pgque.otel_metrics();
drop function if exists pgque.instrumentation_rows();
drop function if exists pgque.queue_health();
drop function if exists pgque.health_checks();
drop function if exists pgque.queue_stats();
drop function if exists pgque.consumer_stats();
drop function if exists pgque.stuck_consumers(interval);
drop function if exists pgque.in_flight(text);
drop function if exists pgque.latency_percentiles(text, text, interval);
drop function if exists pgque.error_rate(text, interval, interval);
drop function if exists pgque.throughput(text, interval, interval);
drop function if exists pgque.observability_info();
drop function if exists pgque.scheduler_health();
drop function if exists pgque.scheduler_metrics();
drop function if exists pgque.scheduler_states();
drop function if exists pgque.scheduled_jobs();
drop function if exists pgque.require_buckets(interval, interval);
drop function if exists pgque.require_queue(text);
drop function if exists pgque.require_consumer(int4, text);
drop function if exists pgque.exact_backlog(text, text, int4);
drop table if exists pgque.health_threshold;
drop function if exists pgque.check_health_threshold();
drop function if exists pgque.waiting_events(int4, int4[], pg_snapshot, pg_snapshot, int4);

do $$
declare
    owner_name name := (select pg_catalog.pg_get_userbyid(nspowner)
                        from pg_catalog.pg_namespace where nspname = 'pgque');
begin
    if owner_name is null then
        return;  -- the engine is gone, and everything in its schema with it
    end if;
    if to_regtype('pgque.observed_queue') is not null then
        drop type pgque.observed_queue cascade;      -- with the functions that take it
    end if;
    if to_regtype('pgque.observed_consumer') is not null then
        drop type pgque.observed_consumer cascade;
    end if;
    if exists (select from pg_catalog.pg_roles where rolname = 'pgque_monitor') then
        execute format(
            'alter default privileges for role %I in schema pgque revoke select on sequences from pgque_monitor',
            owner_name);
        revoke all on all sequences in schema pgque from pgque_monitor;
        revoke all on all tables in schema pgque from pgque_monitor;
        revoke select (ev_queue, ev_owner, ev_retry_after) on pgque.retry_queue from pgque_monitor;
        revoke select (dl_queue_id, dl_consumer_id, dl_time) on pgque.dead_letter from pgque_monitor;
        revoke all on all functions in schema pgque from pgque_monitor;
        revoke usage on schema pgque from pgque_monitor;
    end if;
end
$$;

commit;
