-- Removes the pack and its grants; the engine, its data and the role pgque_monitor stay (a role belongs
-- to the whole server and may be in use elsewhere).
begin;

set local client_min_messages = warning;

-- All that is in the pack's schema is the pack's. Nothing cascades: a view of somebody's that reads the
-- pack stops this. Functions go in one statement, because some of them use others.
do $$
declare
    functions text := (select string_agg(p.oid::regprocedure::text, ', ')
                       from pg_catalog.pg_proc p
                       where p.pronamespace = to_regnamespace('pgq_observability'));
    used_by text;
begin
    drop table if exists pgq_observability.health_threshold, pgq_observability.metrics_buffer;
    if functions is not null then
        execute 'drop function ' || functions;
    end if;
    drop type if exists pgq_observability.observed_queue, pgq_observability.observed_consumer;
    drop schema if exists pgq_observability;
exception
    when dependent_objects_still_exist then
        get stacked diagnostics used_by = pg_exception_detail;
        raise exception 'the pack is in use: %', translate(used_by, E'\n', ' ')
            using errcode = 'dependent_objects_still_exist', hint = 'Drop what uses it, then uninstall again.';
end
$$;

do $$
declare
    object record;
begin
    if to_regclass('pgq.queue') is null
        or not exists (select from pg_catalog.pg_roles where rolname = 'pgque_monitor')
    then
        return;  -- with the engine all grants on it are gone
    end if;
    execute format(
        'alter default privileges for role %I in schema pgq revoke select on sequences from pgque_monitor',
        (select pg_catalog.pg_get_userbyid(proowner)
         from pg_catalog.pg_proc where oid = 'pgq.create_queue(text)'::regprocedure));
    for object in
        select c.oid::regclass as name
        from pg_catalog.pg_class c
        cross join lateral aclexplode(c.relacl) a
        where c.relnamespace = 'pgq'::regnamespace and c.relkind = 'S' and a.grantee = 'pgque_monitor'::regrole
    loop
        execute format('revoke select on sequence %s from pgque_monitor', object.name);
    end loop;
    revoke select on pgq.queue, pgq.tick, pgq.subscription, pgq.consumer from pgque_monitor;
    revoke select (ev_queue, ev_owner, ev_retry_after) on pgq.retry_queue from pgque_monitor;
    revoke usage on schema pgq from pgque_monitor;
end
$$;

commit;
