-- Marks all of it as ours, and gives what was made anew back to its owner and to those it was granted to.
{marks}

do $$
declare
    kept record;
    granted record;
begin
    for kept in
        select k.kind, k.owner, k.grants, o.signature
        from jsonb_to_recordset(current_setting('pgque_exporter.kept')::jsonb)
            k(kind text, name text, owner text, grants jsonb)
        join (
            select 'function', 'pg_proc'::regclass, p.oid, p.proname, p.oid::regprocedure::text
            from pg_proc p
            where p.pronamespace = to_regnamespace('{pack}')
            union all
            select 'type', 'pg_type', t.oid, t.typname, t.oid::regtype::text
            from pg_type t
            where t.typnamespace = to_regnamespace('{pack}')
        ) o(kind, class, id, name, signature) on o.kind = k.kind and o.name = k.name
        join pg_description d on d.classoid = o.class and d.objoid = o.id and d.objsubid = 0
        where starts_with(d.description, '{mark} ')
    loop
        if kept.owner <> quote_ident(current_user) then
            execute format('alter %s %s owner to %s', kept.kind, kept.signature, kept.owner);
        end if;
        for granted in
            select g."to", g.grantable from jsonb_to_recordset(kept.grants) g("to" text, grantable boolean)
        loop
            execute format('grant execute on function %s to %s%s', kept.signature, granted."to",
                case when granted.grantable then ' with grant option' else '' end);
        end loop;
    end loop;
end
$$;
