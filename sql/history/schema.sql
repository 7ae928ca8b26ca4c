-- What the pipeline makes of months of metrics, back in PostgreSQL: a pack of its own, which the service
-- polls where a target says `history: true`. Whoever may write here says what is normal for every database.

-- In a schema of somebody else nothing is installed: tables of these names that he had put there beforehand
-- would stay his, and he could put others in their place later on.
do $$
declare
    stranger text;
begin
    -- Only one at a time: two that make the schema at once would get into each other's way.
    perform pg_advisory_xact_lock(hashtext('{pack} install'));
    stranger := (
        select r.rolname
        from pg_namespace as n
        join pg_roles as r on r.oid = n.nspowner
        join pg_database as d on d.datname = current_database()
        where n.nspname = '{pack}' and not (r.rolsuper or r.oid = d.datdba or r.rolname = current_user)
    );
    if stranger is not null then
        raise exception 'schema {pack} belongs to %', stranger
            using errcode = 'insufficient_privilege',
                hint = format('If it is yours, install as its owner (set role %I). If not, drop the schema.', stranger);
    end if;
end
$$;

create schema if not exists queue_history;
comment on schema queue_history is '{mark} {version}';
revoke all on schema queue_history from public;
grant usage on schema queue_history to pgque_monitor;
