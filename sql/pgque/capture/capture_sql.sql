-- The statement by which a trigger puts one changed row into a queue; $1 and $2 in it are the row
-- before and after. Internal to jsontriga(), logutriga() and sqltriga(), which say what the event then
-- looks like and which arguments a trigger takes.
--
-- A statement for each row, made of text, because what it takes from the row are columns that only the
-- table at hand has. Whatever the arguments ask for is evaluated with the rights of whoever changes the
-- table, as everything in a trigger is.

create or replace function pgque.capture_sql(
    style text, args text[], op text, level text, timing text, relation oid
)
returns text
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_queue    constant text := args[array_lower(args, 1)];
    v_row      constant text := case op when 'DELETE' then '$1' else '$2' end;
    v_expr     constant text := '(select (%s)::text from (select (' || v_row || ').*) as r)';
    v_ignored  text[] := array[]::text[];
    v_pkey     text[];
    v_columns  text[];
    v_backup   bool := false;
    v_when     text;
    v_extra    text[] := array[null, null, null, null]::text[];
    v_table    text;
    v_type     text;
    v_data     text;
    v_old      text;
    v_settable text[];
    v_as_text  text[];
    v_arg      text;
    v_key      text;
    v_value    text;
begin
    if level <> 'ROW' or op not in ('INSERT', 'UPDATE', 'DELETE') then
        raise exception 'triggers that feed queues are for each row, on insert, update and delete'
            using errcode = 'trigger_protocol_violated';
    end if;
    if v_queue is null then
        raise exception 'the first argument of the trigger must be a queue'
            using errcode = 'invalid_parameter_value';
    end if;

    select format('%I.%I', n.nspname, c.relname)
    into v_table
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where c.oid = relation;
    v_extra[1] := quote_literal(v_table);

    foreach v_arg in array args[array_lower(args, 1) + 1:] loop
        v_key := split_part(v_arg, '=', 1);
        v_value := substr(v_arg, length(v_key) + 2);
        if v_arg = 'SKIP' then
            if timing <> 'BEFORE' then
                raise exception 'SKIP needs a BEFORE trigger, not %', timing
                    using errcode = 'trigger_protocol_violated';
            end if;
        elsif v_arg = 'backup' then
            v_backup := true;
        elsif v_arg not like '%=%' then
            v_key := null;
        elsif v_key = 'ignore' then
            v_ignored := string_to_array(v_value, ',');
        elsif v_key = 'pkey' then
            v_pkey := string_to_array(v_value, ',');
        elsif v_key = 'when' then
            v_when := format('(select (%s)::bool from (select (%s).*) as r)', v_value, v_row);
        elsif v_key = 'ev_type' then
            v_type := format(v_expr, v_value);
        elsif v_key ~ '^ev_extra[1-4]$' then
            v_extra[right(v_key, 1)::int4] := format(v_expr, v_value);
        else
            v_key := null;
        end if;
        if v_key is null then
            raise exception 'unknown trigger argument: %', v_arg
                using errcode = 'invalid_parameter_value',
                      hint = 'One of: SKIP, backup, ignore=..., pkey=..., when=..., ev_type=..., '
                             'ev_extra1=... to ev_extra4=...';
        end if;
    end loop;

    select array_agg(a.attname::text order by a.attnum) filter (where a.attname <> all (v_ignored)),
           array_agg(a.attname::text order by a.attnum)
               filter (where a.attname <> all (v_ignored) and a.attgenerated = ''),
           -- What JSON readers might change: they would lose the end of a long number.
           array_agg(a.attname::text) filter (where a.atttypid <> all (array[
               'int2', 'int4', 'int8', 'bool', 'date', 'timestamp', 'timestamptz']::regtype[]))
    into v_columns, v_settable, v_as_text
    from pg_attribute as a
    where a.attrelid = relation
      and a.attnum > 0
      and not a.attisdropped;
    if v_pkey is null then
        v_pkey := array(
            select a.attname::text
            from pg_index as i
            cross join unnest(i.indkey::int2[]) with ordinality as k (attnum, place)
            join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = k.attnum
            where i.indrelid = relation
              and i.indisprimary
            order by k.place
        );
    end if;

    case style
        when 'json' then
            v_type := coalesce(v_type, quote_literal(format(
                '{"op":%s,"table":%s,"pkey":%s}', to_json(op),
                array_to_json(parse_ident(v_table)), array_to_json(v_pkey))));
            v_data := pgque.row_json_sql(v_row, v_columns, v_as_text);
            v_old := pgque.row_json_sql('$1', v_columns, v_as_text);
        when 'url' then
            v_type := coalesce(v_type, quote_literal(
                left(op, 1) || ':' || array_to_string(v_pkey, ',')));
            v_data := pgque.row_url_sql(v_row, v_columns);
            v_old := pgque.row_url_sql('$1', v_columns);
        when 'sql' then
            v_type := coalesce(v_type, quote_literal(left(op, 1)));
            v_data := pgque.row_change_sql(op, v_table, v_settable, v_pkey);
            v_old := pgque.row_url_sql('$1', v_columns);
    end case;
    if v_backup and op = 'UPDATE' and v_extra[2] is null then
        v_extra[2] := v_old;
    end if;

    -- An update of nothing but ignored columns is no event.
    if op = 'UPDATE' and cardinality(v_ignored) > 0 then
        v_when := concat_ws(' and ', v_when, format(
            'not (%s is distinct from %s and %s is not distinct from %s)',
            pgque.row_text_sql('$1', v_ignored), pgque.row_text_sql('$2', v_ignored),
            pgque.row_text_sql('$1', v_columns), pgque.row_text_sql('$2', v_columns)));
    end if;

    return format('select pgque.insert_event(%L, %s, %s, %s, %s, %s, %s)',
                  v_queue, v_type, v_data, coalesce(v_extra[1], 'null'), coalesce(v_extra[2], 'null'),
                  coalesce(v_extra[3], 'null'), coalesce(v_extra[4], 'null'))
        || coalesce(' where ' || v_when, '');
end;
$$;

revoke all on function pgque.capture_sql(text, text[], text, text, text, oid) from public;
grant execute on function pgque.capture_sql(text, text[], text, text, text, oid) to pgque_writer;
