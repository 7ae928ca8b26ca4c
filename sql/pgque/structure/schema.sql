-- The schema that holds the whole engine. Nobody gets in by default: what a role may do is granted
-- object by object, and the roles file opens the door of the schema itself.

-- Two installs at the same moment would both find nothing and both create; the second one waits.
do $$
begin
    perform pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('pgque install'));
end;
$$;

-- In a schema of somebody else nothing is installed: he may have put functions and tables of these names
-- there beforehand, which would stay his, and run with the rights of whoever uses the engine.
do $$
declare
    v_owner text := (
        select pg_catalog.pg_get_userbyid(n.nspowner) from pg_catalog.pg_namespace as n where n.nspname = 'pgque'
    );
begin
    if v_owner <> current_user then
        raise exception 'schema pgque belongs to %, not to %', v_owner, current_user
            using errcode = 'insufficient_privilege',
                  hint = pg_catalog.format(
                      'If the engine there is yours, install as its owner (set role %I). If not, drop the schema.',
                      v_owner);
    end if;
end;
$$;

create schema if not exists pgque;

revoke all on schema pgque from public;
