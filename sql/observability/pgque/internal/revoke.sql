-- Takes back what pgque_monitor was granted. The engine, its data and the role stay: a role belongs to the
-- whole server and may be in use elsewhere.
do $$
declare
    owner_name name := (select pg_get_userbyid(n.nspowner) from pg_namespace n where n.nspname = 'pgque');
    granted text;
begin
    if owner_name is null or to_regrole('pgque_monitor') is null then
        return;  -- the engine is gone, and everything in its schema with it
    end if;
    execute format(
        'alter default privileges for role %I in schema pgque revoke select on sequences from pgque_monitor',
        owner_name);
    -- Only where there is something to take back: elsewhere a revoke would write down the default rights.
    for granted in
        select format('%s %s', case c.relkind when 'S' then 'sequence' else 'table' end, c.oid::regclass)
        from pg_class c
        where c.relnamespace = 'pgque'::regnamespace
            and (exists (select from aclexplode(c.relacl) a where a.grantee = 'pgque_monitor'::regrole)
                or exists (select from pg_attribute t cross join lateral aclexplode(t.attacl) a
                           where t.attrelid = c.oid and a.grantee = 'pgque_monitor'::regrole))
        union all
        select format('function %s', p.oid::regprocedure)
        from pg_proc p
        where p.pronamespace = 'pgque'::regnamespace
            and exists (select from aclexplode(p.proacl) a where a.grantee = 'pgque_monitor'::regrole)
    loop
        execute format('revoke all on %s from pgque_monitor', granted);
    end loop;
    revoke usage on schema pgque from pgque_monitor;
end
$$;
