-- Put every change of a table into a queue, the row as JSON.
--
-- create trigger ... after insert or update or delete on a_table for each row
--     execute function pgque.jsontriga('a_queue', ...);
--
-- ev_data is the row as a JSON object (the deleted one for a delete): integers, booleans and NULL as
-- such, all else as strings. ev_type is a JSON object with op, table (schema and name) and pkey.
-- ev_extra1 is the table with its schema. Whoever changes the table needs pgque_writer, as what the
-- trigger sends is sent with his rights; so are the expressions below, in which columns of the row may
-- be named, and functions with their schemas.
--
-- More arguments, in any order: ignore=a,b (columns left out; an update of nothing else is no event),
-- pkey=a,b (instead of the primary key), backup (of an update, the row before it in ev_extra2), when=EXPRESSION (no
-- event unless true), ev_type=EXPRESSION, ev_extra1=EXPRESSION to ev_extra4=EXPRESSION, SKIP (the change
-- itself isn't made; for a BEFORE trigger).

create or replace function pgque.jsontriga()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    execute pgque.capture_sql('json', tg_argv, tg_op, tg_level, tg_when, tg_relid) using old, new;
    return case when tg_when = 'BEFORE' and 'SKIP' = any (tg_argv) then null
                when tg_op = 'DELETE' then old
                else new end;
end;
$$;

revoke all on function pgque.jsontriga() from public;
grant execute on function pgque.jsontriga() to pgque_admin;
