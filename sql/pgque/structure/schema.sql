-- The schema that holds the whole engine. Nobody gets in by default: what a role may do is granted
-- object by object, and the roles file opens the door of the schema itself.

-- Two installs at the same moment would both find nothing and both create; the second one waits.
do $$
begin
    perform pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('pgque install'));
end;
$$;

create schema if not exists pgque;

revoke all on schema pgque from public;
