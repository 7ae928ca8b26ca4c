-- A schema of the pack's own, and what pgque_monitor may read. It can't read a payload, take or finish a
-- batch or change anything; PgQ's own pgq_reader can do all of that.
create schema if not exists pgq_observability;
revoke all on schema pgq_observability from public;
grant usage on schema pgq_observability to pgque_monitor, pgq_admin;

-- PgQ lets everybody read most of these. A site may have taken that back.
grant usage on schema pgq to pgque_monitor;
grant select on pgq.queue, pgq.tick, pgq.subscription, pgq.consumer to pgque_monitor;

-- A table that holds payloads: only the columns that counting needs.
grant select (ev_queue, ev_owner, ev_retry_after) on pgq.retry_queue to pgque_monitor;

-- Each queue has an event sequence, read for the number of events sent; those of queues to come get the
-- grant by default privileges of the owner of create_queue(), who creates them. Where a sequence can't
-- be read all the same, what depends on it is unknown; installing the pack again grants it.
do $$
declare
    owner_name name := (select pg_catalog.pg_get_userbyid(proowner)
                        from pg_catalog.pg_proc where oid = 'pgq.create_queue(text)'::regprocedure);
    event_sequence regclass;
begin
    execute format('alter default privileges for role %I in schema pgq grant select on sequences to pgque_monitor',
        owner_name);
    for event_sequence in
        select to_regclass(q.queue_event_seq) from pgq.queue q where to_regclass(q.queue_event_seq) is not null
    loop
        execute format('grant select on sequence %s to pgque_monitor', event_sequence);
    end loop;
end
$$;
