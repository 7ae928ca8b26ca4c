-- All of it: what was published can be published again. A schema of this name that isn't marked as ours
-- is somebody's, and stays.
do $$
begin
    if starts_with(obj_description(to_regnamespace('{pack}'), 'pg_namespace'), '{mark} ') is not true
        and to_regnamespace('{pack}') is not null
    then
        raise exception 'schema {pack} is not what `sql install --history` made'
            using hint = 'Drop the schema yourself if nobody needs it.';
    end if;
end
$$;

drop schema if exists queue_history cascade;
