-- Ways to write a row of a table down, as texts of SQL expressions: `row_ref` is a parameter that
-- stands for the row, `columns` are those to take. Internal to capture_sql().

-- As a JSON object, the values of some columns as strings.
create or replace function pgque.row_json_sql(row_ref text, columns text[], as_text text[])
returns text
language sql
immutable
as $$
    select pg_catalog.format(
        '(select pg_catalog.row_to_json(x)::text from (select %s) as x)',
        pg_catalog.string_agg(
            pg_catalog.format(
                case when c.name = any (as_text) then '(%1$s).%2$I::text as %2$I' else '(%1$s).%2$I' end,
                row_ref, c.name),
            ', ' order by c.place))
    from pg_catalog.unnest(columns) with ordinality as c (name, place)
$$;

-- As name=value pairs, URL-encoded; of a NULL the name alone. format() writes a value as the server would
-- send it, where a cast makes more than a letter of a boolean.
create or replace function pgque.row_url_sql(row_ref text, columns text[])
returns text
language sql
immutable
as $$
    select pg_catalog.format('pg_catalog.concat_ws(''&'', %s)', coalesce(pg_catalog.string_agg(
        pg_catalog.format(
            '%1$L || case when pg_catalog.num_nulls((%2$s).%3$I) = 0 '
            'then ''='' || pgque.url_encode(pg_catalog.format(''%%s'', (%2$s).%3$I)) else '''' end',
            pgque.url_encode(c.name), row_ref, c.name), ', ' order by c.place), 'null'))
    from pg_catalog.unnest(columns) with ordinality as c (name, place)
$$;

-- As an array of texts, to be compared: not every type knows what equal means.
create or replace function pgque.row_text_sql(row_ref text, columns text[])
returns text
language sql
immutable
as $$
    select pg_catalog.format('array[%s]::text[]', pg_catalog.string_agg(
        pg_catalog.format('(%s).%I::text', row_ref, c.name), ', ' order by c.place))
    from pg_catalog.unnest(columns) with ordinality as c (name, place)
$$;

-- As the statement that does the same to another table of that name. An update sets what it changed;
-- one that changed nothing sets the key to itself, so that it is a statement all the same.
create or replace function pgque.row_change_sql(op text, table_name text, columns text[], pkey text[])
returns text
language plpgsql
immutable
as $$
declare
    v_names text;
    v_values text;
    v_changes text;
    v_key text;
    v_same text;
begin
    if op <> 'INSERT' and pg_catalog.cardinality(pkey) = 0 then
        raise exception 'table % has no primary key', table_name
            using errcode = 'object_not_in_prerequisite_state',
                  hint = 'Name the columns that identify a row by the argument pkey=...';
    end if;

    select
        pg_catalog.string_agg(pg_catalog.quote_ident(c.name), ', ' order by c.place),
        pg_catalog.string_agg(
            pg_catalog.format('pg_catalog.quote_nullable(($2).%I::text)', c.name), ', ' order by c.place),
        pg_catalog.string_agg(pg_catalog.format(
            'case when ($1).%1$I::text is distinct from ($2).%1$I::text'
            ' then %2$L || pg_catalog.quote_nullable(($2).%1$I::text) end',
            c.name, pg_catalog.quote_ident(c.name) || ' = '), ', ' order by c.place)
    into v_names, v_values, v_changes
    from pg_catalog.unnest(columns) with ordinality as c (name, place);

    select
        pg_catalog.string_agg(pg_catalog.format(
            'coalesce(%1$L || '' = '' || pg_catalog.quote_literal(($1).%2$I::text), %1$L || '' IS NULL'')',
            pg_catalog.quote_ident(c.name), c.name), ', ' order by c.place),
        pg_catalog.string_agg(pg_catalog.format('%1$I = %1$I', c.name), ', ' order by c.place)
    into v_key, v_same
    from pg_catalog.unnest(pkey) with ordinality as c (name, place);

    -- Every column may be ignored, or generated.
    if op = 'INSERT' and v_names is null then
        return pg_catalog.quote_literal('INSERT INTO ' || table_name || ' DEFAULT VALUES');
    end if;
    return case op
        when 'INSERT' then pg_catalog.format(
            '%L || pg_catalog.concat_ws('', '', %s) || '')''',
            'INSERT INTO ' || table_name || ' (' || v_names || ') VALUES (', v_values)
        when 'UPDATE' then pg_catalog.format(
            '%L || coalesce(nullif(pg_catalog.concat_ws('', '', %s), ''''), %L) || '' WHERE '''
            ' || pg_catalog.concat_ws('' AND '', %s)',
            'UPDATE ' || table_name || ' SET ', coalesce(v_changes, 'null'), v_same, v_key)
        when 'DELETE' then pg_catalog.format(
            '%L || pg_catalog.concat_ws('' AND '', %s)', 'DELETE FROM ' || table_name || ' WHERE ', v_key)
    end;
end;
$$;

revoke all on function pgque.row_json_sql(text, text[], text[]) from public;
revoke all on function pgque.row_url_sql(text, text[]) from public;
revoke all on function pgque.row_text_sql(text, text[]) from public;
revoke all on function pgque.row_change_sql(text, text, text[], text[]) from public;
grant execute on function pgque.row_json_sql(text, text[], text[]) to pgque_writer;
grant execute on function pgque.row_url_sql(text, text[]) to pgque_writer;
grant execute on function pgque.row_text_sql(text, text[]) to pgque_writer;
grant execute on function pgque.row_change_sql(text, text, text[], text[]) to pgque_writer;
