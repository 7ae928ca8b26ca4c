-- Drops the functions and types of whatever version is installed, as `create or replace` can't change
-- what a function returns and forgets one that is no longer made. Tables stay, with all that is in them.
-- Who owns what is dropped and who else may use it is noted for finish.sql.
--
-- What somebody's view uses stays, with all that it is made of, and is replaced where it stands. That can
-- only be right if this version has it too.
do $$
declare
    needed_functions constant oid[] := current_setting('pgque_exporter.needed')::oid[];
    needed_types constant text[] := array[
        {types}]::text[];
    kept jsonb := '[]';
    dropped int4;
    triggering record;
    ours record;
    in_use text;
    used_by text;
begin
    for triggering in
        select t.tgname as name, t.tgrelid::regclass as on_table
        from pg_trigger t
        join pg_proc p on p.oid = t.tgfoid and p.pronamespace = to_regnamespace('{pack}')
        join pg_description d on d.classoid = 'pg_proc'::regclass and d.objoid = p.oid
        where p.oid <> all (needed_functions) and starts_with(d.description, '{mark} ')
    loop
        execute format('drop trigger %I on %s', triggering.name, triggering.on_table);
    end loop;

    -- Over and over, as they depend on each other, until none goes any more.
    loop
        dropped := 0;
        in_use := null;
        for ours in
            select o.kind, o.name, o.signature, o.owner, o.grants,
                case o.kind when 'function' then o.id = any (needed_functions)
                    else o.signature || ' ' || split_part(d.description, ' ', -1) = any (needed_types) end as stays
            from (
                select 'function', 'pg_proc'::regclass, p.oid, p.proname, p.oid::regprocedure::text, p.proowner,
                    (select jsonb_agg(jsonb_build_object('to', a.grantee::regrole::text, 'grantable', a.is_grantable))
                     from aclexplode(p.proacl) a
                     where a.grantee not in (0, p.proowner, to_regrole('pgque_monitor')))
                from pg_proc p
                where p.pronamespace = to_regnamespace('{pack}')
                union all
                select 'type', 'pg_type', t.oid, t.typname, t.oid::regtype::text, t.typowner, null
                from pg_type t
                where t.typnamespace = to_regnamespace('{pack}')
            ) o(kind, class, id, name, signature, owner, grants)
            join pg_description d on d.classoid = o.class and d.objoid = o.id and d.objsubid = 0
            where starts_with(d.description, '{mark} ')
            order by o.id desc
        loop
            begin
                execute format('drop %s %s', ours.kind, ours.signature);
                dropped := dropped + 1;
                kept := kept || jsonb_build_object('kind', ours.kind, 'name', ours.name,
                    'owner', ours.owner::regrole::text, 'grants', ours.grants);
            exception
                when dependent_objects_still_exist then
                    if not ours.stays then
                        get stacked diagnostics used_by = pg_exception_detail;
                        in_use := coalesce(in_use, format('%s %s changes or goes with this version, but is in use: %s',
                            ours.kind, ours.signature, split_part(used_by, E'\n', -1)));
                    end if;
            end;
        end loop;
        exit when dropped = 0;
    end loop;
    if in_use is not null then
        raise exception '%', in_use
            using errcode = 'dependent_objects_still_exist', hint = 'Drop what uses it, then install again.';
    end if;
    perform set_config('pgque_exporter.kept', kept::text, true);
end
$$;
