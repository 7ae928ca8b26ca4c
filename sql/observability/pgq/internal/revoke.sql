-- Takes back what pgque_monitor was granted, and the pack's schema. The engine, its data and the role stay:
-- a role belongs to the whole server and may be in use elsewhere.
do $$
declare
    object record;
begin
    if to_regclass('pgq.queue') is null or to_regrole('pgque_monitor') is null then
        return;  -- with the engine all grants on it are gone
    end if;
    execute format(
        'alter default privileges for role %I in schema pgq revoke select on sequences from pgque_monitor',
        (select pg_get_userbyid(p.proowner) from pg_proc p where p.oid = 'pgq.create_queue(text)'::regprocedure));
    -- Only where there is something to take back: elsewhere a revoke would write down the default rights.
    for object in
        select c.oid::regclass as name
        from pg_class c
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

do $$
begin
    drop schema if exists pgq_observability;
exception
    when dependent_objects_still_exist then  -- somebody keeps something of theirs in it
        revoke all on schema pgq_observability from pgque_monitor, pgq_admin;
end
$$;
