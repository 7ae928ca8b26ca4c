-- Which version of the engine is installed.

create or replace function pgque.version()
returns text
language sql
immutable
as $$ select '0.1.0'::text $$;

revoke all on function pgque.version() from public;
grant execute on function pgque.version() to pgque_reader;
