-- Drops everything that carries the comment '{mark} <version>', of whatever version, with what is in its
-- tables, and nothing else.
do $$
declare
    dropped int4;
    ours record;
    in_use text;
    used_by text;
begin
    perform pg_advisory_xact_lock(hashtext('{pack} install'));
    -- Over and over, as they depend on each other, until none goes any more.
    loop
        dropped := 0;
        in_use := null;
        for ours in
            select o.kind, o.signature
            from (
                select 'table', 'pg_class'::regclass, c.oid, c.oid::regclass::text
                from pg_class c
                where c.relnamespace = to_regnamespace('{pack}') and c.relkind = 'r'
                union all
                select 'function', 'pg_proc', p.oid, p.oid::regprocedure::text
                from pg_proc p
                where p.pronamespace = to_regnamespace('{pack}')
                union all
                select 'type', 'pg_type', t.oid, t.oid::regtype::text
                from pg_type t
                where t.typnamespace = to_regnamespace('{pack}')
            ) o(kind, class, id, signature)
            join pg_description d on d.classoid = o.class and d.objoid = o.id and d.objsubid = 0
            where starts_with(d.description, '{mark} ')
            order by o.kind = 'table' desc, o.id desc
        loop
            begin
                execute format('drop %s %s', ours.kind, ours.signature);
                dropped := dropped + 1;
            exception
                when dependent_objects_still_exist then
                    get stacked diagnostics used_by = pg_exception_detail;
                    in_use := coalesce(in_use,
                        format('%s %s is in use: %s', ours.kind, ours.signature, split_part(used_by, E'\n', -1)));
            end;
        end loop;
        exit when dropped = 0;
    end loop;
    if in_use is not null then
        raise exception '%', in_use
            using errcode = 'dependent_objects_still_exist', hint = 'Drop what uses it, then uninstall again.';
    end if;
end
$$;
