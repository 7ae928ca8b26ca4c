-- Who may see a queue's own tables. Internal: create_queue() calls it for each table it makes.
--
-- No insert for producers: an event must carry the transaction id and land in the table that
-- insert_event() chooses, or consumers would miss it.

create or replace function pgque.grant_event_table(table_name text)
returns void
language plpgsql
as $$
begin
    execute pg_catalog.format('revoke all on pgque.%I from public', table_name);
    execute pg_catalog.format('grant select on pgque.%I to pgque_reader', table_name);
    execute pg_catalog.format(
        'grant select, insert, update, delete, truncate on pgque.%I to pgque_admin', table_name);
end;
$$;

revoke all on function pgque.grant_event_table(text) from public;
grant execute on function pgque.grant_event_table(text) to pgque_admin;
