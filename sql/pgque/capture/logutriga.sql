-- Put every change of a table into a queue, the row as URL-encoded pairs.
--
-- create trigger ... after insert or update or delete on a_table for each row
--     execute function pgque.logutriga('a_queue', ...);
--
-- ev_data is the row as a=1&b=2 (of a NULL the name alone; the deleted row for a delete), ev_type is
-- I:, U: or D: and the names of the key columns.
-- ev_extra1 is the table with its schema. Whoever changes the table needs pgque_writer, as what the
-- trigger sends is sent with his rights; so are the expressions below, in which columns of the row may
-- be named, and functions with their schemas.
--
-- More arguments, in any order: ignore=a,b (columns left out; an update of nothing else is no event),
-- pkey=a,b (instead of the primary key), backup (of an update, the row before it in ev_extra2), when=EXPRESSION (no
-- event unless true), ev_type=EXPRESSION, ev_extra1=EXPRESSION to ev_extra4=EXPRESSION, SKIP (the change
-- itself isn't made; for a BEFORE trigger).

create or replace function pgque.logutriga()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    execute pgque.capture_sql('url', tg_argv, tg_op, tg_level, tg_when, tg_relid) using old, new;
    return case when tg_when = 'BEFORE' and 'SKIP' = any (tg_argv) then null
                when tg_op = 'DELETE' then old
                else new end;
end;
$$;

revoke all on function pgque.logutriga() from public;
grant execute on function pgque.logutriga() to pgque_admin;
