-- Refuses, before anything is changed, where this version can't be right: beside a newer one, or where
-- something from elsewhere has a name that it needs. What is ours is known by its comment,
-- '{mark} <version>', which a dump and a restore keep.
do $$
declare
    needed_functions constant text[] := array[
        {functions}]::text[];
    needed_relations constant text[] := array[
        {relations}]::text[];
    needed oid[] := '{}';
    installed record;
    stranger record;
    name text;
    function_id oid;
begin
    -- Two installs at the same moment would both find nothing and both create: the second one waits.
    perform pg_advisory_xact_lock(hashtext('{pack} install'));

    select v.version into installed
    from pg_proc p
    join pg_description d on d.classoid = 'pg_proc'::regclass and d.objoid = p.oid
    cross join lateral (select substring(d.description from '[0-9][0-9.]*[0-9]') as version) v
    where p.pronamespace = to_regnamespace('{pack}') and starts_with(d.description, '{mark} ')
        and string_to_array(v.version, '.')::int[]
            > string_to_array(substring('{version}' from '[0-9][0-9.]*[0-9]'), '.')::int[]
    limit 1;
    if found then
        raise exception 'schema {pack} holds version % of the pack, newer than this one, {version}', installed.version
            using errcode = 'object_not_in_prerequisite_state',
                hint = format('Install with pgque-exporter %s or newer, or uninstall with that first.',
                    installed.version);
    end if;

    foreach name in array needed_functions loop
        begin
            function_id := to_regprocedure(name);
        exception
            when undefined_object or invalid_schema_name then
                function_id := null;  -- where an argument's type is missing, so is the function
        end;
        continue when function_id is null;
        select format('function %s, returning %s,', p.oid::regprocedure, pg_get_function_result(p.oid)) as name
        into stranger
        from pg_proc p
        left join pg_description d on d.classoid = 'pg_proc'::regclass and d.objoid = p.oid
        where p.oid = function_id and not coalesce(starts_with(d.description, '{mark} '), false);
        if found then
            raise exception 'there is a % that is not part of the pack', stranger.name
                using errcode = 'duplicate_function',
                    hint = 'It was left as it is. Drop it, or give it another name or schema, then install again.';
        end if;
        needed := needed || function_id;
    end loop;

    foreach name in array needed_relations loop
        select format('%s %s', o.kind, name) as name
        into stranger
        from (
            select case c.relkind when 'r' then 'table' when 'v' then 'view' when 'c' then 'type' else 'relation' end,
                case c.relkind when 'c' then 'pg_type'::regclass else 'pg_class' end,
                case c.relkind when 'c' then c.reltype else c.oid end
            from pg_class c
            where c.oid = to_regclass(name)
            union all
            select 'type', 'pg_type', t.oid
            from pg_type t
            where t.oid = to_regtype(name) and t.typrelid = 0
        ) o(kind, class, id)
        left join pg_description d on d.classoid = o.class and d.objoid = o.id and d.objsubid = 0
        where not coalesce(starts_with(d.description, '{mark} '), false);
        if found then
            raise exception 'there is a % that is not part of the pack', stranger.name
                using errcode = 'duplicate_object',
                    hint = 'It was left as it is. Drop it, or give it another name or schema, then install again.';
        end if;
    end loop;

    perform set_config('pgque_exporter.needed', needed::text, true);
end
$$;
