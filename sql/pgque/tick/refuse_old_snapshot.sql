-- Stop a step that must see what is committed at this moment from running on a snapshot that was
-- taken when its transaction began. Internal.

create or replace function pgque.refuse_old_snapshot(caller text)
returns void
language plpgsql
as $$
begin
    if pg_catalog.current_setting('transaction_isolation') not like 'read %' then
        raise exception '% needs the isolation level read committed, not %',
            caller, pg_catalog.current_setting('transaction_isolation')
            using errcode = 'invalid_transaction_state';
    end if;
end;
$$;

revoke all on function pgque.refuse_old_snapshot(text) from public;
grant execute on function pgque.refuse_old_snapshot(text) to pgque_admin;
