-- Takes back the grants on the engine's tables and sequences, and the pack's schema with what is left of it.
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

drop schema if exists pgq_observability;
